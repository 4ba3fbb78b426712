"""A checkpoint as an engine runs it: where it lies, how its layers run, what it is held in."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from spec_cascades import checkpoints, kernels, methods, storing
from spec_cascades.checkpoints import Loaded
from spec_cascades.models import chunks, stacking
from spec_cascades.sharding import Layout
from spec_cascades.sharding.serving import serving
from spec_cascades.storing import Storage


class Arrangement(NamedTuple):
    """dtype of products; the mesh, None for one device; layers: of `models.stacking`; attention and
    verification: "kernel" (of `kernels`) or "dense", as None; storage of either role; chunk: of
    `models.chunks`.
    """

    dtype: str
    layout: Layout | None
    layers: str | None
    attention: str | None
    storage: Mapping[str, Storage]
    chunk: int | None
    verification: str | None

    def load(self, ref: str, role: str, cut: bool) -> Loaded:
        """A model of its own for a role, its parameters as decoding wants them.

        cut: a drafter is to share the first layers' arrays. Raises ValueError as `checkpoints.load`, and for
        what the model or this machine cannot do.
        """
        layout, storage, found = self.layout, self.storage[role], checkpoints.unread(ref)
        lm = chunks.of(stacking.arranged(found.lm, self.layers, cut), self.chunk)
        if self.attention == "kernel":
            if storage.cache == "int8":
                raise ValueError("attention 'kernel' reads no int8 cache: take 'dense', or another cache")
            lm = kernels.attached(lm, None if layout is None else role)
        place = None if layout is None else layout.place(lm, role)
        serve = lm.serving if layout is None else partial(serving, lm)
        params = found.read(self.dtype, place, serve, storing.HOLD[storage.weights])
        return Loaded(storing.cached_as(lm, storage.cache), params, found.tokenizer, found.config, ref)

    def exited(self, target: Loaded, layers: int) -> Loaded:
        """The target's first layers as a drafter that shares its arrays. Raises ValueError where none can."""
        if self.layout is not None:
            self.layout.check_shared(f"exit:{layers}")
        drafter, weights = self.storage["drafter"], self.storage["target"].weights
        if drafter.weights != weights:
            raise ValueError(
                f"models.drafter_weights: {drafter.weights!r} must be the target's {weights!r}, whose "
                f"arrays a drafter exit:{layers} shares"
            )
        own: Any = methods.exited(target, layers)
        return own._replace(lm=storing.cached_as(own.lm, drafter.cache))

    def verified(self, method: Any) -> Any:
        """The decoding method as it verifies here. Raises ValueError for what the kernel does not serve."""
        if self.verification != "kernel":
            return method
        return kernels.verified(method, mesh=self.layout is not None)
