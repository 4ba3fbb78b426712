"""Sizes of T5 1.0, T5 1.1 and Flan-T5."""

from dataclasses import dataclass, replace

import jax


@dataclass(frozen=True)
class Config:
    """Sizes of one T5; `embeddings` rows of the table may exceed `vocab`, the ids its tokenizer knows."""

    vocab: int = 32_100
    embeddings: int = 32_128
    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 1024
    heads: int = 6
    encoder_layers: int = 8
    decoder_layers: int = 8
    gated: bool = True
    activation: str = "gelu"
    tied: bool = False
    buckets: int = 32
    max_distance: int = 128
    epsilon: float = 1e-6
    pad: int = 0
    eos: int = 1
    start: int = 0

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation {self.activation!r} is not one of {sorted(ACTIVATIONS)}")
        if not 0 < self.vocab <= self.embeddings:
            raise ValueError(f"vocab {self.vocab} must lie in 1..embeddings ({self.embeddings})")


ACTIVATIONS = {"relu": jax.nn.relu, "gelu": lambda x: jax.nn.gelu(x, approximate=True)}


def _presets() -> dict[str, Config]:
    old = Config(gated=False, activation="relu", tied=True)
    sizes_old = {
        "t5-small": dict(d_model=512, d_ff=2048, heads=8, encoder_layers=6, decoder_layers=6),
        "t5-base": dict(d_model=768, d_ff=3072, heads=12, encoder_layers=12, decoder_layers=12),
        "t5-large": dict(d_model=1024, d_ff=4096, heads=16, encoder_layers=24, decoder_layers=24),
        "t5-3b": dict(d_model=1024, d_kv=128, d_ff=16384, heads=32, encoder_layers=24, decoder_layers=24),
        "t5-11b": dict(d_model=1024, d_kv=128, d_ff=65536, heads=128, encoder_layers=24, decoder_layers=24),
    }
    sizes_new = {
        "small": dict(d_model=512, d_ff=1024, heads=6, encoder_layers=8, decoder_layers=8),
        "base": dict(d_model=768, d_ff=2048, heads=12, encoder_layers=12, decoder_layers=12),
        "large": dict(d_model=1024, d_ff=2816, heads=16, encoder_layers=24, decoder_layers=24),
        "xl": dict(d_model=2048, d_ff=5120, heads=32, encoder_layers=24, decoder_layers=24),
        "xxl": dict(d_model=4096, d_ff=10240, heads=64, encoder_layers=24, decoder_layers=24),
    }
    presets = {name: replace(old, **size) for name, size in sizes_old.items()}
    for family in ("t5-v1_1", "flan-t5"):
        presets |= {f"{family}-{name}": replace(Config(), **size) for name, size in sizes_new.items()}
    return presets


PRESETS = _presets()
"""Published sizes by the name their repositories carry (`google/t5-v1_1-small` -> `t5-v1_1-small`)."""
