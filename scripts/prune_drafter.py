"""A distilled drafter that proposes fewer ids: those its target's answers hold most often. No training.

    python scripts/prune_drafter.py DRAFTER OUT 4096 OUT/answers/KEY-N/examples.jsonl ...

The head is a large part of a small drafter's call, and rare ids are seldom proposed. The answers are those of
a distillation (`spec-cascades distill`).
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from spec_cascades.checkpoints import drafter, load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("drafter", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("ids", type=int)
    parser.add_argument("answers", type=Path, nargs="+")
    a = parser.parse_args()
    target = drafter.target_of(a.drafter)
    settings, trunk, ids = drafter.stored(a.drafter, load(target).config, "bfloat16")
    if ids is None or not 0 < a.ids < len(ids):
        known = "all ids" if ids is None else f"{len(ids)} ids"
        parser.error(f"{a.drafter} proposes {known}: {a.ids} of them cannot be kept")
    lines = [json.loads(line) for path in a.answers for line in path.read_text("utf-8").splitlines()]
    count = np.bincount(np.concatenate([line["ids"] for line in lines]), minlength=max(ids) + 1)[ids]
    kept = np.sort(ids[np.argsort(-count, kind="stable")[: a.ids]])
    drafter.save(a.out, target, replace(settings, vocabulary=len(kept)), trunk, kept)
    print(f"{a.out}: {len(kept)} ids, {np.isin(ids, kept) @ count / count.sum():.4f} of the answers' tokens")


if __name__ == "__main__":
    main()
