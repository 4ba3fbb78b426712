"""Text as it is generated, character by character complete."""

from collections.abc import Iterable

from spec_cascades.tokenizers.base import Tokenizer, before_stop

BROKEN = "\N{REPLACEMENT CHARACTER}"


class Stream:
    """Ids in, text out: a character whose bytes are spread over several ids waits for the last of them.

    What `feed` and `end` return joins to `tokenizer.decode` of all ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # A short context is decoded again each time, since a piece's text may depend on the one before it.
        self._context: list[int] = []
        self._new: list[int] = []
        self._ended = False

    def feed(self, ids: Iterable[int]) -> str:
        """The text that is complete with these ids; nothing after an id that ends a text."""
        if self._ended:
            return ""
        given = [int(i) for i in ids]
        kept = before_stop(given, self._tokenizer.stops)
        self._ended = len(kept) < len(given)
        self._new += kept
        text = self._fresh()
        if self._ended or not text or text.endswith(BROKEN):
            return self.end() if self._ended else ""
        self._context, self._new = self._new, []
        return text

    def end(self) -> str:
        """What was held back, complete or not; the stream takes no more."""
        text, self._new, self._ended = self._fresh(), [], True
        return text

    def _fresh(self) -> str:
        before = self._tokenizer.decode(self._context)
        return self._tokenizer.decode(self._context + self._new)[len(before) :]
