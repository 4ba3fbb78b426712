"""The command line: arguments to configurations, errors to one line and an exit code. Nobody imports it.

Exit codes: 0 done, 1 an audit found a violation, 2 bad input (one line on stderr), 75 another process of the
run is gone (start all again), 130 interrupted.
"""

import argparse
import os
import sys

from spec_cascades.commands import (
    checking,
    checkpoints,
    generate,
    plan,
    reproduce,
    rules,
    runs,
    simulate,
    tasks,
    trace,
    training,
    tune,
)
from spec_cascades.hosts import Lost

COMMANDS = (
    *(generate, trace, runs, reproduce, tune, simulate, plan),
    *(checking, training, checkpoints, tasks, rules),
)
"""In the order of --help."""


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
    _keep_what_compiles()
    try:
        return args.command(args) or 0
    except KeyboardInterrupt:
        print("spec-cascades: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    except Lost as error:
        print(f"spec-cascades: {error}", file=sys.stderr, flush=True)
        os._exit(75)  # by the front door jax would wait for the one that is gone, and abort with its stack
    except (ValueError, FileNotFoundError, ModuleNotFoundError) as error:
        if args.traceback:
            raise
        print(f"spec-cascades: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def _keep_what_compiles() -> None:
    """Where jax keeps compiled programs, it keeps all: most take less than the second that it asks for."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spec-cascades", description="Speculative cascades in JAX.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument("--traceback", action="store_true", help="show where a bad-input error was raised")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(metavar="COMMAND")
    for module in COMMANDS:
        module.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
