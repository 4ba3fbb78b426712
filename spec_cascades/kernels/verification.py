"""Verification from both models' logits, each fetched once from the chip's memory.

Of eight rows at one place of the block, all logits [8, v] of both models lie in the fast memory while they
are gone over: for the maxima, for what normalises them, for D_TV(p, q) or eq. 11's sum of r q where the rule
asks, and where rows end for what their own token is drawn from, which is all that is written. Places follow
one another, so that at each it is known which rows still stand. Temperatures, greedy rows and edited scores
may mix; a batch in which a row filters takes the plain path, `reference`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from spec_cascades import verify
from spec_cascades.probs import Pair, Part, Sampling, distribution, raw
from spec_cascades.rules import RULES, Deferral, Rule
from spec_cascades.typing import Array, Bool, Float, Int
from spec_cascades.verify import Noise, Verdict

ROWS, CHUNK = 8, 2048
"""Rows of a block, as many as a register has, and ids that are computed with at once."""
MOST = 56 * 2**20 // (3 * 2 * ROWS * 4)
"""Ids at most: two arrays in and one out, each in two buffers, in 56 MiB of a core's fast memory."""
SERVED = (
    *("lossless", "drafter_only", "chow", "chow_log", "diff", "diff_log", "opt", "opt_log"),
    *("v1", "v2", "v3", "typical"),
)
"""Rules whose masks need no sums over the vocabulary but those of `Part`."""
FAR = ("opt", "opt_log")
"""Of these, what reads D_TV(p, q)."""


class Model(NamedTuple):
    """One model's sums over its logits x, a column a row.

    top: max x; best: its id, the lowest of ties; mass, mass_raw: sum exp((x - top) / t) at the row's
    temperature and at 1; spread: sum exp(x - top) (x - top); drafted: x at the draft.
    """

    top: Float[Array, "b 1"]
    best: Int[Array, "b 1"]
    mass: Float[Array, "b 1"]
    mass_raw: Float[Array, "b 1"]
    spread: Float[Array, "b 1"]
    drafted: Float[Array, "b 1"]


class Law(NamedTuple):
    """A rule's pi at some ids of a row, given what it asks of the whole vocabulary.

    distance: D_TV(p, q); eta: the sum of r q for a mask a token. Zero where the rule does not ask.
    """

    rule: Deferral
    wide: bool
    alpha: Float[Array, "b 1"]
    temperature: Float[Array, "b 1"]
    q: Model
    p: Model
    distance: Float[Array, "b 1"]
    eta: Float[Array, "b 1"]

    def part(self, q: Array, p: Array, ids: Array) -> Part:
        """The pair at ids [b, n], of which q and p are the logits."""
        models = (q, self.q, 1 / self.q.mass_raw), (p, self.p, 1 / self.p.mass_raw)
        return Part(
            *(_sampled(x, ids, model, self.temperature) for x, model, _ in models),
            # Products, as the maximum is one of 1 and the share: masks compare the two.
            *(jnp.exp(x - model.top) * share for x, model, share in models),
            *(share for _, _, share in models),
            *(jnp.log(model.mass_raw) - model.spread * share for _, model, share in models),
            self.distance,
        )

    def pi(self, part: Part) -> Array:
        r = self.rule.mask(part, self.alpha)
        return self.rule.mixed(part, r, self.eta if self.wide else r.astype(jnp.float32))


def check(rule: Rule, vocab: int) -> None:
    """Raises ValueError for a rule that the kernel does not serve, and for too large a vocabulary."""
    if not isinstance(rule, Deferral) or rule.name not in SERVED or RULES.get(rule.name) is not rule:
        raise ValueError(f"verification 'kernel' serves {', '.join(SERVED)}, not {rule.name!r}: take 'dense'")
    if vocab > MOST:
        raise ValueError(f"verification 'kernel' holds up to {MOST} ids, and there are {vocab}: take 'dense'")


def reference(
    noise: Noise,
    drafts: Int[Array, "b w"],
    drafted: Int[Array, " b"],
    q_logits: Float[Array, "b w v"],
    p_logits: Float[Array, "b w v"],
    sampling: Sampling,
    rule: Rule,
    alpha: Float[Array, " b"],
) -> Verdict:
    """The verdict on drafts from whole distributions, filters and all: the plain path from logits."""
    pair = Pair(*(distribution(x, sampling) for x in (q_logits, p_logits)), raw(q_logits), raw(p_logits))
    return verify.verify(noise, drafts, drafted, pair, rule, alpha)


