"""The command line: arguments to configurations, errors to one line and an exit code. Nobody imports it.

Exit codes: 0 done, 2 bad input (one line on stderr), 130 interrupted. Everything heavy is imported by the
command that needs it, so that --help is instant.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

TARGETS = "configuration keys are dotted: decoding.alpha=0.3, task.limit=20, points[0].gamma=[2,4]"


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.version:
        from importlib.metadata import version

        print(f"spec-cascades {version('spec-cascades')}")
        return 0
    if args.command is None:
        parser.error("a command is needed; --help lists them")
    try:
        args.command(args)
    except KeyboardInterrupt:
        print("spec-cascades: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    except (ValueError, FileNotFoundError, ModuleNotFoundError) as error:
        if args.traceback:
            raise
        print(f"spec-cascades: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spec-cascades", description="Speculative cascades in JAX.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument("--traceback", action="store_true", help="show where a bad-input error was raised")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(metavar="COMMAND")
    _add_generate(commands)
    for name, command, text in (
        ("evaluate", _evaluate, "one configuration to one record"),
        ("sweep", _sweep, "many decodings to records, resumable"),
        ("train", _train, "train a T5"),
        ("distill", _distill, "distil a drafter from a decoder-only target"),
    ):
        sub = commands.add_parser(name, help=text, description=f"{text}; {TARGETS}")
        if name in ("evaluate", "sweep"):
            _add_code_flag(sub)
            sub.add_argument(
                "config", nargs="?", metavar="CONFIG", help="a YAML file (or task=NAME output=DIR)"
            )
        else:
            sub.add_argument("config", metavar="CONFIG", help="a YAML file")
        sub.add_argument("overrides", nargs="*", metavar="key=value")
        sub.set_defaults(command=command)
    sub = commands.add_parser("report", help="records to a table, markdown, CSV and a plot")
    sub.add_argument("records", metavar="RUN_DIR_OR_RECORDS", type=Path)
    sub.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: beside the records)")
    sub.set_defaults(command=_report)
    sub = commands.add_parser("merge", help="the shards of a run (task.shard=i/n) to its records")
    sub.add_argument("out", metavar="OUT", type=Path, help="where records.jsonl is written")
    sub.add_argument("shards", metavar="RUN_DIR", type=Path, nargs="+", help="the run folder of each shard")
    _add_code_flag(sub)
    sub.set_defaults(command=_merge)
    _add_checkpoints(commands)
    _add_tasks(commands)
    sub = commands.add_parser("rules", help="the deferral rules and what their alpha means")
    sub.set_defaults(command=_rules)
    return parser


def _add_code_flag(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--allow-code-execution",
        action="store_true",
        help="run the programs that a model writes, behind a wall, to score coding tasks",
    )


def _add_tasks(commands: Any) -> None:
    text = "the data sets that task.name may name, and how each is asked and scored"
    sub = commands.add_parser("tasks", help=text, description=text)
    kinds = sub.add_subparsers(metavar="list|show", required=True)
    kinds.add_parser("list", help="one row a task").set_defaults(command=_tasks_list)
    show = kinds.add_parser("show", help="a task's prompts on an example, stop strings and scores")
    show.add_argument("name", metavar="NAME")
    show.add_argument("--path", help="a file in the published layout, whose first example is shown")
    show.add_argument("--shots-path", help="the training split, from which solved examples are drawn")
    show.set_defaults(command=_tasks_show)


def _add_checkpoints(commands: Any) -> None:
    text = "a model's sizes, ids and tokenizer, and whether a second one may draft for it"
    sub = commands.add_parser("inspect", help=text, description=text)
    sub.add_argument("target", metavar="REF", help="embedded:, hf://, pypi:, kaggle://, gs:// or a path")
    sub.add_argument("drafter", nargs="?", metavar="DRAFTER_REF")
    sub.set_defaults(command=_inspect)
    text = "rewrite a model, with its tokenizer, as a safetensors or Orbax folder"
    sub = commands.add_parser("convert", help=text, description=text)
    sub.add_argument("ref", metavar="REF")
    sub.add_argument("out", metavar="OUT", type=Path, help="a folder that is not there yet, or empty")
    sub.add_argument("--to", metavar="FORMAT", default="safetensors", help="safetensors (default) or orbax")
    sub.add_argument("--dtype", help="bfloat16 or float32 (default: what loses nothing)")
    sub.set_defaults(command=_convert)


def _add_generate(commands: Any) -> None:
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
    sub.set_defaults(command=_generate)


def _generate(args: argparse.Namespace) -> None:
    from spec_cascades import prompting
    from spec_cascades.config import Generate, load

    config = load(Generate, args.config, args.set)
    prompts = _prompts(args)
    engine = prompting.load(config)
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


def _evaluate(args: argparse.Namespace) -> None:
    from spec_cascades import config, evaluate, report

    asked = config.load(config.Evaluate, *_config(args))
    report.show([evaluate.run(asked, check=_check(args, asked.task))])
    print(f"record: {Path(asked.output) / 'records.jsonl'}", file=sys.stderr)


def _sweep(args: argparse.Namespace) -> None:
    from spec_cascades import config, report, sweep

    asked = config.load(config.Sweep, *_config(args))
    report.show(sweep.run(asked, check=_check(args, asked.task)))
    print(f"records: {Path(asked.output) / 'records.jsonl'}", file=sys.stderr)


def _merge(args: argparse.Namespace) -> None:
    from spec_cascades import merging, report

    task = merging.configuration(args.shards[0]).task
    report.show(merging.merge(args.shards, args.out, _check(args, task)))
    print(f"records: {args.out / 'records.jsonl'}", file=sys.stderr)


def _config(args: argparse.Namespace) -> tuple[str | None, list[str]]:
    """The configuration file, if one is given before the overrides, and the overrides."""
    if args.config is not None and "=" in args.config and not Path(args.config).exists():
        return None, [args.config, *args.overrides]
    return args.config, args.overrides


def _check(args: argparse.Namespace, task: Any) -> Any:
    """What runs generated programs, said before anything runs; None where nothing is to be run."""
    from spec_cascades.metrics import scoring
    from spec_cascades.tasks import registry

    if registry.metric_of(task) != "pass@1":
        return None
    if not args.allow_code_execution:
        print(
            f"spec-cascades: {scoring.NOT_RUN}; answers are kept, and scored once it is given",
            file=sys.stderr,
        )
        return None
    for sentence in scoring.unwalled():
        print(f"spec-cascades: {sentence}", file=sys.stderr)
    return scoring.check


def _tasks_list(args: argparse.Namespace) -> None:
    from spec_cascades.tasks import showing

    showing.table()


def _tasks_show(args: argparse.Namespace) -> None:
    from spec_cascades.tasks import showing

    print(showing.described(args.name, args.path, args.shots_path))


def _train(args: argparse.Namespace) -> None:
    from spec_cascades import train

    train.run(args.config, args.overrides)


def _distill(args: argparse.Namespace) -> None:
    from spec_cascades import distill

    print(distill.run(args.config, args.overrides))


def _report(args: argparse.Namespace) -> None:
    from spec_cascades import report, runlog

    records = runlog.read_records(args.records)
    report.show(records)
    folder = args.out or (args.records if args.records.is_dir() else args.records.parent)
    for path in report.write(records, folder):
        print(path)


def _inspect(args: argparse.Namespace) -> None:
    from spec_cascades import inspecting

    inspecting.show(args.target, args.drafter)


def _convert(args: argparse.Namespace) -> None:
    from spec_cascades.checkpoints.convert import convert

    print(convert(args.ref, args.out, args.to, args.dtype))


def _rules(args: argparse.Namespace) -> None:
    import math

    from rich.console import Console
    from rich.table import Table

    from spec_cascades.rules import RULES

    shown = lambda alpha: "-" if math.isnan(alpha) else f"{alpha:g}"
    table = Table("rule", "defers where", "lossless alpha", "draft-only alpha", "default alpha")
    for rule in RULES.values():
        alphas = (shown(a) for a in (rule.lossless, rule.draft_only, rule.default))
        table.add_row(rule.name, rule.about, *alphas)
    console = Console()
    if not console.is_terminal:
        console.width = 140  # a pipe has no width, and a wrapped formula cannot be read
    console.print(table, markup=False)


if __name__ == "__main__":
    sys.exit(main())
