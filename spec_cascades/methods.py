"""From a configuration to the decoding method it names, and to what each row of a batch asks for."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from spec_cascades import rules
from spec_cascades.checkpoints import Loaded
from spec_cascades.config import CATCH_UP, Decoding
from spec_cascades.decode import bild, sequence
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.lengths import Adaptive, Confident, Fixed, Lengths
from spec_cascades.decode.lookup import Lookup
from spec_cascades.decode.loop import LM, Method
from spec_cascades.decode.speculative import Speculative
from spec_cascades.decode.token_cascade import Oracle, TokenCascade
from spec_cascades.models import exited as early
from spec_cascades.models.copying import Copying
from spec_cascades.models.widened import same_width

SHARED = ("method", "rule", "gamma", "lengths", "confidence", "score", "quantile")
"""What rows of one batch have in common: it is compiled. All else is data."""


def method_of(
    decoding: Decoding, drafter_ref: str | None, lm: Callable[[str], LM]
) -> Method | sequence.Sequence:
    """The method; `lm` gives the model in a role. Raises ValueError for what does not go together."""
    if decoding.method in ("target", "drafter"):
        return Autoregressive(lm(decoding.method), decoding.method)
    longest = looked_up(drafter_ref)
    if longest is not None:
        if decoding.method != "speculative":
            raise ValueError(f"method {decoding.method!r} needs a model as drafter, not {drafter_ref!r}")
        target = lm("target")
        return Speculative(
            Lookup(target.vocab, longest), target, rules.get(decoding.rule), decoding.gamma, lengths(decoding)
        )
    drafter, target = same_width(lm("drafter"), lm("target"))
    rule = rules.get(decoding.rule)
    return {
        "speculative": lambda: Speculative(drafter, target, rule, decoding.gamma, lengths(decoding)),
        "bild": lambda: bild.bild(drafter, target, decoding.gamma, decoding.confidence),
        "token": lambda: TokenCascade(drafter, target, rule, CATCH_UP),
        "oracle": lambda: Oracle(drafter, target, rule),
        "sequence": lambda: sequence.Sequence(drafter, target, decoding.score, decoding.quantile),
        "hybrid": lambda: sequence.Sequence(drafter, target, decoding.score, decoding.quantile, verify=True),
    }[decoding.method]()


def pairing(decoding: Decoding, rows: int) -> list[Decoding]:
    """The decoding for each row, by a method that runs both models a token at a time."""
    return [replace(decoding, method="oracle", rule="drafter_only")] * rows


def default_alpha(decoding: Decoding) -> float:
    """The alpha that a decoding has where none is given."""
    own = {"sequence": 0.5, "hybrid": 0.5, "bild": 2.0}
    return own.get(decoding.method, float(rules.get(decoding.rule).default))


def lengths(decoding: Decoding) -> Lengths:
    """How many of the gamma drafts a block proposes."""
    policies: dict[str, Lengths] = {
        "fixed": Fixed(),
        "adaptive": Adaptive(),
        "confident": Confident(decoding.confidence),
    }
    return policies[decoding.lengths]


def each(decoding: Decoding | Sequence[Decoding], n: int) -> list[Decoding]:
    """One decoding a row: row i of a common one draws from seed + i.

    Raises ValueError where rows differ in what one batch must share, or ask for what the method refuses.
    """
    if isinstance(decoding, Decoding):
        rows = [replace(decoding, seed=decoding.seed + i) for i in range(n)]
    else:
        rows = list(decoding)
        if len(rows) != n:
            raise ValueError(f"{len(rows)} decodings for {n} prompts")
    for key in SHARED:
        values = {getattr(row, key) for row in rows}
        if len(values) > 1:
            raise ValueError(f"{key}: rows of one batch ask for {sorted(map(str, values))}; it must be one")
    if rows[0].method == "bild":
        bild.check(row.temperature for row in rows)
    return rows


def looked_up(ref: str | None) -> int | None:
    """The longest n-gram of a drafter "lookup" or "lookup:N"; None for a model."""
    return _number(ref, "lookup", 3)


def copying(ref: str | None) -> str | None:
    """The model that a drafter "copy:MODEL" asks besides the text itself; None for another drafter.

    Raises ValueError where what copies is no model.
    """
    name, _, model = (ref or "").partition(":")
    if name != "copy":
        return None
    if not model or model.partition(":")[0] in ("copy", "lookup"):
        raise ValueError(f"models.drafter: {ref!r} should be copy:MODEL with a model, such as copy:exit:4")
    return model


def exit_after(ref: str | None) -> int | None:
    """How many layers a drafter "exit:K" has; None for a model of its own."""
    return _number(ref, "exit", None)


def _number(ref: str | None, kind: str, default: int | None) -> int | None:
    name, colon, number = (ref or "").partition(":")
    if name != kind:
        return None
    if not colon and default is not None:
        return default
    if not number.isdecimal() or int(number) < 1:
        raise ValueError(f"models.drafter: {ref!r} should be {kind}:N with a whole number N of 1 or more")
    return int(number)


def copied(drafter: Loaded) -> Loaded:
    """The drafter with a share of q for what the text itself repeats."""
    return drafter._replace(lm=Copying(drafter.lm), ref=f"copy:{drafter.ref}")


def exited(target: Loaded, layers: int) -> Loaded:
    """The target's first layers as a drafter of their own, sharing its arrays."""
    lm, params = early.exited(target.lm, target.params, layers)
    return target._replace(lm=lm, params=params, config=lm.config, ref=f"exit:{layers}")
