"""`generate`: prompts to answers."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from spec_cascades.commands import hosting, profiling


def add(commands: Any) -> None:
    text = "answers to prompts from the arguments, a file or stdin (one a line, blank lines skipped)"
    sub = commands.add_parser("generate", help="answer prompts", description=text)
    sub.add_argument("prompts", nargs="*", metavar="PROMPT")
    sub.add_argument("--file", type=Path, metavar="FILE", help="one prompt a line, or .jsonl with 'input'")
    sub.add_argument("--config", metavar="CONFIG", help="a YAML file (default: the embedded pair, rule v3)")
    sub.add_argument(
        "--set", action="append", default=[], metavar="key=value", help="for example decoding.rule=opt"
    )
    sub.add_argument("--jsonl", action="store_true", help="one JSON object an answer instead of its text")
    sub.add_argument("--compare", action="store_true", help="then time the target alone on the same prompts")
    profiling.add_flag(sub)
    hosting.add(sub)
    sub.set_defaults(command=_generate)


def _generate(args: argparse.Namespace) -> None:
    from spec_cascades.config import Generate, load

    config, join = load(Generate, args.config, args.set), hosting.asked(args)
    prompts = _prompts(args) if join.alone else _met(args, config, join)
    with hosting.speaking(join):
        _answer(args, config, prompts)


def _answer(args: argparse.Namespace, config: Any, prompts: list[str]) -> None:
    from spec_cascades import prompting

    profiled = profiling.wrapped(args, config.models)
    if profiled:
        config = replace(config, refill=False)  # a batch that is refilled compiles as it goes
    engine = profiled or prompting.load(config)
    stream = prompting.Stream(_write) if config.decoding.batch_size == 1 and not args.jsonl else None
    watch = stream and (lambda answers: stream.grow(answers[0].text))
    totals = prompting.Totals()
    for batch in prompting.run(config, prompts, engine, watch):
        for row in batch.rows:
            if stream:
                stream.end(row["text"])
            else:
                print(json.dumps(row, ensure_ascii=False) if args.jsonl else row["text"], flush=True)
        totals.add(batch)
    print(totals.line(), file=sys.stderr)
    if args.compare:
        alone = prompting.Totals()
        target = replace(config, decoding=replace(config.decoding, method="target"))
        for batch in prompting.run(target, prompts, engine, stream and (lambda answers: None)):
            alone.add(batch)
        print(
            f"target alone: {alone.line()}; {alone.seconds / totals.seconds:.2f} times as long",
            file=sys.stderr,
        )
    profiling.show(profiled)


def _met(args: argparse.Namespace, config: Any, join: Any) -> list[str]:
    """Process 0's prompts, for all of one mesh to answer in step."""
    from spec_cascades import hosts
    from spec_cascades.hosts import running

    hosts.join(join)
    running.refuse_copies(config.models)
    with hosts.together():
        prompts = _prompts(args) if hosts.lead() else []
    return json.loads(hosts.share(json.dumps(prompts).encode()))


def _write(text: str) -> None:
    print(text, end="", flush=True)


def _prompts(args: argparse.Namespace) -> list[str]:
    from spec_cascades.config import ConfigError
    from spec_cascades.tasks.examples import read_prompts

    if args.prompts and args.file:
        raise ConfigError("give prompts as arguments or --file, not both")
    if args.file:
        prompts = read_prompts(args.file)
    else:
        prompts = [p for p in args.prompts or sys.stdin.read().split("\n") if p.strip()]
    if not prompts:
        raise ConfigError("no prompt: give some as arguments, with --file, or on stdin")
    return prompts
