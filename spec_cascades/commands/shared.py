"""What several commands take: a configuration with overrides, and leave to run generated code."""

import argparse
import sys
from pathlib import Path
from typing import Any

TARGETS = "configuration keys are dotted: decoding.alpha=0.3, task.limit=20, points[0].gamma=[2,4]"


def add_config(sub: argparse.ArgumentParser) -> None:
    """CONFIG, key=value overrides, and leave to run generated code."""
    add_code_flag(sub)
    sub.add_argument(
        "config", nargs="?", metavar="CONFIG", help="a YAML or gin file (or task=NAME output=DIR)"
    )
    sub.add_argument("overrides", nargs="*", metavar="key=value")


def add_code_flag(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--allow-code-execution",
        action="store_true",
        help="run the programs that a model writes, behind a wall, to score coding tasks",
    )


def config(args: argparse.Namespace) -> tuple[str | None, list[str]]:
    """The configuration file, if one is given before the overrides, and the overrides."""
    if args.config is not None and "=" in args.config and not Path(args.config).exists():
        return None, [args.config, *args.overrides]
    return args.config, args.overrides


def check(args: argparse.Namespace, task: Any) -> Any:
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
