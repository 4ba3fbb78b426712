"""Tokens and who wrote them, read off the counts that a decode reports after each block. Imports no jax."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from spec_cascades.tokenizers import Stream, Tokenizer

DRAFT, KEPT, RESIDUAL, BONUS, TARGET, DRAFTER = "draft", "kept", "residual", "bonus", "target", "drafter"


class Counted(Protocol):
    """What an `engine.Answer` says of the text so far."""

    @property
    def tokens(self) -> list[int]: ...

    @property
    def judged(self) -> list[int]: ...

    @property
    def accepted(self) -> list[int]: ...


class Block(NamedTuple):
    """`count` new tokens from position `first` on, with the drafts at their front judged and accepted."""

    first: int
    count: int
    judged: int
    accepted: int


class Numbers(NamedTuple):
    """What is held of one token at its position (or, as arrays, of each).

    q, p: as sampled; tv: D_TV(p, q), as sampled; q_raw, p_raw, tv_raw: at temperature 1, unfiltered; pi: the
    law's at the token; rejects: P(a draft at this position is rejected), D_TV(q, pi) in verification and q's
    share of what the mask defers in a cascade of one token a step; r: whether the rule defers the token, None
    for a law without a mask.
    """

    q: Any
    p: Any
    tv: Any
    q_raw: Any
    p_raw: Any
    tv_raw: Any
    pi: Any
    rejects: Any
    r: Any


class Choice(NamedTuple):
    """One of a model's likeliest next tokens, with its probability at temperature 1."""

    text: str
    probability: float


class Rejected(NamedTuple):
    """The draft that gave way to a token."""

    text: str
    numbers: Numbers


class Token(NamedTuple):
    """One token of an answer.

    text: what it adds to the text, "" for an end symbol or part of a character; piece: its name in the
    vocabulary; author: one of this module's names; position, block: from 0; uniform: the u of the
    draft that verification held against pi here (it stands where u q < pi), None where it did not; rejected:
    the draft whose place the token has; drafter_best, target_best: both models' likeliest.
    """

    text: str
    piece: str
    id: int
    author: str
    position: int
    block: int
    numbers: Numbers
    uniform: float | None
    rejected: Rejected | None
    drafter_best: tuple[Choice, ...]
    target_best: tuple[Choice, ...]


class Trace(NamedTuple):
    """One answer; disagreements: positions at which drawing again from the recomputed q and p gives another
    token or verdict than the decode (0 but for last bits, as those of bfloat16).
    """

    name: str
    text: str
    finish_reason: str
    tokens: list[Token]
    blocks: int
    target_calls: int
    drafter_calls: int
    disagreements: int

    def count(self, author: str) -> int:
        """How many tokens are of this author."""
        return sum(token.author == author for token in self.tokens)


def blocks(snapshots: Sequence[Counted]) -> list[Block]:
    """One block from each snapshot to the next, the first from nothing; the last snapshot is the answer.

    Raises ValueError for counts that no block can have added: snapshots that miss a block.
    """
    found, before = [], (0, 0, 0)
    for now in snapshots:
        after = (len(now.tokens), sum(now.judged), sum(now.accepted))
        new = Block(before[0], *(b - a for a, b in zip(before, after, strict=True)))
        if not (0 <= new.accepted <= new.judged <= new.accepted + 1 and new.judged <= new.count):
            raise ValueError(f"{new} is no block: a draft behind a rejected one is never judged")
        # A draft behind an end symbol or a limit is not emitted, and no other token ends a block of drafts.
        if not 1 <= new.count <= new.accepted + 1:
            raise ValueError(f"{new} is no block: it adds its accepted drafts and at most one token")
        found, before = [*found, new], after
    return found


def authors(block: Block, alone: str, replaced: str) -> list[str]:
    """Each token's author: accepted drafts, then `replaced` after a rejection or a bonus behind the last.

    alone: of a token that no draft was proposed before.
    """
    if block.judged > block.accepted:
        last = replaced
    else:
        last = BONUS if block.judged else alone
    return [DRAFT] * block.accepted + [last] * (block.count - block.accepted)


def texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """What each id adds to the text; a character of several ids comes with the last of them."""
    stream = Stream(tokenizer)
    parts = [stream.feed([i]) for i in ids]
    return [*parts[:-1], parts[-1] + stream.end()] if parts else []


BLANKS = {i: 0x2400 + i for i in range(32)} | {ord(" "): "\N{OPEN BOX}"}


def piece(tokenizer: Tokenizer, token: int) -> str:
    """The token's name in the vocabulary."""
    return tokenizer.pieces[token] if token < len(tokenizer.pieces) else f"<{token}>"


def alone(tokenizer: Tokenizer, token: int) -> str:
    """A token's text by itself, blanks as pictures; its name where it is none or part of a character."""
    text = tokenizer.decode([token])
    if not text or "\N{REPLACEMENT CHARACTER}" in text:
        return piece(tokenizer, token)
    return text if text.strip() else text.translate(BLANKS)
