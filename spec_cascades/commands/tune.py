"""`tune`: the setting that meets a demand on quality or time, as a configuration."""

import argparse
import sys
from pathlib import Path
from typing import Any

from spec_cascades.commands import shared

FILE = "tuned.yaml"


def add(commands: Any) -> None:
    text = "rule, alpha and gamma for a demand on quality or time, confirmed on held-out examples"
    after = (
        f"{text}; OUT/{FILE} is for generate --config and evaluate. Exit code 1: no setting meets the demand"
    )
    after += f", or the chosen one is not confirmed; no {FILE} is left then"
    sub = commands.add_parser("tune", help="choose a setting by a demand", description=after)
    shared.add_config(sub)
    sub.set_defaults(command=_tune)


def _tune(args: argparse.Namespace) -> None:
    from spec_cascades import config, merging, tuning
    from spec_cascades.runlog import write_atomically
    from spec_cascades.tuning import showing
    from spec_cascades.tuning.settings import Tune

    asked = config.load(Tune, *shared.config(args))
    path = Path(asked.output) / FILE
    task = asked.task or merging.configuration(Path(asked.records)).task
    tuned = tuning.run(asked, check=shared.check(args, task))
    print(showing.table(tuned))
    print(showing.verdict(tuned))
    if not tuned.succeeded:
        path.unlink(missing_ok=True)
        raise SystemExit(1)
    write_atomically(path, showing.configuration(tuned))
    print(f"configuration: {path}", file=sys.stderr)
