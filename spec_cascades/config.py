"""What a run is made of: plain frozen data, filled from a file and key=value overrides. Imports no jax."""

import itertools
import math
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from spec_cascades import reading
from spec_cascades.checks import ConfigError, choose, require
from spec_cascades.reading import build, known, renamed
from spec_cascades.tasks.settings import Task

METHODS = ("target", "drafter", "speculative", "bild", "token", "oracle", "sequence", "hybrid")
RULES = (
    *("lossless", "drafter_only", "chow", "chow_log", "diff", "diff_log", "opt", "opt_log"),
    *("v1", "v2", "v3", "topk", "typical", "bild", "lossy", "lossy_solved", "ensemble", "tv_bound"),
)
"""The names of `spec_cascades.rules.RULES`, which cannot be read here without importing jax."""
UNTUNED = ("lossless", "drafter_only")
"""Rules that read no alpha."""
DTYPES = ("bfloat16", "float32")
LAYERS = ("scanned", "unrolled")
KERNELS = ("dense", "kernel")
WEIGHTS = ("dtype", "int8")
CACHES = ("float32", "bfloat16", "int8")
LENGTHS = ("fixed", "adaptive", "confident")
SCORES = ("sum", "average", "quantile")
LISTS = ("forbidden", "stop", "eos")
"""Keys of `Decoding` whose value is a list, so that a sweep's list of values is a list of lists."""
CATCH_UP = 8
"""Tokens that one catching-up call of a token cascade reads (`decode.token_cascade`)."""
EMBEDDED_TASK = "embedded:en-de-everyday"

T = TypeVar("T")


@dataclass(frozen=True)
class Mesh:
    """data x model devices: rows are divided among `data` groups, each model among the `model` of a group.

    drafter: over how many of a group the drafter is divided, the rest holding copies; null: as the target.
    """

    data: int = 1
    model: int = 1
    drafter: int | None = None

    def __post_init__(self) -> None:
        for key in ("data", "model"):
            require(key, getattr(self, key), getattr(self, key) >= 1, "1 or more")
        divides = self.drafter is None or (self.drafter >= 1 and self.model % self.drafter == 0)
        require("drafter", self.drafter, divides, f"a divisor of model, {self.model}, or null")


@dataclass(frozen=True)
class Models:
    """References of the two models, by default the embedded pair; null for one that no point runs.

    dtype: that products are computed in. weights: held in that dtype, or as int8 with a scale a channel.
    cache: what keys and values are held in; int8 has a scale a token and head. drafter_weights and
    drafter_cache: the drafter's where they differ. chat: prompts are a user's turn in the target's own chat
    template. mesh: the devices, null for one; a configuration's `mesh` is short for this one. layers: scanned
    (compiles in the time of one layer), unrolled (faster on a CPU), or null for what suits the backend and
    the depth. attention: kernel (a TPU's, which reads a cache up to each row's length), or dense, as null.
    prefill_chunk: longer prompts are read in pieces of at most so many tokens; null for 512. No model with an
    encoder does that. verification: kernel (a TPU's, which reads the models' scores once), or dense, as null.
    """

    target: str | None = "embedded:en-de-target"
    drafter: str | None = "embedded:en-de-drafter"
    dtype: str = "bfloat16"
    chat: bool = False
    mesh: Mesh | None = None
    layers: str | None = None
    attention: str | None = None
    weights: str = "dtype"
    cache: str = "float32"
    drafter_weights: str | None = None
    drafter_cache: str | None = None
    prefill_chunk: int | None = None
    verification: str | None = None

    def __post_init__(self) -> None:
        choose("dtype", self.dtype, DTYPES)
        if self.layers is not None:
            choose("layers", self.layers, LAYERS)
        for key in ("attention", "verification"):
            if (how := getattr(self, key)) is not None:
                choose(key, how, KERNELS)
        for key, choices in {"weights": WEIGHTS, "cache": CACHES}.items():
            choose(key, getattr(self, key), choices)
            if (own := getattr(self, f"drafter_{key}")) is not None:
                choose(f"drafter_{key}", own, choices)
        chunk = self.prefill_chunk
        require("prefill_chunk", chunk, chunk is None or chunk >= 1, "1 or more, or null")

    def held(self, role: str) -> tuple[str, str]:
        """What weights and cache of "target" or "drafter" are held in."""
        if role == "target":
            return self.weights, self.cache
        return self.drafter_weights or self.weights, self.drafter_cache or self.cache


HELD = {key: getattr(Models, key) for key in ("weights", "cache", "drafter_weights", "drafter_cache")}
"""How weights and caches are held where nothing is said of it, as in older records."""


