"""Which processes make up a run: given by flags, or found by jax in the environment."""

import re
from dataclasses import dataclass

from spec_cascades.checks import ConfigError, choose, require

HOW = ("none", "auto")
HEARTBEAT = 100
"""Seconds, jax's own default."""


@dataclass(frozen=True)
class Join:
    """How this process finds the others.

    distributed: "auto" leaves it to jax (Cloud TPU, SLURM, Open MPI, Kubernetes); "none" with a coordinator,
    the address of process 0, says it outright: this is process `process` of `processes`. heartbeat: seconds
    after which a silent process counts as dead, and all others stop. Raises ConfigError for what is missing,
    out of range or said twice.
    """

    distributed: str = "none"
    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None
    heartbeat: int = HEARTBEAT

    def __post_init__(self) -> None:
        choose("--distributed", self.distributed, HOW)
        require("--heartbeat", self.heartbeat, self.heartbeat >= 1, "1 or more seconds")
        given = {"--coordinator": self.coordinator, "--processes": self.processes, "--process": self.process}
        missing = [flag for flag, value in given.items() if value is None]
        if len(missing) == len(given):
            return
        if self.distributed == "auto":
            raise ConfigError(f"--distributed auto finds the processes itself: leave out {', '.join(given)}")
        if missing:
            raise ConfigError(f"{missing[0]}: missing; {', '.join(given)} belong together")
        self._check(self.coordinator, self.processes, self.process)

    def _check(self, coordinator: str, processes: int, process: int) -> None:
        address = re.fullmatch(r"[^\s:]+:(\d+)|\[[0-9a-fA-F:]+\]:(\d+)", coordinator)
        port = address and int(address[1] or address[2])
        fits = port is not None and 1 <= port <= 65535
        require("--coordinator", coordinator, fits, "HOST:PORT, for example 10.0.0.1:8476")
        require("--processes", processes, processes >= 1, "1 or more")
        require("--process", process, 0 <= process < processes, f"0 to {processes - 1} (--processes - 1)")

    @property
    def alone(self) -> bool:
        """Whether nothing is to be joined."""
        return self.distributed == "none" and self.coordinator is None


def join(asked: Join) -> None:
    """`jax.distributed.initialize`, before anything is computed; nothing for a process alone.

    Raises ConfigError where "auto" finds no cluster, and where the others do not come.
    """
    if asked.alone:
        return
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if hasattr(jax.config, "jax_enable_preemption_service"):
        # It would catch SIGTERM and go on; here every batch is on disk, so that a process may just die.
        jax.config.update("jax_enable_preemption_service", False)
    # How long one that leaves waits for the others: what is not over by then never will be.
    patience = {"heartbeat_timeout_seconds": asked.heartbeat, "shutdown_timeout_seconds": asked.heartbeat}
    try:
        jax.distributed.initialize(asked.coordinator, asked.processes, asked.process, **patience)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(_unmet(asked, error)) from error


def _unmet(asked: Join, error: Exception) -> str:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if asked.distributed == "auto":
        return (
            f"--distributed auto: none found ({first}); outside a TPU slice, SLURM and Open MPI give "
            "--coordinator HOST:PORT --processes N --process I"
        )
    return f"--coordinator {asked.coordinator}: the {asked.processes} processes did not meet ({first})"
