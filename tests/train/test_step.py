"""The model in training and one step of the optimiser; batches made by hand, no seqio."""

from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from copying import PIECES, config, copies, settings

from spec_cascades.models import t5
from spec_cascades.train import loop, losses

LENGTH = 18
SLOW = settings("out", dtype="bfloat16", dropout=0.0, peak_lr=1e-5, warmup=0)
forward = jax.jit(t5.forward, static_argnames="config")


def sums(params, c, teacher, batch):
    """`loop.sums` without dropout, compiled."""
    return jax.jit(lambda w, b: loop.sums(w, c, teacher, b, None))(params, batch)


def device(batch):
    return jax.tree.map(jnp.asarray, batch)


def joined(examples, inputs, targets):
    """Examples [(source, target)] packed into one row of the given lengths."""
    fill = lambda parts, n: np.concatenate([*parts, np.zeros(n, np.int32)])[:n].astype(np.int32)[None]
    count = lambda which: [np.full(len(e[which]), i) for i, e in enumerate(examples, 1)]
    sources, answers = ([e[which] for e in examples] for which in (0, 1))
    shifted = [np.concatenate([[0], a[:-1]]) for a in answers]
    return device(
        t5.Batch(
            fill(sources, inputs),
            fill(answers, targets),
            fill(count(0), inputs),
            fill(count(1), targets),
            fill(shifted, targets),
        )
    )


@pytest.mark.parametrize("changes", [{}, dict(gated=False, activation="relu", tied=False)])
def test_a_packed_example_is_scored_as_if_alone(changes):
    """Segments hide neighbours, and T5's positions are relative, so where an example lies does not matter."""
    c = config(encoder_layers=2, decoder_layers=2, **changes)
    params = t5.init(jax.random.key(0), c)
    rng = np.random.default_rng(0)
    examples = [(rng.integers(3, PIECES, n), rng.integers(3, PIECES, m)) for n, m in ((7, 5), (4, 9), (9, 6))]
    packed = forward(params, c, joined(examples, 24, 23))
    at = 0
    for source, target in examples:
        alone = forward(params, c, joined([(source, target)], 24, 23))[:, : len(target)]
        np.testing.assert_allclose(packed[:, at : at + len(target)], alone, atol=1e-5)
        at += len(target)


def test_positions_and_neighbours_matter():
    """What the test above would miss were the model blind to them."""
    c = config()
    params = t5.init(jax.random.key(0), c)
    ids = np.arange(5, 13)
    straight = forward(params, c, joined([(ids, ids)], 16, 16))
    turned = forward(params, c, joined([(ids[::-1], ids)], 16, 16))
    assert np.abs(straight - turned)[:, :8].max() > 1e-3
    unmasked = joined([(ids, ids), (ids[::-1], ids)], 16, 16)
    one = jnp.ones_like(unmasked.input_segments)
    blind = forward(params, c, unmasked._replace(input_segments=one, target_segments=one))
    assert np.abs(blind - straight)[:, :8].max() > 1e-3


def test_dropout_of_rate_zero_is_none():
    c, batch = config(), device(copies(2, LENGTH, 0))
    params = t5.init(jax.random.key(0), c)
    plain = forward(params, c, batch)
    np.testing.assert_array_equal(forward(params, c, batch, t5.Dropout(0.0, jax.random.key(1))), plain)
    assert np.abs(forward(params, c, batch, t5.Dropout(0.3, jax.random.key(1))) - plain).max() > 1e-3


def test_padding_counts_nothing():
    c, batch = config(), device(copies(2, LENGTH, 0))
    params = t5.init(jax.random.key(0), c)
    junk = jnp.where(batch.target_segments == 0, 7, batch.targets)
    plain, other = (sums(params, c, None, b) for b in (batch, batch._replace(targets=junk)))
    np.testing.assert_array_equal(plain, other)
    assert plain.count == 2 * (LENGTH - 2)
    logits = forward(params, c, batch)[:, : LENGTH - 2]
    own = losses.nll(logits, batch.targets[:, : LENGTH - 2])
    np.testing.assert_allclose(plain.nll, np.asarray(own, np.float64).sum(), rtol=1e-5)


step_of = lru_cache(loop.train_step)


