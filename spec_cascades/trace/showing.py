"""The words, marks and figures that the terminal and the page have in common. Imports no jax."""

from typing import NamedTuple

from spec_cascades.trace.tokens import (
    BONUS,
    DRAFT,
    DRAFTER,
    KEPT,
    RESIDUAL,
    TARGET,
    Choice,
    Numbers,
    Token,
    Trace,
)


class Author(NamedTuple):
    """mark: what stands behind a token without colours; about: the legend."""

    mark: str
    about: str


AUTHORS = {
    DRAFT: Author("", "draft accepted, as lossless verification would have"),
    KEPT: Author("*", "draft kept by the rule, though lossless verification would have rejected it"),
    RESIDUAL: Author("!", "residual, in place of a rejected draft"),
    BONUS: Author("+", "bonus: pi's own token where no draft is left to judge"),
    TARGET: Author("", "the target's own token"),
    DRAFTER: Author("", "the drafter's own token"),
}
BLOCK = "|"
"""Between two blocks: where the target is called again."""


class Settings(NamedTuple):
    """What the answers have in common, for a line above them."""

    prompt: str
    target: str
    drafter: str
    dtype: str
    temperature: float
    gamma: int
    seed: int
    filtered: bool

    @property
    def unlike(self) -> bool:
        """Whether q and p as sampled are not those of temperature 1."""
        return self.temperature != 1 or self.filtered

    @property
    def line(self) -> str:
        how = "greedy" if self.temperature == 0 else f"temperature {self.temperature:g}, seed {self.seed}"
        models = f"target {self.target}, drafter {self.drafter}"
        return f"{models}, {self.dtype}; {how}, gamma {self.gamma}{', filtered' * self.filtered}"


def visible(text: str) -> str:
    """The text with control characters as pictures, so that neither a terminal nor a page obeys them."""
    pictures = {i: 0x2400 + i for i in range(32)} | {127: 0x2421} | {i: 0xFFFD for i in range(128, 160)}
    return text.translate(pictures)


def shown(token: Token) -> str:
    """What the token adds to the text, or its name where that is nothing to see."""
    return visible(token.text) if token.text else f"‹{visible(token.piece)}›"


def parted(token: Token) -> tuple[str, str, str]:
    """`shown` as the spaces before it, the rest, and the line break behind it where it ends a line."""
    text = shown(token)
    body = text.lstrip(" ") or "␣"
    return text[: len(text) - len(body)], body, "\n" * body.endswith("␊")


def begins(trace: Trace, before: Token | None, token: Token) -> bool:
    """Whether the target was called anew here, to judge drafts: models alone have no blocks to show.

    A token cascade's steps are no blocks, either: they call the target only where they defer.
    """
    drafting = before is not None and {before.author, token.author}.isdisjoint((TARGET, DRAFTER))
    return drafting and before.block != token.block and trace.target_calls == trace.blocks


def used(traces: list[Trace]) -> dict[str, Author]:
    """The authors that occur, in the order of the legend."""
    written = {token.author for trace in traces for token in trace.tokens}
    return {name: author for name, author in AUTHORS.items() if name in written}


def calls(trace: Trace) -> str:
    """'16 tokens from 5 target calls and 25 drafter calls'; a stop string or a limit is told."""
    ended = {"eos": "", "stop": ", ended by a stop string", "length": ", cut at the limit"}
    calls = [
        f"{n} {role} call{'s' * (n != 1)}"
        for n, role in ((trace.target_calls, "target"), (trace.drafter_calls, "drafter"))
        if n
    ]
    reason = ended.get(trace.finish_reason, ", the target's window is full")
    return f"{len(trace.tokens)} tokens from {' and '.join(calls)}{reason}"


def check(traces: list[Trace]) -> str:
    """The line that says whether the figures are those of the decode."""
    tokens, off = sum(len(t.tokens) for t in traces), sum(t.disagreements for t in traces)
    line = f"check: every draw made again from the recomputed q and p: {off} of {tokens} tokens differ"
    return line + (" (the last bits of q and p differ between calls of other lengths)" if off else "")


class Contest(NamedTuple):
    """A draft that the target would not have written: what both models held of it, and what became of it."""

    answer: str
    token: Token
    draft: str
    numbers: Numbers

    @property
    def outcome(self) -> str:
        return "kept" if self.token.author == KEPT else f"→ {shown(self.token).strip()}"


def contests(traces: list[Trace]) -> list[Contest]:
    """Where a draft was rejected, or kept though lossless verification would have rejected it."""
    found = []
    for trace in traces:
        for token in trace.tokens:
            if token.author == KEPT:
                found.append(Contest(trace.name, token, shown(token).strip(), token.numbers))
            elif token.rejected is not None:
                draft, numbers = token.rejected
                found.append(Contest(trace.name, token, visible(draft), numbers))
    return found


def facts(token: Token, unlike: bool) -> list[tuple[str, str]]:
    """What hover shows, as (label, value); `unlike`: q and p as sampled are not those of temperature 1."""
    place = f"(id {token.id}), position {token.position + 1}, block {token.block + 1}"
    rows = [("token", f"{visible(token.piece)} {place}"), ("written by", AUTHORS[token.author].about)]
    rows += _held(token.numbers, unlike)
    if token.rejected is not None:
        rows.append(("rejected draft", visible(token.rejected.text)))
        rows += _held(token.rejected.numbers, unlike)
    judged = token.numbers if token.rejected is None else token.rejected.numbers
    if token.uniform is not None:
        sign = "<" if token.rejected is None else ">="
        rows.append(("verdict", f"u q = {number(token.uniform * judged.q)} {sign} pi = {number(judged.pi)}"))
    rows.append(("P(reject) here", number(token.numbers.rejects)))
    rows.append(("drafter's best", _best(token.drafter_best)))
    rows.append(("target's best", _best(token.target_best)))
    return rows


def _held(n: Numbers, unlike: bool) -> list[tuple[str, str]]:
    triple = lambda *x: ", ".join(map(number, x))
    rows = [("q, p, TV", triple(n.q_raw, n.p_raw, n.tv_raw))]
    if unlike:
        rows.append(("as sampled", triple(n.q, n.p, n.tv)))
    rule = "no mask" if n.r is None else f"r = {int(n.r)} ({'defers' if n.r else 'keeps'})"
    return [*rows, ("rule", f"{rule}, pi = {number(n.pi)}")]


def _best(choices: tuple[Choice, ...]) -> str:
    return ", ".join(f"{visible(c.text)} {number(c.probability)}" for c in choices)


def number(x: float) -> str:
    """Two decimals, or the power of ten of what they would call 0."""
    return f"{x:.2f}" if x >= 0.005 or x == 0 else f"{x:.0e}"
