"""Records as a sweep writes them, with figures that a test chooses."""

from dataclasses import asdict

from spec_cascades.config import Decoding, Models, Task, plain

EVERYDAY = Task("embedded:en-de-everyday")
VERSIONS = {"spec_cascades": "0.1.0", "jax": "0.10.2", "backend": "cpu", "device": "cpu"}


def made(name, score, relative, target=20.0, task=EVERYDAY, width=0.05, file="a.jsonl", line=1, **decoding):
    """A record of a point that takes `relative` of the target's 0.1 s; score None: nothing was scored."""
    d = Decoding(**{"temperature": 1.0, "alpha": 0.0, **decoding})
    drafts = d.method == "speculative"
    gap = None if score is None else score - target
    return {
        "name": name,
        "n_examples": 130,
        "quality": _quality(score),
        "rates": {
            "rejection_rate": 0.25 if drafts else None,
            "judged": [100, 60] if drafts else None,
            "acceptance_by_position": [0.6, 0.5] if drafts else None,
        },
        "tokens_per_target_call": 2.5 if drafts else 1.0,
        "target_calls": 5.0,
        "drafter_calls": 20.0,
        "latency": {"p50": 0.1 * relative, "mean": 0.1 * relative, "p90": 0.2 * relative},
        "answer_tokens": 12.0,
        "decoding": plain(d),
        "sampling": {"greedy": d.temperature == 0, "temperature": d.temperature},
        "seeds": {"first": 1, "last": 130, "rule": "seed + repeat * n + example"},
        "against_target": {
            "name": "target",
            "relative_seconds": relative,
            "relative_interval": [relative - width, relative + width],
            "score_difference": gap,
            "score_difference_interval": None if gap is None else [gap - 2, gap + 2],
        },
        "models": asdict(Models()),
        "task": asdict(task),
        "repeats": 1,
        "versions": VERSIONS,
        "source": {"file": file, "line": line},
    }


def _quality(score):
    if score is None:
        return {"metric": "none", "score": None, "interval": None, "why": "no reference"}
    return {"metric": "rouge2", "score": score, "interval": [score - 3, score + 3]}


def run(points, **shared):
    """Numbered records of (name, score, relative, decoding) behind the target alone's."""
    alone = shared.get("target", 20.0)
    first = ("target", alone if not shared.pop("unscored", False) else None, 1.0, {"method": "target"})
    return [
        made(name, score, relative, line=n, **shared, **decoding)
        for n, (name, score, relative, decoding) in enumerate([first, *points], 1)
    ]
