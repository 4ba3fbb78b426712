"""The drafter as parameters: a small trunk of the target's family between the target's own table and head."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spec_cascades.checkpoints.tree import flatten
from spec_cascades.distill.settings import Drafter
from spec_cascades.models import gemma, llama
from spec_cascades.models.subset import Subset, places
from spec_cascades.typing import Array, Params

LAYER = re.compile(r"layers?_(\d+)")
TABLE, HEAD = "embedder", "logits_dense"
"""What is the target's and not trained."""


@dataclass(frozen=True)
class Kind:
    """What distillation needs of a family: LM, random parameters, forward pass, the table's name."""

    lm: Callable[[Any], Any]
    init: Callable[..., Params]
    forward: Callable[..., Array]
    table: str


KINDS = {
    llama.Config: Kind(llama.Llama, llama.init, llama.forward, "embedding"),
    gemma.Config: Kind(gemma.Gemma, gemma.init, gemma.forward, "input_embedding"),
}


def kind_of(config: Any) -> Kind:
    """The family of a target's Config; ValueError for one that cannot be distilled from here."""
    if type(config) not in KINDS:
        raise ValueError(
            f"{type(config).__module__} is not decoder-only; a T5 drafter is made by `spec-cascades train`"
        )
    return KINDS[type(config)]


def config_of(config: Any, drafter: Drafter, ids: np.ndarray | None) -> Any:
    """The student's Config: the target's with fewer layers and, of `ids`, as many logits.

    ValueError for more layers than the target has.
    """
    if drafter.layers > config.layers:
        raise ValueError(f"drafter.layers {drafter.layers}: the target has {config.layers}")
    small = replace(config, layers=drafter.layers)
    if drafter.d_ff is not None:
        small = replace(small, d_ff=drafter.d_ff)
    return small if ids is None else replace(small, vocab=len(ids), embeddings=len(ids))


def trunk(params: Params, config: Any, drafter: Drafter, key: Array) -> Params:
    """What is trained, float32: the first layers and the final norm of the target, or random layers."""
    kind, small = kind_of(config), config_of(config, drafter, None)
    names = [n for n in params if (m := LAYER.fullmatch(n)) and int(m[1]) < drafter.layers]
    norms = [n for n in params if n not in (TABLE, HEAD) and not LAYER.fullmatch(n)]
    source = params if drafter.trunk == "first" else kind.init(key, small)
    taken = {n: source[n] for n in names} | {n: params[n] for n in norms}
    return jax.tree.map(lambda x: x.astype(jnp.float32), taken)


def shapes(config: Any, drafter: Drafter) -> dict[str, tuple[int, ...]]:
    """Shapes of the trunk's leaves by slash-joined path."""
    kind, small = kind_of(config), config_of(config, drafter, None)
    whole = jax.eval_shape(lambda: kind.init(jax.random.key(0), small))
    return {
        name: leaf.shape for name, leaf in flatten(whole).items() if name.split("/")[0] not in (TABLE, HEAD)
    }


def places_of(config: Any, ids: np.ndarray | None) -> Array:
    """Where each of the target's ids has its logit in the student: int32 [v], r for nowhere."""
    kept = jnp.arange(config.embeddings) if ids is None else jnp.asarray(ids)
    return places(kept, config.embeddings)


def frozen(params: Params, config: Any, ids: np.ndarray | None) -> Params:
    """The target's table, and its head cut to `ids` as a kernel [d, r]."""
    own = {TABLE: params[TABLE]}
    if ids is None:
        return own | ({HEAD: params[HEAD]} if HEAD in params else {})
    if HEAD in params:
        return own | {HEAD: {"kernel": params[HEAD]["kernel"].take(ids, axis=1)}}
    return own | {HEAD: {"kernel": params[TABLE][kind_of(config).table].take(ids, axis=0).T}}


def assemble(
    target: Params, config: Any, small: Any, trained: Params, ids: np.ndarray | None
) -> tuple[Any, Params]:
    """The drafter's LM and parameters: of the target's width, -inf where it has no logit."""
    lm, params = lm_of(config, small, ids), frozen(target, config, ids) | trained
    return lm, params if ids is None else {"model": params, "place": places_of(config, ids)}


def lm_of(config: Any, small: Any, ids: np.ndarray | None) -> Any:
    """The drafter's LM, of the target's width."""
    lm = kind_of(config).lm(small)
    return lm if ids is None else Subset(lm, config.embeddings)
