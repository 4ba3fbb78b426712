"""`evaluate`, `sweep`, `merge` and `report`: configurations to records, records to tables and plots."""

import argparse
import sys
from pathlib import Path
from typing import Any

from spec_cascades.commands import hosting, profiling, shared


def add(commands: Any) -> None:
    for name, command, text in (
        ("evaluate", _evaluate, "one configuration to one record"),
        ("sweep", _sweep, "many decodings to records, resumable"),
    ):
        sub = commands.add_parser(name, help=text, description=f"{text}; {shared.TARGETS}")
        shared.add_config(sub)
        profiling.add_flag(sub)
        hosting.add(sub)
        sub.set_defaults(command=command)
    text = "records to a page, tables (markdown, CSV, LaTeX) and plots"
    sub = commands.add_parser("report", help=text, description=f"{text}; several runs: several tasks")
    sub.add_argument("records", metavar="RUN_DIR_OR_RECORDS", type=Path, nargs="+")
    sub.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: beside the records)")
    sub.set_defaults(command=_report)
    sub = commands.add_parser("merge", help="the shards of a run (task.shard=i/n) to its records")
    sub.add_argument("out", metavar="OUT", type=Path, help="where records.jsonl is written")
    sub.add_argument("shards", metavar="RUN_DIR", type=Path, nargs="+", help="the run folder of each shard")
    shared.add_code_flag(sub)
    sub.set_defaults(command=_merge)


def _evaluate(args: argparse.Namespace) -> None:
    from spec_cascades import config

    _run(args, config.as_sweep(config.load(config.Evaluate, *shared.config(args))), "record")


def _sweep(args: argparse.Namespace) -> None:
    from spec_cascades import config

    _run(args, config.load(config.Sweep, *shared.config(args)), "records")


def _run(args: argparse.Namespace, asked: Any, what: str) -> None:
    from spec_cascades import report

    join, check = hosting.asked(args), shared.check(args, asked.task)
    run = hosting.run(join)
    engine = profiling.wrapped(args, asked.models)
    records = run(asked, engine, check)
    with hosting.leading(join) as leads:
        if leads:
            report.show(records)
            profiling.show(engine)
            print(f"{what}: {Path(asked.output) / 'records.jsonl'}", file=sys.stderr)


def _merge(args: argparse.Namespace) -> None:
    from spec_cascades import merging, report

    task = merging.configuration(args.shards[0]).task
    report.show(merging.merge(args.shards, args.out, shared.check(args, task)))
    print(f"records: {args.out / 'records.jsonl'}", file=sys.stderr)


def _report(args: argparse.Namespace) -> None:
    from spec_cascades import report
    from spec_cascades.checks import ConfigError
    from spec_cascades.report import runs

    first = args.records[0]
    if args.out is None and len(args.records) > 1:
        raise ConfigError("--out: missing; several runs have no folder in common: say where to write")
    records = runs.read(args.records)
    report.show(records)
    folder = args.out or (first if first.is_dir() else first.parent)
    for path in report.publish(records, folder, _command(args)):
        print(path)


def _command(args: argparse.Namespace) -> str:
    import shlex

    out = ["--out", str(args.out)] if args.out else []
    return shlex.join(["spec-cascades", "report", *map(str, args.records), *out])
