"""`plan`: whether a pair fits a mesh of chips, and how fast each method should run there."""

import argparse
import json
from typing import Any


def add(commands: Any) -> None:
    text = "memory, call times and each method's speed-up for a pair on a mesh of chips, before anything runs"
    keys = "keys are dotted: models.target=gemma-2-9b chip=v5e mesh.model=4 assumed.lossless=0.7"
    runs = "CONFIG may also be what generate, evaluate, sweep or reproduce is run with"
    sub = commands.add_parser("plan", help="will a pair fit, and pay", description=f"{text}; {keys}; {runs}")
    sub.add_argument("config", nargs="?", metavar="CONFIG", help="a YAML or gin file: of a plan, or of a run")
    sub.add_argument("overrides", nargs="*", metavar="key=value")
    sub.add_argument("--record", metavar="RUN_DIR_OR_RECORDS", help="print its measured speed-ups beside")
    sub.add_argument("--measure", action="store_true", help="chip=cpu: measure this machine's peaks first")
    sub.add_argument("--chips", nargs="+", metavar="CHIP", help="one markdown table with a row for each")
    sub.add_argument("--json", action="store_true", help="one JSON object, in seconds and bytes")
    sub.set_defaults(command=_plan)


def _plan(args: argparse.Namespace) -> None:
    from spec_cascades import planning
    from spec_cascades.commands import shared
    from spec_cascades.planning import table

    path, overrides = shared.config(args)
    overrides = overrides + [f"record={args.record}"] * bool(args.record)
    chips = args.chips or ["cpu"] * args.measure
    each = [[f"chip={chip}"] for chip in chips] or [[]]
    cases = [case for more in each for case in planning.read(path, [*overrides, *more])]
    plans = [planning.run(case.plan) for case in cases]
    if args.chips or len(plans) > 1:
        names = [case.name for case in cases]
        print(json.dumps([p.as_json() for p in plans]) if args.json else table.chips(plans, names))
    elif args.json:
        print(json.dumps(plans[0].as_json()))
    else:
        table.show(plans[0], cases[0].batches)
