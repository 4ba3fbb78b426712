"""`train` and `distill`."""

import argparse
from typing import Any

from spec_cascades.commands import shared


def add(commands: Any) -> None:
    for name, command, text in (
        ("train", _train, "train a T5"),
        ("distill", _distill, "distil a drafter from a decoder-only target"),
    ):
        sub = commands.add_parser(name, help=text, description=f"{text}; {shared.TARGETS}")
        sub.add_argument("config", metavar="CONFIG", help="a YAML file")
        sub.add_argument("overrides", nargs="*", metavar="key=value")
        sub.set_defaults(command=command)


def _train(args: argparse.Namespace) -> None:
    from spec_cascades import train

    train.run(args.config, args.overrides)


def _distill(args: argparse.Namespace) -> None:
    from spec_cascades import distill

    print(distill.run(args.config, args.overrides))
