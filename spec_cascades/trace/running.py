"""One prompt decoded and traced: the target alone, lossless speculation, and the decoding asked for."""

from dataclasses import asdict, replace
from typing import Any

from spec_cascades import methods, rules
from spec_cascades.along import along
from spec_cascades.checks import ConfigError
from spec_cascades.config import Decoding, Models, label
from spec_cascades.engine import Answer, Engine
from spec_cascades.sweep import with_alpha
from spec_cascades.tokenizers import Tokenizer
from spec_cascades.trace import tokens as who
from spec_cascades.trace.figures import Figures, Law, figures
from spec_cascades.trace.tokens import (
    BONUS,
    DRAFT,
    DRAFTER,
    KEPT,
    RESIDUAL,
    TARGET,
    Block,
    Choice,
    Numbers,
    Rejected,
    Token,
    Trace,
)

WHOLE = ("sequence", "hybrid")
"""Methods that keep or replace whole answers: they are not watched block by block."""


def check(models: Models) -> None:
    """Raises ConfigError for a drafter without a q: a trace shows q beside p."""
    if models.drafter is None or methods.looked_up(models.drafter) is not None:
        raise ConfigError(
            f"models.drafter: {models.drafter!r} has no q that a trace could show; "
            "choose a model's reference or exit:K"
        )


def traces(engine: Engine, text: str, decoding: Decoding) -> list[Trace]:
    """The target alone, lossless speculation and `decoding`, unless that is one of the two."""
    asked = with_alpha(decoding)
    alone = replace(asked, method="target", alpha=0.0)
    lossless = replace(asked, method="speculative", rule="lossless", alpha=0.0)
    among = asked.method == "target" or (asked.method, asked.rule) == ("speculative", "lossless")
    return [trace(engine, text, one) for one in (alone, lossless, *[asked] * (not among))]


def trace(engine: Engine, text: str, decoding: Decoding) -> Trace:
    """One answer to the prompt, token by token. Raises ValueError for what the engine or `along` refuses."""
    decoding = with_alpha(decoding)
    seen: list[Answer] = []
    batch = engine.run([text], decoding, lambda answers: seen.append(answers[0]))
    answer, law = batch.answers[0], _law(engine, decoding, batch.info)
    whole = decoding.method in WHOLE
    blocks = _in_sequence(answer, decoding, batch.info) if whole else who.blocks([*seen, answer])
    alone = {"speculative": BONUS, "bild": BONUS, "drafter": DRAFTER}.get(decoding.method, TARGET)
    written = [a for block in blocks for a in who.authors(block, alone, TARGET if law.masked else RESIDUAL)]
    judged = [place < block.judged for block in blocks for place in range(block.count)]
    # A mask decides without a number, and so does the score of a sequence cascade's whole answer.
    verified = not law.masked and (not whole or batch.info["deferred"][0])
    (pair,) = along(engine, [text], [answer.tokens], decoding)
    with engine.within():
        found = figures(pair, answer.tokens, judged, law, decoding.seed)
    authors = [KEPT if a == DRAFT and not h else a for a, h in zip(written, found.holds, strict=True)]
    return Trace(
        name=label(decoding, asdict(decoding)),
        text=answer.text,
        finish_reason=answer.finish_reason,
        tokens=_tokens(engine.tokenizer, answer.tokens, blocks, authors, judged, verified, found),
        blocks=len(blocks),
        target_calls=answer.target_calls,
        drafter_calls=answer.drafter_calls,
        disagreements=_disagreements(answer.tokens, authors, judged, found),
    )


def _law(engine: Engine, decoding: Decoding, info: dict[str, Any] | None) -> Law:
    """The law the answer was drawn from; a sequence cascade's is that of the model that wrote it."""
    method = decoding.method
    if method in WHOLE:
        method = "target" if info["deferred"][0] else "drafter"
    if method in ("target", "drafter"):
        return Law(rules.get({"target": "lossless", "drafter": "drafter_only"}[method]), 0.0)
    rule = engine.method(decoding).rule
    return Law(rule, decoding.alpha, method in ("token", "oracle") and isinstance(rule, rules.Deferral))


def _in_sequence(answer: Answer, decoding: Decoding, info: dict[str, Any]) -> list[Block]:
    """A sequence cascade's blocks: an answer that was kept is one long draft.

    Of one that was deferred a hybrid keeps a front, and the target adds a token and goes on alone.
    """
    kept, length = info["kept"][0], len(answer.tokens)
    if kept == length:
        return [Block(0, kept, kept, kept)]
    first = [Block(0, kept + 1, kept + 1, kept)] if decoding.method == "hybrid" else []
    return first + [Block(i, 1, 0, 0) for i in range((kept + 1) * len(first), length)]


def _tokens(
    tokenizer: Tokenizer,
    ids: list[int],
    blocks: list[Block],
    authors: list[str],
    judged: list[bool],
    verified: bool,
    found: Figures,
) -> list[Token]:
    texts = who.texts(tokenizer, ids)
    numbers = [n for n, block in enumerate(blocks) for _ in range(block.count)]
    name = lambda token: who.alone(tokenizer, int(token))

    def one(i: int) -> Token:
        replaced = judged[i] and authors[i] not in (DRAFT, KEPT)
        return Token(
            text=texts[i],
            piece=who.piece(tokenizer, ids[i]),
            id=ids[i],
            author=authors[i],
            position=i,
            block=numbers[i],
            numbers=_at(found.numbers, i),
            uniform=float(found.uniform[i]) if judged[i] and verified else None,
            rejected=Rejected(name(found.draft[i]), _at(found.drafted, i)) if replaced else None,
            drafter_best=best(found.drafter_best, i),
            target_best=best(found.target_best, i),
        )

    def best(likeliest: tuple[Any, Any], i: int) -> tuple[Choice, ...]:
        pairs = zip(*(x[i] for x in likeliest), strict=True)
        return tuple(Choice(name(token), float(x)) for token, x in pairs)

    return [one(i) for i in range(len(ids))]


def _at(numbers: Numbers, i: int) -> Numbers:
    """One token's numbers, r a bool."""
    *floats, r = numbers
    return Numbers(*(float(x[i]) for x in floats), None if r is None else bool(r[i]))


def _disagreements(ids: list[int], authors: list[str], judged: list[bool], found: Figures) -> int:
    """Positions at which the draws made again give another token or another verdict."""
    stood = [author in (DRAFT, KEPT) for author in authors]
    rows = zip(ids, stood, judged, found.drawn, found.stands, strict=True)
    return sum(token != drawn or (decided and kept != stands) for token, kept, decided, drawn, stands in rows)
