"""The student's training: labelled rows, optax, orbax checkpoints; acceptance is reported as it trains."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from spec_cascades.distill import losses, student
from spec_cascades.distill.labels import Labelled
from spec_cascades.distill.losses import Label, Sums
from spec_cascades.distill.settings import Distill
from spec_cascades.train import fitting
from spec_cascades.typing import Array, Params


class State(NamedTuple):
    """What a checkpoint holds: float32 trunk, optimiser state, steps done."""

    trunk: Params
    optimiser: Any
    step: Array


class Setup(NamedTuple):
    """The student apart from its weights: Config, frozen parts, and where each id's logit is (r: nowhere)."""

    config: Any
    frozen: Params
    place: Array


def sums(
    settings: Distill, config: Any, trunk: Params, frozen: Params, place: Array, batch: Labelled
) -> Sums:
    """Loss and acceptance over a batch's answer positions; matmuls run in settings.dtype."""
    low = jax.tree.map(lambda x: x.astype(settings.dtype), trunk)
    logits = student.kind_of(config).forward(frozen | low, config, batch.tokens, batch.segments)
    label = Label(place[batch.ids], batch.log_p.astype(jnp.float32))
    return losses.sums(settings.loss, logits, label, batch.weights)


def train_step(settings: Distill, config: Any) -> Callable[..., tuple[State, Sums]]:
    """The jitted step, state donated."""
    tx = fitting.optimiser(settings)

    def objective(trunk: Params, frozen: Params, place: Array, batch: Labelled) -> tuple[Array, Sums]:
        out = sums(settings, config, trunk, frozen, place, batch)
        return out.loss / jnp.maximum(out.count, 1), out

    def step(state: State, frozen: Params, place: Array, batch: Labelled) -> tuple[State, Sums]:
        grad = jax.value_and_grad(objective, has_aux=True)
        (_, out), grads = grad(state.trunk, frozen, place, batch)
        updates, opt = tx.update(grads, state.optimiser, state.trunk)
        return State(optax.apply_updates(state.trunk, updates), opt, state.step + 1), out

    return jax.jit(step, donate_argnums=0)


def batches(data: Labelled, rows: int, seed: int, start: int) -> Iterator[Labelled]:
    """Endless batches of `rows` rows from number `start` on; epoch e's order is drawn from (seed, e) alone.

    An epoch's incomplete last batch is filled from the epoch's beginning.
    """
    n = data.tokens.shape[0]
    each = -(-n // rows)
    number = start
    while True:
        order = np.random.default_rng([seed, number // each]).permutation(n)
        at = number % each * rows
        yield take(data, np.resize(np.roll(order, -at), rows))
        number += 1


def take(data: Labelled, index: np.ndarray) -> Labelled:
    """Some of the rows."""
    return Labelled(*(x[index] for x in data))


def evaluate(
    measure: Callable[..., Sums], state: State, setup: Setup, dev: Labelled, rows: int
) -> dict[str, float]:
    """Per answer token of dev: loss (nats), expected acceptance at temperature 1, greedy acceptance."""
    n = dev.tokens.shape[0]
    whole = [take(dev, np.arange(i, min(i + rows, n))) for i in range(0, n, rows)]
    padded = [
        Labelled(*(np.pad(x, [(0, rows - len(x))] + [(0, 0)] * (x.ndim - 1)) for x in b)) for b in whole
    ]
    parts = [measure(state.trunk, setup.frozen, setup.place, b) for b in padded]
    loss, count, over, greedy = (float(sum(x)) for x in zip(*parts, strict=True))
    return {"dev_loss": loss / count, "dev_acceptance": over / count, "dev_greedy_acceptance": greedy / count}


def fit(settings: Distill, setup: Setup, begin: Params, data: Labelled, dev: Labelled) -> Params:
    """Trains (or goes on training) the trunk for settings.steps steps (`fitting.fit`)."""
    step = train_step(settings, setup.config)
    measure = jax.jit(lambda t, f, p, b: sums(settings, setup.config, t, f, p, b))
    end = fitting.fit(
        settings,
        State(begin, fitting.optimiser(settings).init(begin), jnp.zeros((), jnp.int32)),
        lambda start: batches(data, settings.rows, settings.seed, start),
        lambda state, batch: step(state, setup.frozen, setup.place, batch),
        lambda state: evaluate(measure, state, setup, dev, settings.rows),
        _mean,
    )
    return end.trunk


def _mean(recent: list[Sums]) -> dict[str, float]:
    """Training loss and greedy acceptance per answer token since the last report, answer tokens a step."""
    loss, count, _, greedy = (float(sum(x)) for x in zip(*recent, strict=True))
    return {"loss": loss / count, "greedy_acceptance": greedy / count, "tokens_per_step": count / len(recent)}