def told(models: dict[str, Any]) -> str:
    """'bfloat16, weights int8': the dtype of a run's models, and what is not held as usual."""
    unusual = [f"{key} {models[key]}" for key, usual in HELD.items() if models.get(key, usual) != usual]
    return ", ".join([models["dtype"], *unusual])


@dataclass(frozen=True)
class Decoding:
    """How answers are drawn. alpha None stands for the rule's default; temperature 0 is greedy.

    top_k 0, top_p 1 and min_p 0 leave a filter out. gamma: drafts a block, as many as `lengths` says: fixed,
    adaptive (by the last blocks) or confident (until max q < confidence). score, quantile: what a sequence
    cascade defers by. repetition_penalty, logit_bias (id: addend) and forbidden (ids) change the scores that
    every rule sees. stop: strings that end an answer, which does not show them; eos: ids in place of the
    tokenizer's. samples: answers a prompt. Raises ConfigError for a value out of range.
    """

    method: str = "speculative"
    rule: str = "v3"
    alpha: float | None = None
    gamma: int = 4
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_new_tokens: int = 64
    seed: int = 0
    batch_size: int = 1
    lengths: str = "fixed"
    confidence: float = 0.6
    score: str = "average"
    quantile: float = 0.5
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    forbidden: list[int] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    eos: list[int] | None = None
    samples: int = 1

    def __post_init__(self) -> None:
        choose("method", self.method, METHODS)
        choose("rule", self.rule, RULES)
        require("alpha", self.alpha, self.alpha is None or not math.isnan(self.alpha), "a number or null")
        choose("lengths", self.lengths, LENGTHS)
        choose("score", self.score, SCORES)
        for key in ("gamma", "max_new_tokens", "batch_size", "samples"):
            require(key, getattr(self, key), getattr(self, key) >= 1, "1 or more")
        for key in ("top_k", "seed"):
            require(key, getattr(self, key), getattr(self, key) >= 0, "0 or more")
        require(
            "temperature",
            self.temperature,
            0 <= self.temperature < math.inf,
            "0 (greedy) or a positive number",
        )
        require("top_p", self.top_p, 0 < self.top_p <= 1, "in (0, 1]")
        require("min_p", self.min_p, 0 <= self.min_p < 1, "in [0, 1)")
        for key in ("confidence", "quantile"):
            require(key, getattr(self, key), 0 <= getattr(self, key) <= 1, "in [0, 1]")
        penalty = self.repetition_penalty
        require("repetition_penalty", penalty, 0 < penalty < math.inf, "a positive number")
        require("stop", self.stop, all(self.stop), "a list of strings of at least one character")
        bias = self.logit_bias
        require("logit_bias", bias, all(-math.inf <= x < math.inf for x in bias.values()), "finite or -inf")

    @property
    def edits(self) -> bool:
        """Whether scores are changed at all."""
        return self.repetition_penalty != 1 or bool(self.logit_bias) or bool(self.forbidden)

    @property
    def ruled(self) -> bool:
        """Whether the rule has a meaning."""
        return self.method in ("speculative", "token", "oracle")

    @property
    def tuned(self) -> bool:
        """Whether alpha has a meaning."""
        return self.rule not in UNTUNED if self.ruled else self.method in ("bild", "sequence", "hybrid")


@dataclass(frozen=True)
class Evaluate:
    """One decoding on one task: `evaluate`."""

    task: Task
    output: str
    models: Models = Models()
    decoding: Decoding = Decoding()
    repeats: int = 1

    def __post_init__(self) -> None:
        require("repeats", self.repeats, self.repeats >= 1, "1 or more")


@dataclass(frozen=True)
class Sweep:
    """Many decodings on one task: `sweep`.

    A point overrides fields of `base`; a list stands for each of its values, several lists for their
    product.
    """

    task: Task
    output: str
    models: Models = Models()
    base: Decoding = Decoding()
    points: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    repeats: int = 1

    def __post_init__(self) -> None:
        require("repeats", self.repeats, self.repeats >= 1, "1 or more")
        require("points", self.points, bool(self.points), "a list of at least one point")
        expand(self)


@dataclass(frozen=True)
class Generate:
    """Prompts and answers: `generate`. refill: a finished row of a batch makes room for the next prompt."""

    models: Models = Models()
    decoding: Decoding = Decoding()
    prefix: str = ""
    refill: bool = True


@dataclass(frozen=True)
class Point:
    """One decoding of a sweep, and the name its record carries."""

    name: str
    decoding: Decoding


