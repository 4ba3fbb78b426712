"""An engine with no model: answers are made from the prompt, the decoding and the seed.

Run as a script it is the command line with this engine in place of the real one:
`python tests/fakes.py [--delay SECONDS] generate "Hello."`
"""

import random
import sys
import time
import types
from dataclasses import replace
from typing import NamedTuple

from spec_cascades.config import Decoding


class Answer(NamedTuple):
    text: str
    tokens: list[int]
    finish_reason: str
    target_calls: int
    drafter_calls: int
    judged: list[int]
    accepted: list[int]


class Batch(NamedTuple):
    answers: list[Answer]
    seconds: float
    compile_seconds: float
    bytes_per_call: dict[str, float]


class FakeEngine:
    """Words of the prompt, some dropped at random: fewer with a target, more with a drafter."""

    delay = 0.0
    encodes = False

    def __init__(
        self,
        target: str | None,
        drafter: str | None,
        dtype: str,
        chat: bool = False,
        mesh=None,
        layers=None,
        attention=None,
        weights: str = "dtype",
        cache: str = "float32",
        drafter_weights: str | None = None,
        drafter_cache: str | None = None,
        prefill_chunk: int | None = None,
        verification=None,
    ) -> None:
        self.compiled: set[tuple] = set()
        self.asked: list[tuple[str, int]] = []

    def run(self, texts: list[str], decoding: Decoding | list[Decoding], watch=None) -> Batch:
        one = isinstance(decoding, Decoding)
        each = [replace(decoding, seed=decoding.seed + i) for i in range(len(texts))] if one else decoding
        decoding = each[0]
        assert all(d.alpha is not None for d in each)
        time.sleep(self.delay)
        self.asked += [(text, d.seed) for text, d in zip(texts, each, strict=True)]
        answers = [self._answer(text, d, d.seed) for text, d in zip(texts, each, strict=True)]
        for end in (1, 2) if watch else ():
            watch([a._replace(text=" ".join(a.text.split()[:end]) + "\ufffd") for a in answers])
        key = (decoding.method, decoding.rule, decoding.gamma, len(texts))
        compiling = 0.0 if key in self.compiled else 2.0
        self.compiled.add(key)
        seconds = max(0.01 * a.target_calls + 0.001 * a.drafter_calls for a in answers)
        return Batch(answers, seconds, compiling, {"target": 2e6, "drafter": 1e6})

    def first_block(self, texts: list[str], decoding: Decoding | list[Decoding]) -> float:
        return 0.004

    def serve(self, texts: list[str], decoding: list[Decoding], slots: int):
        """Answers in the order in which the shortest come first."""
        rows = self.run(texts, decoding).answers
        for i in sorted(range(len(rows)), key=lambda i: len(rows[i].tokens)):
            yield i, rows[i]

    def encode(self, text: str) -> list[int]:
        return list(range(len(text.split())))

    def model(self, role: str) -> types.SimpleNamespace:
        """A model without a limit of its own."""
        return types.SimpleNamespace(
            ref="fake",
            lm=types.SimpleNamespace(encodes=self.encodes),
            config=types.SimpleNamespace(context=None),
        )

    def flops_per_token(self) -> dict[str, float]:
        return {"target": 8e6, "drafter": 1e6}

    def _answer(self, text: str, d: Decoding, seed: int) -> Answer:
        rng = random.Random(
            f"{text} {seed} {d.method} {d.rule} {d.alpha}" if d.temperature else f"{text} {d.method}"
        )
        loss = {"target": 0.1, "drafter": 0.4, "speculative": 0.1 + 0.1 * min(1, abs(d.alpha))}[d.method]
        words = [w for w in text.split() if rng.random() > loss * (1 - d.min_p)] or ["?"]
        n = len(words)
        if d.method != "speculative":
            calls = (n, 0) if d.method == "target" else (0, n)
            return Answer(" ".join(words), list(range(n)), "eos", *calls, [], [])
        blocks = -(-n // 2)
        judged = [blocks, n - blocks][: d.gamma] + [0] * max(0, d.gamma - 2)
        accepted = [n - blocks] + [0] * (d.gamma - 1)
        return Answer(
            " ".join(words), list(range(n)), "eos", blocks, blocks * (d.gamma + 1), judged, accepted
        )


if __name__ == "__main__":
    from spec_cascades import cli

    arguments = sys.argv[1:]
    if arguments[:1] == ["--delay"]:
        FakeEngine.delay = float(arguments[1])
        arguments = arguments[2:]
    engine = types.ModuleType("spec_cascades.engine")
    engine.Engine = FakeEngine
    engine.engine_of = lambda models: FakeEngine(**vars(models))
    sys.modules["spec_cascades.engine"] = engine
    sys.exit(cli.main(arguments))
