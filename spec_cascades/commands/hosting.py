"""What commands that run over many processes take: how they find each other."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from spec_cascades.hosts.joining import HEARTBEAT, HOW, Join


def add(sub: argparse.ArgumentParser) -> None:
    """--distributed and what goes with it."""
    group = sub.add_argument_group("many processes", "the same command in each; see docs/hosts.md")
    group.add_argument(
        "--distributed",
        choices=HOW,
        default="none",
        help="auto: jax finds the others (Cloud TPU slice, SLURM, Open MPI); default none",
    )
    group.add_argument(
        "--coordinator", metavar="HOST:PORT", help="the address of process 0, where none finds it"
    )
    group.add_argument("--processes", type=int, metavar="N", help="with --coordinator: how many there are")
    group.add_argument("--process", type=int, metavar="I", help="with --coordinator: which this is, from 0")
    group.add_argument(
        "--heartbeat",
        type=int,
        default=HEARTBEAT,
        metavar="SECONDS",
        help=f"after so long without a sign of life a process is dead, and all stop (default {HEARTBEAT})",
    )


def asked(args: argparse.Namespace) -> Join:
    """What the flags say. Raises ConfigError for flags that do not go together."""
    return Join(args.distributed, args.coordinator, args.processes, args.process, args.heartbeat)


def run(join: Join) -> Any:
    """`sweep.run`, or the one for many processes, once they have met."""
    from spec_cascades import hosts, sweep
    from spec_cascades.hosts import running

    hosts.join(join)
    return sweep.run if join.alone else running.run


@contextmanager
def leading(join: Join) -> Iterator[bool]:
    """Whether this process is the one that shows what was found. The others stay: who leaves ends the run."""
    from spec_cascades import hosts

    if join.alone:
        yield True
        return
    with hosts.together():
        yield hosts.lead()


@contextmanager
def speaking(join: Join) -> Iterator[None]:
    """What is printed inside, where all answer in step, is printed once, by process 0."""
    from spec_cascades import hosts

    # Not `leading`: a process that fails amid the others' collectives must go, and they with it.
    if join.alone or hosts.lead():
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield
