"""What answers cost in time and in memory traffic, from the lines of a log. Imports no jax.

A log of an earlier version lacks some of it: what not every line tells is left out, and is not 0.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

Line = dict[str, Any]
"""One batch of one point."""
LEVELS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def spread(values: Sequence[float]) -> dict[str, float]:
    """The mean and the percentiles of `LEVELS`."""
    each = np.asarray(values, np.float64)
    levels = zip(LEVELS, np.quantile(each, list(LEVELS.values())), strict=True)
    return {"mean": float(each.mean())} | {name: float(value) for name, value in levels}


def latency(batches: Sequence[Line], tokens: int) -> dict[str, float]:
    """Seconds an answer took; every answer of a batch waits for the whole batch."""
    each = [b["seconds"] for b in batches for _ in b["answers"]]
    spent = sum(b["seconds"] for b in batches)
    return spread(each) | {"total": spent, "tokens_per_second": tokens / spent}


def lengths(batches: Sequence[Line]) -> dict[str, float]:
    """Tokens of an answer."""
    return spread([len(a["tokens"]) for b in batches for a in b["answers"]])


def first_token(batches: Sequence[Line]) -> dict[str, Any]:
    """time_to_first_token and time_per_output_token, in seconds; {} where a line does not tell the first.

    To the first token: from the prompt to the end of the block that brings it, prefill included, measured in
    a run of its own right after the answer's, in the first repeat only. Of a sequence cascade's answer: until
    its text is final, which is the drafter's stage where it is kept, the wait for the target's first tokens
    where it is deferred.

    Per output token: (seconds of the answer - seconds to the first token) / (tokens - 1), at least 0; answers
    of one token are left out. Where an answer was in a batch, its seconds are the batch's.
    """
    batches = [b for b in batches if b["repeat"] == 0]
    if not batches or any(b.get("first_seconds") is None for b in batches):
        return {}
    first = [seconds for b in batches for seconds in b["first_seconds"]]
    rest = [
        max(0.0, b["seconds"] - seconds) / (len(a["tokens"]) - 1)
        for b in batches
        for seconds, a in zip(b["first_seconds"], b["answers"], strict=True)
        if len(a["tokens"]) > 1
    ]
    return {"time_to_first_token": spread(first)} | ({"time_per_output_token": spread(rest)} if rest else {})


def traffic(batches: Sequence[Line]) -> dict[str, float]:
    """gbytes_per_answer: calls * bytes_per_call, summed over batches and models / answers; {} if untold.

    bytes_per_call: the weights of the decoder and the cache of the batch as it lies in memory, both read once
    a call (`engine`); activations and the reading of prompts are left out. calls: of the row that needed
    most, since rows share calls; a token cascade's rows may need theirs at different steps, so for it this is
    the least that a batch of several reads.
    """
    if not batches or any(b.get("bytes_per_call") is None for b in batches):
        return {}
    calls = lambda batch, role: max(a[f"{role}_calls"] for a in batch["answers"])
    read = sum(calls(b, role) * n for b in batches for role, n in b["bytes_per_call"].items())
    return {"gbytes_per_answer": read / 1e9 / sum(len(b["answers"]) for b in batches)}
