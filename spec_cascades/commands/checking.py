"""`replay` and `audit`: rules priced along stored texts; an engine's output held against its law."""

import argparse
import sys
from pathlib import Path
from typing import Any

from spec_cascades.commands import shared


def add(commands: Any) -> None:
    for name, command, text in (
        ("replay", _replay, "store q and p along texts once, then price any rule and alpha from the store"),
        (
            "audit",
            _audit,
            "check by sampling that answers follow pi, and greedy ones exactly (exit code 1: no)",
        ),
    ):
        sub = commands.add_parser(name, help=text, description=f"{text}; {shared.TARGETS}")
        sub.add_argument("config", nargs="?", metavar="CONFIG", help="a YAML file (or key=value alone)")
        sub.add_argument("overrides", nargs="*", metavar="key=value")
        sub.set_defaults(command=command)


def _replay(args: argparse.Namespace) -> None:
    from spec_cascades import config, replay
    from spec_cascades.replay import settings, table

    asked = config.load(settings.Replay, *shared.config(args))
    table.show(replay.run(asked))
    print(f"prices: {Path(asked.output) / replay.PRICES}", file=sys.stderr)


def _audit(args: argparse.Namespace) -> int:
    from spec_cascades import audit, config
    from spec_cascades.audit import settings, table

    asked = config.load(settings.Audit, *shared.config(args))
    findings = audit.run(asked)
    table.show(findings)
    return 0 if all(finding["passed"] for finding in findings) else 1
