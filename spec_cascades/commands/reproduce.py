"""`reproduce`: a table or figure of the paper from one file."""

import argparse
import sys
from pathlib import Path
from typing import Any

from spec_cascades.commands import hosting, shared


def add(commands: Any) -> None:
    text = "run the sweeps of a table or figure, resumable, and print it in the paper's layout"
    sub = commands.add_parser("reproduce", help=text, description=f"{text}; {shared.TARGETS}")
    shared.add_code_flag(sub)
    sub.add_argument(
        "config", metavar="CONFIG", help="a YAML or gin file, for example configs/paper/table2.yaml"
    )
    sub.add_argument("overrides", nargs="*", metavar="key=value")
    sub.add_argument("--dry-run", action="store_true", help="print what would run, its memory and its time")
    sub.add_argument(
        "--measured",
        type=Path,
        metavar="RUN_DIR_OR_RECORDS",
        help="with --dry-run: take times from these records, not from a chip's peaks",
    )
    sub.add_argument("--report", action="store_true", help="print what is finished; run nothing")
    hosting.add(sub)
    sub.set_defaults(command=_reproduce)


def _reproduce(args: argparse.Namespace) -> None:
    from spec_cascades.config import ConfigError, load
    from spec_cascades.reproduce import Experiment, running

    if args.measured and not args.dry_run:
        raise ConfigError("--measured is for the times of --dry-run")
    join = hosting.asked(args)
    if not join.alone and (args.dry_run or args.report):
        raise ConfigError("--dry-run and --report run nothing: one process is enough")
    experiment = load(Experiment, args.config, args.overrides)
    if args.dry_run:
        return _dry(args, experiment)
    check = _check(args, experiment)
    if not args.report:
        running.run(experiment, check=check, each=hosting.run(join))
    with hosting.leading(join) as leads:
        for path in running.show(experiment, check) if leads else []:
            print(path, file=sys.stderr)


def _dry(args: argparse.Namespace, experiment: Any) -> None:
    from spec_cascades import runlog
    from spec_cascades.reproduce import dry

    records = runlog.read_records(args.measured) if args.measured else []
    plans = dry.plan(experiment, records)
    print(dry.text(experiment, plans, args.measured and str(args.measured)))


def _check(args: argparse.Namespace, experiment: Any) -> Any:
    """What scores coding tasks, where a column has one and its user allows it."""
    from spec_cascades.reproduce import columns
    from spec_cascades.tasks import registry

    tasks = [column.sweep.task for column in columns(experiment)]
    return shared.check(args, next((t for t in tasks if registry.metric_of(t) == "pass@1"), tasks[0]))
