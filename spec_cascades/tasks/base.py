"""What a task is: a description as plain data, and from a row of its file to a prompt. No seqio, no jax."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

Row = Mapping[str, Any]
"""One example as published, or as TFDS gives it."""
Reference = str | list[str] | dict[str, str] | None
"""What the metric compares with: a text, several, the two halves of a test program, or nothing."""


class Item(NamedTuple):
    """One example before it is a prompt.

    question: never cut; target: the answer that a solved example shows; context: what is read, and cut first
    where the prompt is too long; split: of a file that holds several.
    """

    question: str
    target: str
    reference: Reference
    context: str = ""
    split: str = ""


class Parts(NamedTuple):
    """A prompt in pieces: an introduction, solved examples, then head, context and tail."""

    intro: str
    shots: tuple[str, ...]
    head: str
    context: str
    tail: str

    @property
    def text(self) -> str:
        """The whole prompt."""
        return "".join((self.intro, *self.shots, self.head, self.context, self.tail))


class View(NamedTuple):
    """How an example is put to a model: `head` before its context, `tail` behind; both may hold {question}.

    intro: before everything; join: between the prompt and the answer of a solved example, end: behind it;
    stop: ends an answer.
    """

    head: str
    tail: str = ""
    intro: str = ""
    join: str = " "
    end: str = "\n\n"
    stop: tuple[str, ...] = ()

    def parts(self, item: Item, shots: tuple[str, ...] = ()) -> Parts:
        """The prompt of an example. The question is put in as it is, braces and all."""
        fill = lambda text: text.replace("{question}", item.question)
        return Parts(self.intro, shots, fill(self.head), item.context, fill(self.tail))

    def shot(self, item: Item) -> str:
        """A solved example."""
        return self.parts(item).text.removeprefix(self.intro) + self.join + item.target + self.end


def stripped(answer: str) -> str:
    """The answer without white space around it."""
    return answer.strip()


@dataclass(frozen=True)
class Data:
    """One data set and how it is asked.

    kind: of task; tfds: "builder/config:version", None where TFDS has it not; layout: the published file;
    licence; split: evaluated by default; train: that shots come from; lengths: tokens of input and answer in
    the encoder-decoder view; shots: solved examples by default; max_new_tokens: of an answer in the other
    views; metric; paper: what the paper says it did; cut: what too long a prompt loses; read: rows of a file;
    item: a row as an example; extract: an answer as the metric wants it; sample: a made-up row in the
    published layout; package: (module, path in it) where a package ships the data set; order: of the examples
    that may be shots, where one file holds every split and some are standard (else shots are drawn).
    """

    name: str
    kind: str
    tfds: str | None
    layout: str
    licence: str
    split: str
    train: str | None
    lengths: tuple[int, int]
    shots: int
    max_new_tokens: int
    metric: str
    paper: str
    cut: str
    encdec: View
    few_shot: View
    chat: View
    read: Callable[[Path], list[Row]]
    item: Callable[[Row], Item]
    sample: Row
    extract: Callable[[str], str] = stripped
    package: tuple[str, str] | None = None
    order: Callable[[list[Item]], list[Item]] | None = None

    def view(self, name: str) -> View:
        """The view of a name: encdec, few_shot or chat."""
        return {"encdec": self.encdec, "few_shot": self.few_shot, "chat": self.chat}[name]
