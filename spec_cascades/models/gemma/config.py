"""Sizes of the Gemmas, the published ones by name."""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Config:
    """Sizes of one Gemma; `embeddings` rows of the table may exceed `vocab`, the ids its tokenizer knows.

    generation: 1, 2 (norms after attention and feed-forward too) or 3 (also norms of queries and keys).
    pattern: every pattern-th layer is global, the others see `window` tokens, themselves included.
    query_scalar: scores are divided by its square root. rope_base, rope_scale (divides positions): of global
    layers; local_rope_base: of the others. eos: ids that end an answer, `<end_of_turn>` among them if tuned.
    context: how many tokens the model was made to see; no layer reads it.
    """

    generation: int = 1
    vocab: int = 256_000
    embeddings: int = 256_000
    d_model: int = 3072
    head_dim: int = 256
    d_ff: int = 24_576
    heads: int = 16
    kv_heads: int = 16
    layers: int = 28
    pattern: int = 1
    window: int = 4096
    query_scalar: int = 256
    attention_softcap: float | None = None
    final_softcap: float | None = None
    rope_base: float = 10_000.0
    rope_scale: float = 1.0
    local_rope_base: float = 10_000.0
    epsilon: float = 1e-6
    pad: int = 0
    eos: tuple[int, ...] = (1,)
    bos: int = 2
    context: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.generation not in (1, 2, 3):
            raise ValueError(f"generation {self.generation!r} is not one of [1, 2, 3]")
        if not 0 < self.vocab <= self.embeddings:
            raise ValueError(f"vocab {self.vocab} must lie in 1..embeddings ({self.embeddings})")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads ({self.kv_heads})")

    def local(self, layer: int) -> bool:
        """Whether a layer sees the window only."""
        return (layer + 1) % self.pattern != 0


def _presets() -> dict[str, Config]:
    two = replace(Config(generation=2, pattern=2), attention_softcap=50.0, final_softcap=30.0)
    three = Config(generation=3, vocab=262_144, embeddings=262_144, pattern=6, window=512, rope_base=1e6)
    # The models that also see images have 64 more rows, one of them for an image's place.
    seeing = replace(three, embeddings=262_208, window=1024, rope_scale=8.0)
    size = lambda base, m, ff, n, h, l, d=256, scalar=256: replace(
        base, d_model=m, d_ff=ff, heads=n, kv_heads=h, layers=l, head_dim=d, query_scalar=scalar
    )
    return {
        "gemma-2b": size(Config(), 2048, 16_384, 8, 1, 18),
        "gemma-7b": size(Config(), 3072, 24_576, 16, 16, 28),
        "gemma-2-2b": size(two, 2304, 9216, 8, 4, 26),
        "gemma-2-9b": size(two, 3584, 14_336, 16, 8, 42),
        "gemma-2-27b": size(two, 4608, 36_864, 32, 16, 46, 128, 144),
        "gemma-3-270m": size(three, 640, 2048, 4, 1, 18),
        "gemma-3-1b": size(three, 1152, 6912, 4, 1, 26),
        "gemma-3-4b": size(seeing, 2560, 10_240, 8, 4, 34),
        "gemma-3-12b": size(seeing, 3840, 15_360, 16, 8, 48),
        "gemma-3-27b": size(seeing, 5376, 21_504, 32, 16, 62, 128, 168),
    }


PRESETS = _presets()
"""Published sizes by the name their repositories carry, less `-pt` and `-it` (`google/gemma-3-4b-it`)."""
