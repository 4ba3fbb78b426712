"""`trace`: who wrote each token of one answer."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

EXAMPLE = "My name is Tom. What is your name?"
EXAMPLE_RULE = ("decoding.rule=v3", "decoding.alpha=0.7")
"""Two right answers worded differently: the target's "Ich heiße Tom", the drafter's "Mein Name ist Tom"."""


def add(commands: Any) -> None:
    text = (
        "one prompt answered by the target alone, by lossless speculation and as configured: who wrote each "
        "token, with q, p and the rule's verdict"
    )
    sub = commands.add_parser("trace", help="who wrote each token of one answer", description=text)
    sub.add_argument("prompt", nargs="?", default=EXAMPLE, metavar="PROMPT", help=f"by default {EXAMPLE!r}")
    sub.add_argument(
        "--config", metavar="CONFIG", help="a YAML file as for generate (default: the embedded pair)"
    )
    sub.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="key=value",
        help="for example decoding.rule=opt; models.dtype=bfloat16 traces in the dtype that answers faster",
    )
    sub.add_argument("--out", type=Path, metavar="FILE.html", help="write a page, too: one file, no network")
    sub.set_defaults(command=_trace)


def _trace(args: argparse.Namespace) -> None:
    import sys

    from spec_cascades import prompting
    from spec_cascades.config import ConfigError, Generate, load, told
    from spec_cascades.trace import page, running, terminal
    from spec_cascades.trace.showing import Settings

    if not args.prompt.strip():
        raise ConfigError("no prompt: give one as the argument")
    # In float32 whatever the file says: the figures are then those of the decode, bit for bit or nearly.
    given = [] if args.config else EXAMPLE_RULE
    config = load(Generate, args.config, ["models.dtype=float32", *given, *args.set])
    running.check(config.models)
    text, decoding, models = config.prefix + args.prompt, config.decoding, config.models
    traces = running.traces(prompting.load(config), text, decoding)
    settings = Settings(
        text,
        models.target,
        models.drafter,
        told(asdict(models)),
        decoding.temperature,
        decoding.gamma,
        decoding.seed,
        bool(decoding.top_k or decoding.top_p < 1 or decoding.min_p),
    )
    terminal.show(traces, settings)
    if args.out:
        page.write(args.out, traces, settings)
        print(f"page: {args.out}", file=sys.stderr)