def load(cls: type[T], path: str | Path | None, overrides: list[str] | tuple[str, ...] = ()) -> T:
    """The dataclass `cls` filled from a YAML or gin file and `dotted.key=value` overrides.

    Raises ConfigError: file absent or neither YAML nor gin, a key unknown or missing, a value of the wrong
    type or out of range. `task: NAME` is short for `task: {name: NAME}`, `mesh` for `models.mesh`; `include:
    FILE` of a YAML file for what FILE says and this one does not.
    """
    return filled(cls, reading.read(path, overrides, cls))


def filled(cls: type[T], given: dict[str, Any], where: str = "") -> T:
    """The dataclass of nested plain data, with a named task's answer length and stop strings.

    These are the task's where the decoding gives none. Raises ConfigError as `load`.
    """
    return build(cls, _with_task(cls, given, where), where)


def _with_task(cls: type, given: dict[str, Any], where: str) -> dict[str, Any]:
    hints, task = get_type_hints(cls), given.get("task")
    key = "base" if "base" in hints else "decoding"
    # A configuration that holds no whole task (an experiment's columns do) is left as it is.
    whole = hints.get("task") in (Task, Task | None) and hints.get(key) is Decoding
    if not whole or not isinstance(task, dict) or task.get("name") is None:
        return given
    from spec_cascades.tasks.registry import defaults

    models = build(Models, given.get("models") or {}, f"{where}models.")
    own = defaults(build(Task, task, f"{where}task."), models.chat)
    decoding = given.get(key) or {}
    return given | {key: own | decoding} if isinstance(decoding, dict) else given


# ------------------------------------------------------------------------------------------
# Points


def expand(sweep: Sweep) -> list[Point]:
    """The points of a sweep in order, lists multiplied out; names are unique or ConfigError is raised."""
    base = asdict(sweep.base)
    points = [p for i, raw in enumerate(sweep.points) for p in _points(raw, base, f"points[{i}].")]
    for a, b in itertools.combinations(points, 2):
        if a.name == b.name:
            raise ConfigError(f"points: two are named {a.name!r}; give them names or let them differ")
    for point in points:
        _needs_models(sweep.models, point)
        require(
            "samples", point.decoding.samples, point.decoding.samples == 1, "1 here; `repeats` samples anew"
        )
    return points


def _points(raw: Any, base: dict[str, Any], where: str) -> list[Point]:
    if not isinstance(raw, dict):
        raise ConfigError(f"{where.rstrip('.')}: {raw!r} is not a mapping of decoding fields")
    given = known(Decoding, renamed({key: value for key, value in raw.items() if key != "name"}), where)
    lists = {key: value for key, value in given.items() if _varies(key, value)}
    found = []
    for values in itertools.product(*lists.values()):
        varied = dict(zip(lists, values, strict=True))
        decoding = build(Decoding, base | given | varied, where)
        name = raw.get("name")
        suffix = "".join(f" {key}={_short(value)}" for key, value in varied.items())
        found.append(Point(str(name) + suffix if name is not None else label(decoding, base), decoding))
    return found


def _varies(key: str, value: Any) -> bool:
    """Whether a point's value stands for each of its elements."""
    if key in LISTS:
        return isinstance(value, list) and bool(value) and all(isinstance(x, list) for x in value)
    return isinstance(value, list)


def label(decoding: Decoding, base: dict[str, Any]) -> str:
    """'v3 alpha=0.5 min_p=0.1': the method or rule, its alpha, and what differs from `base`."""
    names = [decoding.method] if decoding.method != "speculative" else []
    name = " ".join(names + [decoding.rule] * decoding.ruled)
    if decoding.tuned and decoding.alpha is not None:
        name += f" alpha={_short(decoding.alpha)}"
    skip = {"method", "rule", "alpha"} | (set() if decoding.method in ("speculative", "bild") else {"gamma"})
    differs = {k: v for k, v in asdict(decoding).items() if k not in skip and v != base[k]}
    return name + "".join(f" {key}={_short(value)}" for key, value in differs.items())


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _needs_models(models: Models, point: Point) -> None:
    needs = {"target": ("target",), "drafter": ("drafter",)}.get(point.decoding.method, ("target", "drafter"))
    for role in needs:
        if getattr(models, role) is None:
            raise ConfigError(f"models.{role}: point {point.name!r} needs it, and it is not given")


def as_sweep(evaluate: Evaluate) -> Sweep:
    """An evaluation as the sweep of its one point."""
    e = evaluate
    return Sweep(task=e.task, output=e.output, models=e.models, base=e.decoding, repeats=e.repeats)


def plain(value: Any) -> Any:
    """Dataclasses as dicts and infinities as 'inf' / '-inf', so that JSON holds them."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
