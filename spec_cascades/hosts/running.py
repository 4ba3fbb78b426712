"""One sweep in many processes: the data divided among them, or one mesh over all of their devices."""

from typing import Any

from spec_cascades import sweep as sweeps
from spec_cascades.checks import ConfigError
from spec_cascades.config import Models, Sweep
from spec_cascades.hosts import gathering, lockstep, shards
from spec_cascades.metrics.scoring import Check


def run(
    sweep: Sweep,
    engine: sweeps.Runner | None = None,
    check: Check | None = None,
    bar: sweeps.Bar = sweeps.ALONE,
) -> list[dict[str, Any]]:
    """`sweep.run` in all processes at once; process 0 writes and returns the records, the others return [].

    A mesh that fits one process's devices leaves each its own models and its part of the examples; a larger
    one is over all devices, and all run the same batches in step. Raises as `sweep.run`, and Lost.
    """
    if gathering.place()[1] == 1:
        return sweeps.run(sweep, engine, check, bar)
    way = lockstep if spans(sweep.models) else shards
    return way.run(sweep, engine, check, bar)


def spans(models: Models) -> bool:
    """Whether the mesh of the models is larger than what one process holds."""
    import jax

    mesh = getattr(models, "mesh", None)
    return mesh is not None and mesh.data * mesh.model > jax.local_device_count()


def refuse_copies(models: Models) -> None:
    """Raises ConfigError where every process would do the same work as the others, on its own."""
    if gathering.place()[1] > 1 and not spans(models):
        raise ConfigError(
            "--distributed: each process has models of its own, and all would give the same answers; "
            "leave it out, or let mesh span the processes"
        )
