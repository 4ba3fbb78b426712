"""Texts to answers: two loaded models, their tokenizer, and a compiled loop for each method and shape."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spec_cascades import asking, methods, sharding, stops, storing
from spec_cascades.arranging import Arrangement
from spec_cascades.checkpoints import Loaded
from spec_cascades.config import Decoding, Mesh, Models
from spec_cascades.decode import loop, scheduler, sequence
from spec_cascades.storing import Storage
from spec_cascades.tokenizers import Tokenizer, check_compatible

BUCKET = 32
"""Prompts are padded to a multiple of this many tokens, so that few shapes compile."""


class Answer(NamedTuple):
    """One row's answer and counts.

    text: before a stop string; tokens: ids, the end symbol and what completes a stop string included;
    finish_reason: eos, stop, length or capacity (the target's window is full); judged, accepted: drafts the
    verifier decided on and kept, by position in the block (empty where nothing is drafted).
    """

    text: str
    tokens: list[int]
    finish_reason: str
    target_calls: int
    drafter_calls: int
    judged: list[int]
    accepted: list[int]


class Batch(NamedTuple):
    """Answers of one call; seconds: wall clock with the device synchronised, compilation apart.

    bytes_per_call: what a call of each model reads for the whole batch, weights and cache; info: what a
    sequence cascade says of its stages, by name; None for other methods.
    """

    answers: list[Answer]
    seconds: float
    compile_seconds: float
    bytes_per_call: dict[str, float]
    info: dict[str, Any] | None = None


class Call(NamedTuple):
    """The arguments of `loop.start`."""

    method: Any
    params: dict[str, Any]
    tokens: jax.Array
    lengths: jax.Array
    request: loop.Request
    max_new: int


class Engine:
    """A drafter and a target by reference (`checkpoints.load`), loaded when a method first needs them.

    drafter: also "lookup" or "lookup:N", n-grams of the text so far (`decode.lookup`), "exit:K", the
    target's first K layers, and "copy:MODEL", a model that trusts what the text repeats
    (`models.copying`); dtype: of the weights, "bfloat16" or "float32"; chat: prompts are a user's turn in
    the chat template of the target (or of a drafter without one); mesh: the devices that share the work;
    layers, attention, weights, cache, prefill_chunk, verification: as `config.Models` says, the drafter's
    weights and cache where None the target's. Raises ValueError for unknown references, for models whose
    tokenizers differ, where a method needs a model that was not given, and for what this machine or these
    models cannot do.
    """

    def __init__(
        self,
        target: str | None,
        drafter: str | None,
        dtype: str = "bfloat16",
        chat: bool = False,
        mesh: Mesh | None = None,
        layers: str | None = None,
        attention: str | None = None,
        weights: str = "dtype",
        cache: str = "float32",
        drafter_weights: str | None = None,
        drafter_cache: str | None = None,
        prefill_chunk: int | None = None,
        verification: str | None = None,
    ) -> None:
        self._refs, self._chat = {"target": target, "drafter": drafter}, chat
        self._layout = sharding.of(mesh)
        own = Storage(drafter_weights or weights, drafter_cache or cache)
        storage = {"target": Storage(weights, cache), "drafter": own}
        self._arranged = Arrangement(
            dtype, self._layout, layers, attention, storage, prefill_chunk, verification
        )
        self._loaded: dict[str, Loaded] = {}
        self._warm: dict[tuple[Any, ...], dict[str, float]] = {}

    def model(self, role: str) -> Loaded:
        """The model in the role "target" or "drafter", its parameters as decoding wants them."""
        if role not in self._loaded:
            ref = self._refs[role]
            if ref is None:
                raise ValueError(f"models.{role} is not given, and this method needs it")
            inner = methods.copying(ref) if role == "drafter" else None
            loaded = self._load(role, inner or ref)
            self._loaded[role] = methods.copied(loaded) if inner else loaded
        return self._loaded[role]

    def _load(self, role: str, ref: str) -> Loaded:
        if role == "drafter" and (layers := methods.exit_after(ref)) is not None:
            return self._arranged.exited(self.model("target"), layers)
        drafter = self._refs["drafter"]
        exits = methods.exit_after(methods.copying(drafter) or drafter) is not None
        return self._arranged.load(ref, role, cut=role == "target" and exits)

    def within(self) -> AbstractContextManager[Any]:
        """The context in which compiled functions see the engine's mesh; an empty one without."""
        return nullcontext() if self._layout is None else self._layout.within()

    def placed(self, call: Call) -> Call:
        """The call with its rows on the mesh, filled up to a multiple of `data`; as it is without one."""
        if self._layout is None:
            return call
        tokens, lengths, request = self._layout.batch(call.tokens, call.lengths, call.request)
        return call._replace(tokens=tokens, lengths=lengths, request=request)

    @cached_property
    def _models(self) -> list[str]:
        """The roles that a model of its own plays."""
        given = [role for role in ("drafter", "target") if self._refs[role] is not None]
        return [role for role in given if methods.looked_up(self._refs[role]) is None]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the models given; ValueError if they have none or differ."""
        found = [self.model(role) for role in self._models]
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

    def method(self, decoding: Decoding) -> loop.Method | sequence.Sequence:
        """The decoding method that a configuration names."""
        made = methods.method_of(decoding, self._refs["drafter"], lambda role: self.model(role).lm)
        return self._arranged.verified(made)

    def run(
        self,
        texts: list[str],
        decoding: Decoding | Sequence[Decoding],
        watch: Callable[[list[Answer]], None] | None = None,
        buffer: int | None = None,
    ) -> Batch:
        """Answers to one batch of prompts; a new shape is compiled apart.

        decoding: one for all, row i drawing from seed + i, or one a row, which may differ in all but
        `methods.SHARED`; watch: called after each block but the last with the answers so far (a stream of
        text); buffer: room for so many new tokens a row, so that batches of different limits share a shape.
        Raises ValueError for what the method cannot honour.
        """
        each = methods.each(decoding, len(texts))
        call = self.call(texts, each)
        call = call._replace(max_new=max(call.max_new, buffer or 0))
        if isinstance(call.method, sequence.Sequence):
            return self._in_sequence(call, each, watch)
        stop = (lambda before, out: self._ends(each, before, out)) if any(d.stop for d in each) else None
        answers = lambda out: [self._answer(out, i, d, call.request) for i, d in enumerate(each)]
        with self.within():
            there = self.placed(call)
            compile_seconds, read = self._compile(there, lambda one: _timed(one, None, None))
            out, seconds = _timed(there, watch and (lambda out: watch(answers(out))), stop)
        return Batch(answers(out), seconds, compile_seconds, read)

    def first_block(self, texts: list[str], decoding: Decoding | Sequence[Decoding]) -> float:
        """Seconds until each row has its first block, prefill included; what compiles is compiled apart.

        In a run of its own, since an answer that is decoded in two calls takes up to a tenth longer
        (`docs/log.md`). Raises ValueError as `run` does, and for a sequence cascade, whose `info` tells.
        """
        call = self.call(texts, methods.each(decoding, len(texts)))
        if isinstance(call.method, sequence.Sequence):
            raise ValueError("a sequence cascade has no first block: see the info of its batch")
        with self.within():
            call = self.placed(call)
            self._compile(call, lambda one: _timed(one, None, None))
            began = time.perf_counter()
            jax.block_until_ready(loop.run(call.method, call.params, loop.start(*call), call.request, 1))
            return time.perf_counter() - began

    def call(self, texts: list[str], decoding: Decoding | Sequence[Decoding]) -> Call:
        """One batch as `decode.loop.start` is called with it, for programs that drive the loop themselves."""
        each = methods.each(decoding, len(texts))
        method, prompts = self.method(each[0]), [self.encode(text) for text in texts]
        return Call(
            method,
            {role: self.model(role).params for role in method.models},
            *scheduler.pad(prompts, BUCKET),
            self._request(each, prompts, method),
            max(d.max_new_tokens for d in each),
        )

    def serve(
        self, texts: list[str], decoding: Decoding | Sequence[Decoding], slots: int, idle: int = 1
    ) -> Generator[tuple[int, Answer], None, scheduler.Stats]:
        """Yields (i, prompt i's answer) as they are ready; `slots` rows at a time, refilled as rows finish.

        Each answer is the one that `run` gives for the prompt alone. idle: free slots that call for a refill.
        Raises ValueError as `run` does, and for methods whose rows cannot be refilled.
        """
        each = methods.each(decoding, len(texts))
        method = self.method(each[0])
        if isinstance(method, sequence.Sequence):
            raise ValueError(f"method {each[0].method!r} answers whole batches: its slots cannot be refilled")
        prompts = [self.encode(text) for text in texts]
        request = self._request(each, prompts, method)
        ends = lambda rows, before, out: self._ends([each[i] for i in rows], before, out)
        serving = scheduler.serve(
            method,
            {role: self.model(role).params for role in method.models},
            prompts,
            request,
            max(d.max_new_tokens for d in each),
            slots,
            idle,
            BUCKET,
            ends if any(d.stop for d in each) else None,
        )
        return self._served(serving, each, request)

    def _served(
        self, serving: Any, each: Sequence[Decoding], request: loop.Request
    ) -> Generator[tuple[int, Answer], None, scheduler.Stats]:
        while True:
            try:
                # Not around the loop: whoever reads the answers would be left within the mesh.
                with self.within():
                    i, row = next(serving)
            except StopIteration as end:
                return end.value
            own = jax.tree.map(lambda x, i=i: x[i : i + 1], request)
            yield i, self._answer(row, 0, each[i], own)

    def flops_per_token(self) -> dict[str, float]:
        """FLOPs of one decoded token by role, attention over the context left out."""
        return {role: float(self.model(role).lm.flops_per_token()) for role in self._models}

    def _request(self, each: Sequence[Decoding], prompts: list[list[int]], method: Any) -> loop.Request:
        first = self.model(next(iter(method.models)))
        # An encoder's text is not the decoder's: it neither counts as repeated nor fills the window.
        own = [[] for _ in prompts] if getattr(first.lm, "encodes", False) else prompts
        window = lambda role: getattr(self.model(role).config, "context", None)
        windows = asking.Windows(**{role: window(role) for role in method.models})
        width = next(iter(method.models.values())).vocab
        return asking.request_of(each, own, self.tokenizer, width, windows)

    def _compile(self, call: Call, run: Callable[[Call], Any]) -> tuple[float, dict[str, float]]:
        """Seconds that a shape took to compile, 0 for one that had been; the bytes that its calls read."""
        shape = (call.method, *call.tokens.shape, call.max_new, call.request.edits is None)
        if shape in self._warm:
            return 0.0, self._warm[shape]
        one = call.request._replace(max_new_tokens=jnp.ones_like(call.request.max_new_tokens))
        began = time.perf_counter()
        run(call._replace(request=one))
        seconds = time.perf_counter() - began
        self._warm[shape] = {role: _bytes_per_call(call, role) for role in call.method.models}
        return seconds, self._warm[shape]

    def _in_sequence(self, call: Call, each: Sequence[Decoding], watch: Any) -> Batch:
        if any(d.stop for d in each):
            raise ValueError("stop: a sequence cascade scores whole answers and knows no stop strings")
        if jax.process_count() > 1:
            raise ValueError(f"method {each[0].method!r} regroups rows on one host: it runs in one process")
        with self.within():
            compile_seconds, read = self._compile(call, lambda one: sequence.warm(*one))
            began = time.perf_counter()
            out, info = sequence.run(*call)
        out, seconds = jax.device_get(out), time.perf_counter() - began
        answers = [self._answer(out, i, d, call.request) for i, d in enumerate(each)]
        told = info._asdict() | {"waiting_share": info.waiting_share}
        told = {key: np.asarray(value).tolist() for key, value in told.items()}
        return Batch(answers, seconds, compile_seconds, read, told)

    def _ends(
        self, each: Sequence[Decoding], before: loop.Generation, out: loop.Generation
    ) -> np.ndarray | None:
        """Where stop strings end the rows [b], loop.FOREVER for a row that goes on; None if all do."""
        length = np.full_like(out.length, loop.FOREVER)
        for i, d in enumerate(each):
            tokens, known = out.tokens[i, : out.length[i]].tolist(), int(before.length[i])
            if known < len(tokens) and (n := stops.stopped(self.tokenizer.decode, tokens, known, d.stop)):
                length[i] = n
        return length if (length < loop.FOREVER).any() else None

    def _answer(self, out: loop.Generation, i: int, decoding: Decoding, request: loop.Request) -> Answer:
        tokens = [int(t) for t in out.tokens[i, : out.length[i]]]
        calls = {name: int(n[i]) for name, n in out.ledger.calls.items()}
        text = self.tokenizer.decode(tokens)
        shown = stops.before(text, decoding.stop)
        full = request.capacity is not None and len(tokens) >= int(request.capacity[i])
        reason = "stop" if shown != text else "eos" if out.ended[i] else "capacity" if full else "length"
        return Answer(
            text=shown,
            tokens=tokens,
            finish_reason=reason,
            target_calls=calls.get("target", 0),
            drafter_calls=calls.get("drafter", 0),
            judged=out.ledger.judged[i].tolist(),
            accepted=out.ledger.accepted[i].tolist(),
        )


def engine_of(models: Models) -> Engine:
    """The engine that a configuration's `models` ask for. Raises ValueError as `Engine`."""
    return Engine(**vars(models))


def _bytes_per_call(call: Call, role: str) -> float:
    """What one call of a model reads for the whole batch: weights, and its cache as it lies in memory.

    Weights: half of `flops_per_token`, each of the bytes that most weights have, int8's scales included.
    Cache: every slot, used or not, since attention reads all of them and masks; an encoder's keys and values,
    too.
    """
    lm, width = call.method.models[role], getattr(call.method, "width", 1)
    weight = storing.bytes_a_weight(call.params[role])
    room = call.tokens.shape[1] + call.max_new + width
    # A sequence cascade's stages differ: its drafter's tokens come one a call.
    reach = loop.reach(call.method) if hasattr(call.method, "width") else 1
    _, cache = jax.eval_shape(
        lambda params, *prompts: lm.prefill(params, *prompts, room, reach),
        *(call.params[role], call.tokens, call.lengths),
    )
    slots = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves((cache.layers, cache.memory)))
    return lm.flops_per_token() / 2 * weight + float(slots)


def _timed(
    call: Call,
    watch: Callable[[loop.Generation], None] | None,
    stop: Callable[[loop.Generation, loop.Generation], np.ndarray | None] | None,
) -> tuple[loop.Generation, float]:
    """The answers and the seconds; `watch` or `stop` see each block, which costs a round trip."""
    began = time.perf_counter()
    with jax.profiler.TraceAnnotation("prefill"):
        progress = loop.start(*call)
    before = jax.device_get(loop.finish(progress, call.request)) if stop else None
    steps = 1 if watch or stop else loop.FOREVER
    while True:
        with jax.profiler.TraceAnnotation("run"):
            progress = loop.run(call.method, call.params, progress, call.request, steps)
            out, done = jax.device_get((loop.finish(progress, call.request), progress.done))
        if stop and (length := stop(before, out)) is not None:
            progress = loop.cut(progress, before, length)
            out, done = jax.device_get((loop.finish(progress, call.request), progress.done))
        if done.all():
            return out, time.perf_counter() - began
        before = out
        if watch:
            watch(out)
