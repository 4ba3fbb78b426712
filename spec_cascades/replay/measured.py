"""A replay's prices beside what a sweep measured on the same models, task and sampling."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from spec_cascades import runlog
from spec_cascades.checks import ConfigError
from spec_cascades.config import UNTUNED, Decoding, plain
from spec_cascades.replay.settings import Replay

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "logit_bias", "forbidden")
ENDS = ("max_new_tokens", "stop", "eos")
"""What must be alike for the two to speak of the same texts and distributions; seeds need not."""


def read(replay: Replay) -> dict[str, dict[str, Any]]:
    """The measured records by `key`. Raises ConfigError unless they are of the same models and task."""
    if replay.measured is None:
        return {}
    records = runlog.read_records(Path(replay.measured))
    for record in records:
        for part in ("models", "task"):
            own = plain(asdict(getattr(replay, part)))
            other = [name for name, value in own.items() if record[part].get(name) != value]
            if other:
                raise ConfigError(
                    f"measured: {replay.measured} was run with another {part}.{other[0]} "
                    f"({record[part].get(other[0])!r}, here {own[other[0]]!r})"
                )
    return {key(record["decoding"]): record for record in records}


def key(decoding: dict[str, Any] | Decoding) -> str:
    """Equal for decodings that price alike: method, rule, gamma, lengths, what is sampled, what ends."""
    d = plain(decoding) if isinstance(decoding, Decoding) else decoding
    alpha = None if d["rule"] in UNTUNED else float(d["alpha"])
    same = [d[name] for name in ("method", "rule", "gamma", "lengths", *SAMPLING, *ENDS)]
    return repr([alpha, *same])


def beside(price: dict[str, Any], record: dict[str, Any] | None) -> dict[str, Any] | None:
    """The measured figures and the estimate less each; None where nothing was measured."""
    if record is None:
        return None
    found = {
        "rejection_rate": record["rates"]["rejection_rate"],
        "tokens_per_target_call": record["tokens_per_target_call"],
    }
    gaps = {name: price[name] - value for name, value in found.items() if value is not None}
    return {"name": record["name"], **found, "difference": gaps}