def judge(
    noise: Noise,
    drafts: Int[Array, "b w"],
    drafted: Int[Array, " b"],
    q_logits: Float[Array, "b w v"],
    p_logits: Float[Array, "b w v"],
    sampling: Sampling,
    rule: Rule,
    alpha: Float[Array, " b"],
    interpret: bool = False,
) -> Verdict:
    """`reference`, by the kernel where no row filters, else for eight rows or fewer at a time.

    interpret: on any backend, for tests. Raises ValueError as `check`.
    """
    check(rule, q_logits.shape[-1])
    filters = (sampling.top_k > 0) | (sampling.top_p < 1) | (sampling.min_p > 0)
    given = noise, drafts, drafted, q_logits, p_logits
    return lax.cond(
        jnp.any(filters),
        lambda: _in_turn(partial(reference, rule=rule), (*given, sampling), alpha),
        lambda: unfiltered(*given, sampling.temperature, rule, alpha, interpret=interpret),
    )


def unfiltered(
    noise: Noise,
    drafts: Int[Array, "b w"],
    drafted: Int[Array, " b"],
    q_logits: Float[Array, "b w v"],
    p_logits: Float[Array, "b w v"],
    temperature: Float[Array, " b"],
    rule: Deferral,
    alpha: Float[Array, " b"],
    chunk: int = CHUNK,
    interpret: bool = False,
) -> Verdict:
    """The verdict by the kernel. chunk: ids that are computed with at once, a multiple of 128 on a TPU."""
    b, w, v = q_logits.shape
    rows = min(ROWS, b)
    # Places come first: a register then holds eight rows of one, and eight rows or more leave no gaps.
    places = lambda x: jnp.swapaxes(x.reshape(b, w, -1), 0, 1)
    row, held = (pl.BlockSpec((rows, n), lambda i, place: (i, 0)) for n in (1, v))
    one, all_ids = (pl.BlockSpec((None, rows, n), lambda i, place: (place, i, 0)) for n in (1, v))
    accepted, rest = pl.pallas_call(
        partial(_kernel, rule=rule, wide=decides_each(rule), chunk=chunk),
        grid=(pl.cdiv(b, rows), w),
        in_specs=[row, row, row, one, one, all_ids, all_ids],
        out_specs=[row, held],
        out_shape=[jax.ShapeDtypeStruct((b, 1), jnp.int32), jax.ShapeDtypeStruct((b, v), jnp.float32)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=3 * 2 * ROWS * 4 * v + 4 * 2**20,
        ),
        interpret=interpret,
        name="verification",
    )(
        *(x[:, None] for x in (drafted, temperature, alpha)),
        *(places(x) for x in (noise.accept, drafts)),
        *(places(x.astype(jnp.float32)) for x in (q_logits, p_logits)),
    )
    return verify.ended(noise, drafts, accepted[:, 0], rest)


