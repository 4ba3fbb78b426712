"""How many drafts a row's next block proposes: gamma, what past blocks suggest, or while the drafter is sure.

Whatever the policy, the law of the text stays pi: it decides from what is past and from q, before a draft is
drawn, and where no draft is proposed the token comes from pi itself.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp

from spec_cascades.typing import Array, Bool, Float, Int


@runtime_checkable
class Lengths(Protocol):
    """How many drafts a row's next block proposes. It may look at what is past, never at a draw to come."""

    def begin(self, rows: int, gamma: int) -> Any:
        """The state before the first block, a pytree of [rows, ...] arrays."""

    def limit(self, own: Any, gamma: int) -> Int[Array, " b"] | int:
        """At most so many drafts, 0..gamma."""

    def sure(self, q_raw: Float[Array, "b v"]) -> Bool[Array, " b"]:
        """Whether a draft from this distribution is worth proposing."""

    def learn(self, own: Any, gamma: int, drafted: Int[Array, " b"], accepted: Int[Array, " b"]) -> Any:
        """The state after a block."""


@dataclass(frozen=True)
class Fixed:
    """gamma drafts a block."""

    def begin(self, rows: int, gamma: int) -> Any:
        return ()

    def limit(self, own: Any, gamma: int) -> int:
        return gamma

    def sure(self, q_raw: Array) -> Array:
        return jnp.ones(q_raw.shape[0], bool)

    def learn(self, own: Any, gamma: int, drafted: Array, accepted: Array) -> Any:
        return own


@dataclass(frozen=True)
class Adaptive:
    """Two drafts more after a block in which all stood, one fewer after another; 1..gamma, at first half.

    A block without drafts teaches nothing.
    """

    def begin(self, rows: int, gamma: int) -> Array:
        return jnp.full(rows, (gamma + 1) // 2, jnp.int32)

    def limit(self, own: Array, gamma: int) -> Array:
        return own

    def sure(self, q_raw: Array) -> Array:
        return jnp.ones(q_raw.shape[0], bool)

    def learn(self, own: Array, gamma: int, drafted: Array, accepted: Array) -> Array:
        changed = jnp.clip(jnp.where(accepted >= drafted, own + 2, own - 1), 1, gamma)
        return jnp.where(drafted > 0, changed, own)


@dataclass(frozen=True)
class Confident:
    """Drafts until the drafter's max q (temperature 1, unfiltered) falls below `threshold`, at most gamma.

    Raises ValueError for a threshold outside [0, 1].
    """

    threshold: float

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold {self.threshold} of the drafter's confidence must lie in 0..1")

    def begin(self, rows: int, gamma: int) -> Any:
        return ()

    def limit(self, own: Any, gamma: int) -> int:
        return gamma

    def sure(self, q_raw: Array) -> Array:
        return jnp.max(q_raw, axis=-1) >= self.threshold

    def learn(self, own: Any, gamma: int, drafted: Array, accepted: Array) -> Any:
        return own
