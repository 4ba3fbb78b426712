"""`simulate`: latency and cost under load, from measured call times and a run's log."""

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    text = "latency and cost against the request rate, from measured call times and a run's log"
    sub = commands.add_parser("simulate", help=text, description=f"{text}; keys are dotted: bursts.factor=8")
    sub.add_argument("config", metavar="CONFIG", help="a YAML file")
    sub.add_argument("overrides", nargs="*", metavar="key=value")
    sub.set_defaults(command=_simulate)


def _simulate(args: argparse.Namespace) -> None:
    from spec_cascades import config, simulate

    asked = config.load(simulate.Simulate, args.config, args.overrides)
    result = simulate.run(asked)
    simulate.show(result)
    for path in simulate.write(result, Path(asked.output)):
        print(path)