def _in_turn(f: Callable[..., Verdict], given: tuple[Any, ...], alpha: Array) -> Verdict:
    """f of some rows after others: memory for what may never run is then set aside for a few rows only."""
    b = alpha.shape[0]
    rows = next(n for n in range(min(ROWS, b), 0, -1) if b % n == 0)
    apart = jax.tree.map(lambda x: x.reshape(b // rows, rows, *x.shape[1:]), (given, alpha))
    done = lax.map(lambda x: f(*x[0], alpha=x[1]), apart)
    return jax.tree.map(lambda x: x.reshape(b, *x.shape[2:]), done)


def decides_each(rule: Deferral) -> bool:
    """Whether the rule's mask is one a token, [..., v], and not one a position."""
    two, one = (jax.ShapeDtypeStruct((1, n), jnp.float32) for n in (2, 1))
    return jax.eval_shape(rule.mask, Part(*[two] * 4, *[one] * 5), one).shape[-1] > 1


# ------------------------------------------------------------------------------------------------------------
# The kernel


def _kernel(
    drafted: Any,
    temperature: Any,
    alpha: Any,
    u: Any,
    drafts: Any,
    q: Any,
    p: Any,
    accepted: Any,
    rest: Any,
    *,
    rule: Deferral,
    wide: bool,
    chunk: int,
) -> None:
    """One place of a block of rows; a row that still stands has accepted as many drafts as lie before."""
    place = pl.program_id(1)

    @pl.when(place == 0)
    def _() -> None:
        accepted[...] = jnp.zeros(accepted.shape, jnp.int32)

    here, proposed = accepted[...] == place, place < drafted[...]

    @pl.when(_any(here))
    def _() -> None:
        over = partial(_over, q, p, chunk)
        law = _law(rule, wide, alpha[...], temperature[...], q, p, drafts[...], over)
        at_draft = law.part(law.q.drafted, law.p.drafted, drafts[...])
        stands = here & proposed & (u[...] * at_draft.q < law.pi(at_draft))
        accepted[...] = jnp.where(stands, place + 1, accepted[...])
        ends = here & ~stands

        @pl.when(_any(ends))
        def _() -> None:
            _write(rest, law, ends, proposed, over)


def _law(
    rule: Deferral,
    wide: bool,
    alpha: Array,
    temperature: Array,
    q: Any,
    p: Any,
    drafts: Array,
    over: Callable[..., Any],
) -> Law:
    """What is to be known of the whole vocabulary, from two or three passes over it."""
    zero = jnp.zeros(alpha.shape, jnp.float32)
    low = jnp.full(alpha.shape, jnp.finfo(jnp.float32).min)
    highest = lambda old, x: jnp.maximum(old, _reduced(jnp.max, x))
    tops = over(lambda at, ids, q, p, old: (highest(old[0], q), highest(old[1], p)), (low, low))
    rate = _rate(temperature)
    none = [Model(top, jnp.full(top.shape, q.shape[1], jnp.int32), *[zero] * 4) for top in tops]

    def add(at: Any, ids: Array, q: Array, p: Array, old: list[Model]) -> list[Model]:
        return [_added(model, x, ids, rate, drafts) for model, x in zip(old, (q, p), strict=True)]

    law = Law(rule, wide, alpha, temperature, *over(add, none), zero, zero)

    def sums(at: Any, ids: Array, q: Array, p: Array, old: tuple[Array, Array]) -> tuple[Array, Array]:
        part = law.part(q, p, ids)
        if wide:
            return old[0], old[1] + _reduced(jnp.sum, jnp.where(rule.mask(part, alpha), part.q, 0.0))
        return old[0] + _reduced(jnp.sum, jnp.maximum(part.p - part.q, 0.0)), old[1]

    if wide or rule.name in FAR:
        distance, eta = over(sums, (zero, zero))
        law = law._replace(distance=distance, eta=eta)
    return law


def _added(model: Model, x: Array, ids: Array, rate: Array, drafts: Array) -> Model:
    """A model's sums, given its maximum, with some ids more."""
    below = x - model.top
    weight = jnp.exp(below)
    return Model(
        model.top,
        jnp.minimum(model.best, _reduced(jnp.min, jnp.where(below == 0, ids, model.best))),
        model.mass + _reduced(jnp.sum, jnp.exp(below * rate)),
        model.mass_raw + _reduced(jnp.sum, weight),
        # A weight of 0 may stand beside a logit of -inf.
        model.spread + _reduced(jnp.sum, jnp.where(weight > 0, weight * below, 0.0)),
        model.drafted + _reduced(jnp.sum, jnp.where(ids == drafts, x, 0.0)),
    )


def _write(rest: Any, law: Law, ends: Array, rejected: Array, over: Callable[..., Any]) -> None:
    """What the rows that end here draw their own token from."""

    def put(rows: Array, weights: Callable[[Part], Array]) -> Callable[..., Array]:
        def one(at: Any, ids: Array, q: Array, p: Array, total: Array) -> Array:
            new, to = weights(law.part(q, p, ids)), pl.ds(at, ids.shape[1])
            rest[:, to] = jnp.where(rows, new, rest[:, to])
            return total + _reduced(jnp.sum, new)

        return one

    zero = jnp.zeros(ends.shape, jnp.float32)
    total = over(put(ends, lambda part: verify.residual(law.pi(part), part.q, rejected)), zero)
    empty = ends & ~(total > 0)

    @pl.when(_any(empty))
    def _() -> None:
        over(put(empty, law.pi), zero)


def _over(q: Any, p: Any, chunk: int, body: Callable[[Any, Array, Array, Array, Any], Any], init: Any) -> Any:
    """body(first id, ids, both logits there, what came before) over all chunks; the last may be shorter."""
    rows, v = q.shape

    def step(at: Any, n: int, old: Any) -> Any:
        ids = at + lax.broadcasted_iota(jnp.int32, (rows, n), 1)
        return body(at, ids, q[:, pl.ds(at, n)], p[:, pl.ds(at, n)], old)

    whole, spare = divmod(v, chunk)
    one = lambda i, old: step(pl.multiple_of(i * chunk, chunk), chunk, old)
    # Fewer ids than a chunk has: a loop of no turns would be compiled, too.
    done = lax.fori_loop(0, whole, one, init) if whole else init
    return step(whole * chunk, spare, done) if spare else done


def _sampled(x: Array, ids: Array, model: Model, temperature: Array) -> Array:
    """Probabilities at the row's temperature; 0 is the one-hot argmax."""
    soft = jnp.exp((x - model.top) * _rate(temperature)) * (1 / model.mass)
    return jnp.where(temperature <= 0, (ids == model.best).astype(jnp.float32), soft)


def _rate(temperature: Array) -> Array:
    return 1 / jnp.where(temperature <= 0, 1.0, temperature)


def _reduced(reduce: Callable[..., Array], x: Array) -> Array:
    return reduce(x, axis=1, keepdims=True)


def _any(rows: Bool[Array, "b 1"]) -> Array:
    return jnp.max(rows.astype(jnp.int32)) > 0