def train(given, steps, teacher=None, seeds=3):
    """The state after some steps over a few batches, and the sums of each step."""
    bare = teacher and teacher._replace(params=None)
    step, weights = step_of(given, config(), bare), teacher and teacher.params
    state, made = loop._fresh(given, config()), []
    for i in range(steps):
        state, out = step(state, weights, copies(4, LENGTH, i % seeds))
        made.append(out)
    return state, made


def test_the_loss_falls_and_float32_masters_take_small_steps():
    """bf16 matmuls on float32 weights: a step far below bf16's resolution still changes them."""
    before = loop._fresh(SLOW, config()).params
    state, _ = train(SLOW, 1)
    assert {x.dtype for x in jax.tree.leaves(state.params)} == {np.dtype("float32")}
    assert {x.dtype for x in jax.tree.leaves(state.optimiser) if x.ndim} == {np.dtype("float32")}
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(state.params), strict=True)
    moved = [np.mean(np.asarray(a) != np.asarray(b)) for a, b in pairs]
    assert np.mean(moved) > 0.5
    _, made = train(replace(SLOW, peak_lr=1e-2), 60)
    assert float(made[-1].loss) < 0.7 * float(made[0].loss)


def test_the_dtype_is_that_of_the_matmuls():
    first = {d: float(train(replace(SLOW, dtype=d), 1)[1][0].loss) for d in ("float32", "bfloat16")}
    params = loop._fresh(SLOW, config()).params
    exact = sums(params, config(), None, copies(4, LENGTH, 0))
    np.testing.assert_allclose(first["float32"], exact.loss, rtol=1e-5)
    assert first["float32"] != first["bfloat16"]
    np.testing.assert_allclose(first["bfloat16"], exact.loss, rtol=2e-2)


def test_dropout_keys_follow_seed_and_step():
    losses_of = lambda given: [float(m.loss) for m in train(given, 2, seeds=1)[1]]
    dropping = replace(SLOW, dropout=0.3)
    base, still = losses_of(dropping), losses_of(SLOW)
    assert base == losses_of(dropping)
    # The weights hardly moved and the batch is the same: only the dropped units differ.
    assert abs(base[0] - base[1]) > 1e-3 * base[0]
    assert abs(still[0] - still[1]) < 2e-4 * still[0]


@pytest.mark.parametrize("kind", losses.DIVERGENCES)
def test_distillation_brings_the_student_to_its_teacher(kind):
    c = config()
    own = t5.init(jax.random.key(7), c)
    sharp = jax.tree.map(lambda x: x, own)
    sharp["token_embedder"] = {"embedding": 2 * own["token_embedder"]["embedding"]}
    teacher = loop.Teacher(sharp, c, kind, 0.0, 1.0)
    given = settings("out", dtype="float32", dropout=0.0)
    state, made = train(given, 60, teacher)
    tv = [1 - float(m.overlap / m.count) for m in (made[0], made[-1])]
    assert tv[1] < 0.75 * tv[0]
    batch = device(copies(4, LENGTH, 0))
    p, q = forward(sharp, c, batch), forward(state.params, c, batch)
    real = np.asarray(batch.target_segments) > 0
    distance = np.asarray(losses.divergence("tv", p, q))[real].mean()
    assert distance < 0.75 * tv[0]


def test_the_teacher_terms_of_the_loss():
    """loss = (1 - w) D(p at T, q at T) + w NLL."""
    c, batch = config(), device(copies(2, LENGTH, 0))
    student, target = (t5.init(jax.random.key(i), c) for i in (0, 7))
    got = sums(student, c, loop.Teacher(target, c, "kl", 0.25, 2.0), batch)
    q, p = (forward(w, c, batch) for w in (student, target))
    real = batch.target_segments > 0
    distance = losses.divergence("kl", p / 2, q / 2)[real].sum()
    own = losses.nll(q, batch.targets)[real].sum()
    np.testing.assert_allclose(got.loss, 0.75 * distance + 0.25 * own, rtol=1e-5)
    np.testing.assert_allclose(got.nll, own, rtol=1e-5)
    np.testing.assert_allclose(got.overlap, losses.overlap(p, q)[real].sum(), rtol=1e-5)
