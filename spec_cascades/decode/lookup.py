"""Prompt lookup: drafts copied from the row's own prompt and text, without a second model (Saxena, 2023)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from spec_cascades.cache import Cache
from spec_cascades.decode.drafting import Proposal
from spec_cascades.decode.loop import LM, Request, View
from spec_cascades.finding import behind, followed
from spec_cascades.typing import Array, Int, Params
from spec_cascades.verify import Noise


@dataclass(frozen=True)
class Lookup:
    """Proposes what followed the last n tokens where they occurred before, n <= `longest` as long as can be.

    Of several occurrences the newest counts. A draft is text to the look-up of the next, so that q depends on
    the text alone: where a block began and how long it is changes no law. q is one-hot at the draft, whatever
    the temperature and the filters; where nothing is found there is no q, and the law is

        pi = the rule's pi(one-hot q, p) where a draft is found, p where none is.

    An id that the request forbids (a bias of -inf) is not found; other edits change p alone. `vocab`: the
    target's width. Raises ValueError for longest < 1.
    """

    vocab: int
    longest: int = 3

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise ValueError(f"longest {self.longest} must be at least 1 token")

    @property
    def models(self) -> Mapping[str, LM]:
        return {}

    def propose(
        self,
        params: Mapping[str, Params],
        noise: Noise,
        view: View,
        caches: Mapping[str, Cache],
        request: Request,
        limit: Int[Array, " b"],
        sure: Callable[[Array], Array],
    ) -> Proposal:
        w = noise.draft.shape[1]
        allowed = None if request.edits is None else request.edits.bias > -jnp.inf

        def one(now: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            text, length = now
            token, run = followed(text, length, self.longest, allowed)
            longer = jnp.where(jnp.arange(text.shape[1]) == length[:, None], token[:, None], text)
            return (longer, length + 1), (token, run > 0)

        _, results = lax.scan(one, whole_text(view, w), None, length=w)
        drafts, found = (jnp.moveaxis(x, 0, 1) for x in results)
        q = jax.nn.one_hot(drafts, self.vocab)
        within = jnp.arange(w) < jnp.minimum(limit, w - 1)[:, None]
        going = found & within & jax.vmap(sure, 1, 1)(q)
        drafted = jnp.sum(jnp.cumprod(going.astype(jnp.int32), axis=1), axis=1)
        return Proposal(drafts, drafted, q, q, {}, {}, ~found)


def whole_text(view: View, spare: int) -> tuple[Int[Array, "b l"], Int[Array, " b"]]:
    """Prompt and text in one buffer with `spare` free slots, and their length.

    A decoder-only model's unread token is the prompt's last, which counts once; an encoder-decoder's start
    symbol stands between source and answer, so that no n-gram runs across.
    """
    final = jnp.take_along_axis(view.prompt, view.prompt_length[:, None] - 1, axis=1)[:, 0]
    before = view.prompt_length - (final == view.text[:, 0])
    return behind(view.prompt, before, view.text, spare), before + view.emitted + 1
