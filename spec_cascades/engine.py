"""Texts to answers: two loaded models, their tokenizer, and a compiled loop for each method and shape."""

import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spec_cascades import checkpoints, rules
from spec_cascades.checkpoints import Loaded
from spec_cascades.config import Decoding
from spec_cascades.decode import loop
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.speculative import Speculative
from spec_cascades.models.widened import same_width
from spec_cascades.probs import Sampling
from spec_cascades.tokenizers import Tokenizer, check_compatible

BUCKET = 32
"""Prompts are padded to a multiple of this many tokens, so that few shapes compile."""


class Answer(NamedTuple):
    """One row's answer and counts.

    tokens: ids, the end symbol included; finish_reason: eos or length; judged, accepted: drafts the verifier
    decided on and kept, by position in the block (empty where nothing is drafted).
    """

    text: str
    tokens: list[int]
    finish_reason: str
    target_calls: int
    drafter_calls: int
    judged: list[int]
    accepted: list[int]


class Batch(NamedTuple):
    """Answers of one call; seconds: wall clock with the device synchronised, compilation apart."""

    answers: list[Answer]
    seconds: float
    compile_seconds: float


class Engine:
    """A drafter and a target by reference (`checkpoints.load`), loaded when a method first needs them.

    dtype: of the weights, "bfloat16" or "float32"; chat: prompts are a user's turn in the chat template of
    the target (or of a drafter without one). Raises ValueError for unknown references, for models
    whose tokenizers differ, and where a method needs a model that was not given.
    """

    def __init__(
        self, target: str | None, drafter: str | None, dtype: str = "bfloat16", chat: bool = False
    ) -> None:
        self._refs = {"target": target, "drafter": drafter}
        self._dtype, self._chat = dtype, chat
        self._loaded: dict[str, Loaded] = {}
        self._warm: set[tuple[loop.Method, int, int, int]] = set()

    def model(self, role: str) -> Loaded:
        """The model in the role "target" or "drafter", its parameters as decoding wants them."""
        if role not in self._loaded:
            if self._refs[role] is None:
                raise ValueError(f"models.{role} is not given, and this method needs it")
            loaded = checkpoints.load(self._refs[role], self._dtype)
            self._loaded[role] = loaded._replace(params=loaded.lm.serving(loaded.params))
        return self._loaded[role]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the models given; ValueError if they have none or differ."""
        found = [self.model(role) for role in ("drafter", "target") if self._refs[role] is not None]
        for loaded in found:
            if loaded.tokenizer is None:
                raise ValueError(
                    f"{loaded.ref} has no tokenizer: put spiece.model or tokenizer.json beside the weights"
                )
        check_compatible(found[0].tokenizer, found[-1].tokenizer)
        return found[0].tokenizer

    def encode(self, text: str) -> list[int]:
        """A prompt's ids as the models read it; ValueError for `chat` without a chat template."""
        if self._chat:
            text = self.tokenizer.chat([{"role": "user", "content": text}])
        return self.tokenizer.encode(text)

    def method(self, decoding: Decoding) -> loop.Method:
        """The decoding method that a configuration names."""
        if decoding.method in ("target", "drafter"):
            return Autoregressive(self.model(decoding.method).lm, decoding.method)
        drafter, target = same_width(self.model("drafter").lm, self.model("target").lm)
        return Speculative(drafter, target, rules.get(decoding.rule), decoding.gamma)

    def run(
        self, texts: list[str], decoding: Decoding, watch: Callable[[list[Answer]], None] | None = None
    ) -> Batch:
        """Answers to one batch of prompts, row i drawing from seed + i; a new shape is compiled apart.

        watch: called after each block but the last with the answers so far (a stream of text).
        """
        method = self.method(decoding)
        params = {role: self.model(role).params for role in method.models}
        tokens, lengths = self._pad([self.encode(text) for text in texts])
        request = self._request(decoding, len(texts))
        call = _Call(method, params, tokens, lengths, request, decoding.max_new_tokens)
        shape, compile_seconds = (method, *tokens.shape, decoding.max_new_tokens), 0.0
        if shape not in self._warm:
            one = request._replace(max_new_tokens=jnp.ones_like(request.max_new_tokens))
            compile_seconds = _timed(call._replace(request=one), None)[1]
            self._warm.add(shape)
        answers = lambda out: [self._answer(out, i, method) for i in range(len(texts))]
        out, seconds = _timed(call, watch and (lambda out: watch(answers(out))))
        return Batch(answers(out), seconds, compile_seconds)

    def flops_per_token(self) -> dict[str, float]:
        """FLOPs of one decoded token by role, attention over the context left out."""
        given = [role for role, ref in self._refs.items() if ref is not None]
        return {role: float(self.model(role).lm.flops_per_token()) for role in given}

    @staticmethod
    def _pad(rows: list[list[int]]) -> tuple[jax.Array, jax.Array]:
        longest = max(len(row) for row in rows)
        tokens = np.zeros((len(rows), -(-longest // BUCKET) * BUCKET), np.int32)
        for i, row in enumerate(rows):
            tokens[i, : len(row)] = row
        return jnp.asarray(tokens), jnp.asarray([len(row) for row in rows], jnp.int32)

    def _request(self, d: Decoding, b: int) -> loop.Request:
        alpha = d.alpha if d.alpha is not None else rules.get(d.rule).default
        fill = lambda value, dtype: np.full(b, value, dtype)
        sampling = Sampling(
            fill(d.temperature, np.float32),
            fill(d.top_k, np.int32),
            fill(d.top_p, np.float32),
            fill(d.min_p, np.float32),
        )
        eos = np.tile(np.asarray(self.tokenizer.stops, np.int32), (b, 1))
        limit = fill(d.max_new_tokens, np.int32)
        seeds = (d.seed + np.arange(b)).astype(np.uint32)
        return jax.tree.map(jnp.asarray, loop.Request(sampling, fill(alpha, np.float32), eos, limit, seeds))

    def _answer(self, out: loop.Generation, i: int, method: loop.Method) -> Answer:
        tokens = [int(t) for t in out.tokens[i, : out.length[i]]]
        steps, drafting = int(out.ledger.steps[i]), "drafter" in method.models
        return Answer(
            text=self.tokenizer.decode(tokens),
            tokens=tokens,
            finish_reason="eos" if out.ended[i] else "length",
            target_calls=steps if "target" in method.models else 0,
            drafter_calls=steps * method.width if drafting else 0,
            judged=out.ledger.judged[i].tolist(),
            accepted=out.ledger.accepted[i].tolist(),
        )


class _Call(NamedTuple):
    """The arguments of `loop.start`."""

    method: loop.Method
    params: dict[str, Any]
    tokens: jax.Array
    lengths: jax.Array
    request: loop.Request
    max_new: int


def _timed(call: _Call, watch: Callable[[loop.Generation], None] | None) -> tuple[loop.Generation, float]:
    """The answers and the seconds; `watch` sees what is there after each block, which costs a round trip."""
    began = time.perf_counter()
    progress = loop.start(*call)
    while True:
        progress = loop.run(call.method, call.params, progress, call.request, 1 if watch else loop.FOREVER)
        out, done = jax.device_get((loop.finish(progress, call.request), progress.done))
        if done.all():
            return out, time.perf_counter() - began
        if watch:
            watch(out)
