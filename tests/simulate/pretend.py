"""Call times that nobody measured, round enough to reckon with."""

LOOPS = {
    "target": (10.0, 4.0),
    "drafter": (3.0, 0.5),
    "lossless": (12.0, 8.0),
    "cascade": (13.0, 9.0),
    "token_kept": (11.0, 0.6),
    "token_deferred": (18.4, 7.0),
    "sequence_kept": (4.0, 0.55),
    "sequence_deferred": (15.0, 4.75),
}
"""(first, step) at batch 1, in ms; each row more adds a tenth."""


def by_batch(ms, batches=(1, 4, 8)):
    return [1e-3 * ms * (1 + 0.1 * (b - 1)) for b in batches]


def record():
    """A record as scripts/call_times.py writes it, gamma 4, batches 1, 4 and 8."""
    models = {"target": "embedded:en-de-target", "drafter": "embedded:en-de-drafter", "dtype": "bfloat16"}
    return {
        "models": models,
        "gamma": 4,
        "tokens": 12,
        "cores": 1,
        "batches": [1, 4, 8],
        "prefill": {"target": by_batch(2.0), "drafter": by_batch(1.0)},
        "calls": {
            "target": {str(k): by_batch(3.0 + 0.1 * k) for k in (1, 2, 3, 4, 5, 8)},
            "drafter": {"1": by_batch(0.4), "2": by_batch(0.5)},
        },
        "first": {name: by_batch(first) for name, (first, _) in LOOPS.items()},
        "step": {name: by_batch(step) for name, (_, step) in LOOPS.items()},
    }
