"""What every training here shares: the optimiser's chain, and batches in, checkpoints and reports out."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import jax
import optax
import orbax.checkpoint as ocp

from spec_cascades.train.runfolder import Log
from spec_cascades.typing import Array


class State(Protocol):
    """What a checkpoint holds: a NamedTuple with the steps done among its fields."""

    step: Array

    def _asdict(self) -> dict[str, Any]: ...


S = TypeVar("S", bound=State)


def optimiser(settings: Any, *scaling: optax.GradientTransformation) -> optax.GradientTransformation:
    """AdamW on a warm-up and cosine schedule, gradients clipped by their global norm.

    scaling: what else changes Adam's step, before the decay of matrices.
    """
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, settings.peak_lr, settings.warmup, settings.steps, settings.final_lr
    )
    matrices = lambda params: jax.tree.map(lambda x: x.ndim > 1, params)
    return optax.chain(
        optax.clip_by_global_norm(settings.clip),
        optax.scale_by_adam(b2=0.98),
        *scaling,
        optax.add_decayed_weights(settings.weight_decay, matrices),
        optax.scale_by_learning_rate(schedule),
    )


def fit(
    settings: Any,
    blank: S,
    batches: Callable[[int], Iterator[Any]],
    step: Callable[[S, Any], tuple[S, Any]],
    evaluate: Callable[[S], dict[str, float]],
    mean: Callable[[list[Any]], dict[str, float]],
) -> S:
    """Trains (or goes on training) until `settings.steps` steps are done.

    batches(n): the batches from number n on; step: (state, batch) to (state, sums with loss and count); mean:
    a report's figures of the steps since the last. A checkpoint is written to settings.out/checkpoints every
    `save_every` steps; a killed run resumes from the last one with the batches that it would have seen.
    """
    out = Path(settings.out).absolute()
    out.mkdir(parents=True, exist_ok=True)
    due = lambda number, every: number % every == 0 or number == settings.steps
    options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
    with ocp.CheckpointManager(out / "checkpoints", options=options) as manager:
        state = _restore(manager, blank)
        start, recent = int(state.step), []
        feed = batches(start)
        with Log(out / "log.jsonl", settings.steps, start) as log:
            if start == 0:
                log.report(0, evaluate(state))
            for number in range(start + 1, settings.steps + 1):
                state, made = step(state, next(feed))
                recent.append(made)
                if number % 10 == 0:
                    log.advance(number, float(made.loss / made.count))
                if due(number, settings.eval_every):
                    log.report(number, mean(recent) | evaluate(state))
                    recent = []
                if due(number, settings.save_every):
                    manager.save(number, args=ocp.args.StandardSave(state._asdict()))
    return state


def _restore(manager: ocp.CheckpointManager, blank: S) -> S:
    if manager.latest_step() is None:
        return blank
    held = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(blank._asdict()))
    return type(blank)(**held)
