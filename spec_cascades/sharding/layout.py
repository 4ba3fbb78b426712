"""A mesh of devices, and what puts parameters, prompts and requests on it."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from spec_cascades import axes
from spec_cascades.config import Mesh
from spec_cascades.decode.loop import Request
from spec_cascades.sharding import tables
from spec_cascades.sharding.serving import serving
from spec_cascades.sharding.tables import Place, path_of
from spec_cascades.typing import Array, Params


@dataclass(frozen=True)
class Layout:
    """A mesh as configured, and its devices as `axes` names them."""

    settings: Mesh
    mesh: jax.sharding.Mesh

    @property
    def sizes(self) -> Mapping[str, int]:
        """{axis: devices}, in order."""
        return self.mesh.shape

    def within(self) -> AbstractContextManager[Any]:
        """The context in which compiled functions see this mesh."""
        return jax.set_mesh(self.mesh)

    def parts(self, role: str) -> int:
        """Over how many devices the model in a role is divided."""
        s = self.settings
        return s.model if role != "drafter" or s.drafter is None else s.drafter

    def check_shared(self, drafter: str) -> None:
        """Raises ValueError where a drafter that is part of the target should lie otherwise than it."""
        if self.parts("drafter") != self.settings.model:
            raise ValueError(
                f"mesh.drafter: {self.settings.drafter} of {self.settings.model}, but the drafter "
                f"{drafter!r} shares the target's arrays: leave it out"
            )

    def place(self, lm: Any, role: str) -> Place:
        """Where each parameter of a model lies. Raises ValueError where the model cannot be divided so."""
        tables.check(lm, role, self.sizes)
        return lambda path, shape: NamedSharding(self.mesh, tables.spec_of(lm, role, path, shape, self.sizes))

    def params(self, lm: Any, role: str, params: Params) -> Params:
        """Parameters that lie anywhere, put where they belong, one after another. Raises as `place`."""
        place = self.place(lm, role)
        put = lambda path, x: self._put(x, place(path_of(path), x.shape))
        return jax.tree_util.tree_map_with_path(put, params)

    def serving(self, lm: Any, role: str, params: Params) -> Params:
        """A checkpoint's parameters, which are whole on this host, as decoding wants them on the mesh.

        Raises ValueError as `place`.
        """
        return self.params(lm, role, serving(lm, params))

    def batch(self, tokens: Array, lengths: Array, request: Request) -> tuple[Array, Array, Request]:
        """Prompts and what their rows ask for, on the mesh.

        Where the rows are no multiple of `data`, copies of the first that ask for no token fill them up; they
        come last.
        """
        more = -len(tokens) % self.settings.data
        filled = lambda x: np.concatenate([x, np.repeat(np.asarray(x)[:1], more, axis=0)])
        tokens, lengths, request = jax.tree.map(filled, (tokens, lengths, request))
        most = request.max_new_tokens
        most[len(most) - more :] = 0
        return *self.rows((tokens, lengths)), self.request(request)

    def rows(self, tree: Any) -> Any:
        """Arrays [b, ...] of the host, of which every process has all, with their rows divided."""
        return jax.tree.map(lambda x: self._put(x, NamedSharding(self.mesh, self._rows(np.shape(x)))), tree)

    def request(self, request: Request) -> Request:
        """A request with its rows divided, and the edits' vocabulary too."""
        placed = self.rows(request._replace(edits=None))
        if request.edits is None:
            return placed
        wide = lambda x: P(*self._rows(x.shape), axes.names(x.shape[1], sizes=self.sizes) or None)
        put = lambda x: self._put(x, NamedSharding(self.mesh, wide(x) if x.ndim > 1 else self._rows(x.shape)))
        return placed._replace(edits=jax.tree.map(put, request.edits))

    def caches(self, caches: Mapping[str, Any]) -> Mapping[str, Any]:
        """Where the caches of models by role lie: a sharding for each array or shape."""
        spec = lambda role: lambda x: NamedSharding(self.mesh, axes.cached(x.shape, role, self.sizes))
        return {role: jax.tree.map(spec(role), cache) for role, cache in caches.items()}

    def row_sharding(self, shape: tuple[int, ...]) -> NamedSharding:
        """Where an array [b, ...] lies whose rows are divided."""
        return NamedSharding(self.mesh, self._rows(shape))

    def _rows(self, shape: tuple[int, ...]) -> P:
        return P(*[axes.rows(n, self.sizes) for n in shape[:1]])

    def _put(self, x: Any, sharding: NamedSharding) -> Array:
        if isinstance(x, jax.Array) and (x.sharding == sharding or not x.is_fully_addressable):
            return x
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def of(settings: Mesh | None, devices: Any = None) -> Layout | None:
    """The layout that a configuration asks for; None for None.

    devices: those to use; by default those of this process where they are enough, or of all processes.

    Raises ValueError unless there are exactly as many devices.
    """
    if settings is None:
        return None
    wanted = settings.data * settings.model
    if devices is None:
        devices = jax.local_devices()
        devices = jax.devices() if wanted > len(devices) else devices
    if len(devices) != wanted:
        raise ValueError(
            f"mesh: data={settings.data} x model={settings.model} wants {wanted} devices, and there are "
            f"{len(devices)} ({devices[0].platform})"
        )
    sizes = {axes.ROWS: settings.data} | factors(settings)
    kinds = (AxisType.Auto,) * len(sizes)
    mesh = jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=kinds, devices=devices)
    return Layout(settings, mesh)


def factors(settings: Mesh) -> dict[str, int]:
    """{axis: devices} of the model part of a mesh: prime factors, those of the drafter's share first."""
    shared = settings.drafter or settings.model
    both, rest = _primes(shared), _primes(settings.model // shared)
    kinds = [axes.BOTH] * len(both) + [axes.TARGET] * len(rest)
    return {f"{kind}{i}": n for i, (kind, n) in enumerate(zip(kinds, both + rest, strict=True))}


def _primes(n: int) -> list[int]:
    """Prime factors, the least first."""
    found, factor = [], 2
    while n > 1:
        if n % factor:
            factor += 1
        else:
            found.append(factor)
            n //= factor
    return found
