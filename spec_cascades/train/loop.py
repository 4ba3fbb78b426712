"""The training loop: packed seqio batches, optax, orbax checkpoints, an optional teacher."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from spec_cascades.models import t5
from spec_cascades.train import fitting, losses
from spec_cascades.train.data import Batch, batches, epoch
from spec_cascades.train.losses import Sums
from spec_cascades.train.settings import Train
from spec_cascades.typing import Array, Params


class State(NamedTuple):
    """What a checkpoint holds: float32 parameters, optimiser state, steps done."""

    params: Params
    optimiser: Any
    step: Array


class Teacher(NamedTuple):
    """The target a drafter learns from: its weights, sizes, divergence, NLL weight and temperature."""

    params: Params
    config: t5.Config
    loss: str
    nll_weight: float
    temperature: float


def optimiser(settings: Train) -> optax.GradientTransformation:
    """Adam whose step is a share of each tensor's RMS, on a warm-up and cosine schedule, gradients clipped.

    T5's initial scales (queries 1 / sqrt(d_kv) smaller, a unit-variance table under a tied head) were made
    for Adafactor's relative steps. Equal ones throw the queries about and leave the table behind.
    """
    return fitting.optimiser(settings, optax.scale_by_param_block_rms())


def sums(params: Params, config: t5.Config, teacher: Teacher | None, batch: Batch, drop: Any) -> Sums:
    """Loss, NLL and expected acceptance summed over the batch's real target positions."""
    logits = t5.forward(params, config, batch, drop)
    real = (batch.target_segments > 0).astype(jnp.float32)
    total = lambda x: jnp.sum(jnp.where(real > 0, x, 0.0))
    own = losses.nll(logits, batch.targets)
    if teacher is None:
        return Sums(total(own), total(own), total(real), jnp.zeros(()))
    p = jax.lax.stop_gradient(t5.forward(teacher.params, teacher.config, batch))
    scaled = lambda x: x / teacher.temperature
    distance = losses.divergence(teacher.loss, scaled(p), scaled(logits))
    loss = (1 - teacher.nll_weight) * distance + teacher.nll_weight * own
    return Sums(total(loss), total(own), total(real), total(losses.overlap(p, logits)))


def train_step(
    settings: Train, config: t5.Config, teacher: Teacher | None
) -> Callable[[State, Params, Batch], tuple[State, Sums]]:
    """The jitted step (state donated); matmuls run in settings.dtype on a copy of the float32 weights.

    The teacher's weights are the step's second argument, so that they are no constant of the program.
    """
    tx, dtype = optimiser(settings), jnp.dtype(settings.dtype)

    def objective(params: Params, teacher_params: Params, batch: Batch, key: Array) -> tuple[Array, Sums]:
        low = jax.tree.map(lambda x: x.astype(dtype), params)
        drop = t5.Dropout(settings.dropout, key) if settings.dropout else None
        out = sums(low, config, _with(teacher, teacher_params), batch, drop)
        return out.loss / jnp.maximum(out.count, 1), out

    def step(state: State, teacher_params: Params, batch: Batch) -> tuple[State, Sums]:
        key = jax.random.fold_in(jax.random.key(settings.seed), state.step)
        (_, out), grads = jax.value_and_grad(objective, has_aux=True)(
            state.params, teacher_params, batch, key
        )
        updates, opt_state = tx.update(grads, state.optimiser, state.params)
        return State(optax.apply_updates(state.params, updates), opt_state, state.step + 1), out

    return jax.jit(step, donate_argnums=0)


def _with(teacher: Teacher | None, params: Params) -> Teacher | None:
    return None if teacher is None else teacher._replace(params=params)


def evaluate(
    step: Callable[..., Sums], params: Params, teacher_params: Params, dev: list[Batch]
) -> dict[str, float]:
    """Per-token dev loss, NLL (nats) and, with a teacher, expected acceptance."""
    parts = [step(params, teacher_params, batch) for batch in dev]
    loss, nll, count, over = (float(sum(x)) for x in zip(*parts, strict=True))
    found = {"dev_loss": loss / count, "dev_nll": nll / count}
    return found | ({"dev_acceptance": over / count} if over else {})


def fit(
    settings: Train, config: t5.Config, task: Any, teacher: Teacher | None, begin: Params | None = None
) -> Params:
    """Trains (or goes on training) and returns the float32 parameters after `settings.steps` steps.

    begin: float32 parameters before the first step, None for random ones.
    A killed run resumes with the batches and dropout keys that it would have seen (`fitting.fit`).
    """
    teacher_params = None if teacher is None else teacher.params
    step = train_step(settings, config, teacher)
    measure = jax.jit(lambda p, t, batch: sums(p, config, _with(teacher, t), batch, None))
    lengths = (settings.data.input_length, settings.data.target_length)
    dev = list(epoch(task, "dev", lengths, settings.rows, None))
    end = fitting.fit(
        settings,
        _fresh(settings, config, begin),
        lambda start: batches(task, lengths, settings.rows, settings.seed, start),
        lambda state, batch: step(state, teacher_params, batch),
        lambda state: evaluate(measure, state.params, teacher_params, dev),
        _mean,
    )
    return end.params


def _mean(recent: list[Sums]) -> dict[str, float]:
    """Training loss per token since the last report, and real target positions a step."""
    tokens = float(sum(m.count for m in recent))
    return {"loss": float(sum(m.loss for m in recent)) / tokens, "tokens_per_step": tokens / len(recent)}


def _fresh(settings: Train, config: t5.Config, begin: Params | None = None) -> State:
    params = t5.init(jax.random.key(settings.seed), config) if begin is None else begin
    return State(params, optimiser(settings).init(params), jnp.zeros((), jnp.int32))
