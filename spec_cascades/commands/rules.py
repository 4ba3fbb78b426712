"""`rules`: the deferral rules as a table."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    sub = commands.add_parser("rules", help="the deferral rules and what their alpha means")
    sub.set_defaults(command=_rules)


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
