"""The `task` part of a configuration. Imports no task and no jax."""

import random
import re
from dataclasses import dataclass
from typing import TypeVar

from spec_cascades.checks import ConfigError, choose, require

NAMES = (
    *("wmt14_en_de", "cnn_dailymail", "xsum", "gsm8k", "mbpp", "humaneval", "squad_v2"),
    *("web_questions", "natural_questions_open", "trivia_qa", "spec_bench", "local"),
)
"""The names of `spec_cascades.tasks.registry.TASKS`, which need not be loaded to check a name."""
VIEWS = ("encdec", "few_shot", "chat")
METRICS = (
    *("bleu", "rouge1", "rouge2", "rougeLsum", "accuracy"),
    *("em", "f1", "open_em", "open_f1", "trivia_em", "trivia_f1"),
)
"""What a user's own data may be scored by; `spec_cascades.metrics.scoring` has pass@1 besides."""

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """Which questions are asked, how, and what answers are scored by. Null leaves the choice to the task.

    path: a file in the published layout of the data set `name`, or of your own ("local", or no name at all);
    without it a named data set comes from TFDS or its own package. Without a name the file holds pairs, a TSV
    or `input` and `target` of a .jsonl, scored by BLEU; `prefix` stands before each source and `join` makes
    one example of that many pairs.
    view: encdec (T5's prefixes), few_shot (text to be continued) or chat (the instruction alone); shots:
    solved examples before the question, from the training split, `shots_path` where `path` is given; split:
    that is evaluated; shuffle: a seed that puts the examples in another order; skip: the first so many are
    left out; limit: the first so many of the others; shard "i/n": the i-th of n equal parts, from 0;
    max_input_tokens: longer prompts are cut as the task says.
    Of "local" alone: metric; input and target, names of fields; template, the prompt, with {input} or any
    other field in braces. Raises ConfigError for values out of range and keys that mean nothing together.
    """

    path: str | None = None
    limit: int | None = None
    join: int = 1
    prefix: str = ""
    name: str | None = None
    view: str | None = None
    shots: int | None = None
    shots_path: str | None = None
    split: str | None = None
    metric: str | None = None
    input: str = "input"
    target: str = "target"
    template: str | None = None
    shard: str | None = None
    max_input_tokens: int | None = None
    skip: int | None = None
    shuffle: int | None = None

    def __post_init__(self) -> None:
        require("limit", self.limit, self.limit is None or self.limit >= 1, "1 or more, or null")
        for key in ("skip", "shuffle"):
            value = getattr(self, key)
            require(key, value, value is None or value >= 0, "0 or more, or null")
        require("join", self.join, self.join >= 1, "1 or more")
        require("shots", self.shots, self.shots is None or self.shots >= 0, "0 or more, or null")
        longest = self.max_input_tokens
        require("max_input_tokens", longest, longest is None or longest >= 1, "1 or more, or null")
        for key, choices in (("name", NAMES), ("view", VIEWS), ("metric", METRICS)):
            if getattr(self, key) is not None:
                choose(key, getattr(self, key), choices)
        self._check_together()
        parts(self.shard)

    def _check_together(self) -> None:
        if self.path is None and self.name in (None, "local"):
            kind = "one without a name" if self.name is None else "'local'"
            raise ConfigError(
                f"path: missing; a task is a file ({kind}), or has a name of {', '.join(NAMES)}"
            )
        if self.name is None:
            self._only("name", "view", "shots", "shots_path", "split", "metric", "template")
        elif self.name != "local":
            self._only("name: local", "metric", "template")
        if self.name is not None and (self.join != 1 or self.prefix):
            raise ConfigError("join and prefix are for a file of pairs: leave out task.name")

    def _only(self, where: str, *keys: str) -> None:
        """Raises ConfigError for a key that means nothing here."""
        given = [key for key in keys if getattr(self, key) is not None]
        if given:
            raise ConfigError(f"{given[0]}: {getattr(self, given[0])!r} has a meaning only with task.{where}")


def taken(task: Task, examples: list[T]) -> list[T]:
    """Those that `shuffle`, `skip` and `limit` leave, in order. Raises ConfigError where that is none."""
    order, first = list(examples), task.skip or 0
    if task.shuffle is not None:
        random.Random(task.shuffle).shuffle(order)
    found = order[first : None if task.limit is None else first + task.limit]
    if not found:
        raise ConfigError(f"task.skip: {task.skip}, but there are {len(order)} examples")
    return found


def parts(shard: str | None) -> tuple[int, int]:
    """(i, n) of "i/n", (0, 1) for None. Raises ConfigError unless 0 <= i < n."""
    found = re.fullmatch(r"(\d+)/(\d+)", shard or "0/1")
    i, n = (int(x) for x in found.groups()) if found else (0, 0)
    require("shard", shard, i < n, 'of the form "i/n" with 0 <= i < n')
    return i, n
