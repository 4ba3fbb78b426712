"""`--profile DIR` of the commands that decode."""

import argparse
import sys
from pathlib import Path
from typing import Any

HELP = "trace one more run of each decoding's first timed batch, for TensorBoard or Perfetto; print its time"


def add_flag(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--profile", type=Path, metavar="DIR", help=HELP)


def wrapped(args: argparse.Namespace, models: Any) -> Any:
    """The engine of the models under the profiler; None where no profile is asked for."""
    if args.profile is None:
        return None
    from spec_cascades.engine import engine_of
    from spec_cascades.profiling import Profiled

    return Profiled(engine_of(models), args.profile)


def show(profiled: Any) -> None:
    """The tables of what this process traced, on stderr, and where the traces are."""
    if profiled is None:
        return
    from spec_cascades.hosts import gathering
    from spec_cascades.profiling import scopes

    i, n = gathering.place()
    if not profiled.folders:
        print(
            "spec-cascades: --profile: every batch was done already, so nothing was traced", file=sys.stderr
        )
    for name, folder in profiled.folders.items():
        ops = scopes.read(folder)
        scopes.show(f"{name}, process {i} of {n}" if n > 1 else name, ops)
        print(f"trace: {folder} and {scopes.write(folder, ops)}", file=sys.stderr)
