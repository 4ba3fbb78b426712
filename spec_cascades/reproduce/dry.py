"""What an experiment would run, how much memory that takes and how long: `reproduce --dry-run`."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from spec_cascades.config import ConfigError, Point, Sweep, expand
from spec_cascades.reproduce import sizes, times
from spec_cascades.reproduce.experiment import Column, Experiment, columns
from spec_cascades.reproduce.sizes import Size
from spec_cascades.tasks.settings import Task, parts

ROLES = ("target", "drafter")
PROMPT = 1024
"""Tokens a prompt is taken to have where the task states no limit."""


class Plan(NamedTuple):
    """One column before it runs; None stands for what is not known here."""

    column: Column
    points: list[Point]
    examples: int | None
    prompt: int
    sizes: dict[str, Size]
    seconds: times.Span | None


def plan(experiment: Experiment, records: Sequence[Mapping[str, Any]] = ()) -> list[Plan]:
    """Every column's plan. Nothing is downloaded; records: of a run whose times stand for those to come."""
    return [_plan(column, experiment, records) for column in columns(experiment)]


def _plan(column: Column, experiment: Experiment, records: Sequence[Mapping[str, Any]]) -> Plan:
    sweep, points = column.sweep, expand(column.sweep)
    n, prompt = examples(sweep.task), longest_prompt(sweep.task)
    known = {role: size for role in ROLES if (size := _largest(sweep.models, role, prompt, points))}
    seconds = None
    if n is not None and records:
        scale = sweep.task.join / records[0]["task"]["join"]
        seconds = times.from_records(points, n * sweep.repeats * scale, records)
    elif n is not None and experiment.chip:
        batches = sweep.repeats * -(-n // sweep.base.batch_size)
        seconds = times.from_peaks(points, times.Load(batches, prompt, known), experiment.chip)
    return Plan(column, points, n, prompt, known, seconds)


def _largest(models: Any, role: str, prompt: int, points: Sequence[Point]) -> Size | None:
    """The model in a role with the cache of the point that needs most; None if unknown."""
    found = [sizes.of(models, role, prompt, point.decoding) for point in points]
    return max((size for size in found if size), key=lambda size: size.cache, default=None)


def examples(task: Task) -> int | None:
    """How many will be asked: counted where the file is here, else the limit; None where neither tells."""
    if task.path is None:
        i, n = parts(task.shard)
        return task.limit and task.limit * (i + 1) // n - task.limit * i // n
    from spec_cascades.tasks.asked import ask

    try:
        return len(ask(task, False).examples)
    except ConfigError:
        return task.limit


def longest_prompt(task: Task) -> int:
    """The longest prompt's tokens, as far as the configuration tells."""
    if task.max_input_tokens is not None:
        return task.max_input_tokens
    if task.name not in (None, "local") and task.view == "encdec":
        from spec_cascades.tasks.registry import described

        return described(task).lengths[0]
    return PROMPT if task.name else 128


# ------------------------------------------------------------------------------------------
# In words


def text(experiment: Experiment, plans: Sequence[Plan], measured: str | None = None) -> str:
    """The plans as markdown: a table of the columns, the models, the decodings, and what the figures mean."""
    heads = ["column", "task", "examples", "trials", "decodings", "answers", "new tokens", "memory", "time"]
    rows = [heads, ["---"] * 2 + ["---:"] * 7, *(_row(p) for p in plans), _sum(plans)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    title = f"{experiment.title} ({experiment.kind}), to {experiment.output}"
    return "\n\n".join(
        [title, table, _models(plans), _decodings(plans), _legend(experiment, plans, measured)]
    )


def _row(p: Plan) -> list[str]:
    sweep = p.column.sweep
    task = sweep.task.name or sweep.task.path
    task += f" x{sweep.task.join}" if sweep.task.join > 1 else ""
    counts = [p.examples, sweep.repeats, len(p.points), _answers(p), sweep.base.max_new_tokens]
    return [p.column.name, task, *(_or(n, "{:,}") for n in counts), *_cost(p)]


def _cost(p: Plan) -> list[str]:
    held = [s.held + s.cache for s in p.sizes.values()]
    known = all(getattr(p.column.sweep.models, role) is None or role in p.sizes for role in ROLES)
    return [_bytes(sum(held)) if known else "unknown", _span(p.seconds)]


def _answers(p: Plan) -> int | None:
    return p.examples and p.examples * p.column.sweep.repeats * len(p.points)


def _sum(plans: Sequence[Plan]) -> list[str]:
    answers = [_answers(p) for p in plans]
    spans = [p.seconds for p in plans]
    time = None if None in spans else (sum(a for a, _ in spans), sum(b for _, b in spans))
    total = None if None in answers else sum(answers)
    count = str(sum(len(p.points) for p in plans))
    return ["all", "", "", "", count, _or(total, "{:,}"), "", "", _span(time)]


def _models(plans: Sequence[Plan]) -> str:
    """A line a model: its parameters, and the bytes of weights and of a cache."""
    lines = {}
    for p in plans:
        models: Any = p.column.sweep.models
        for role in ROLES:
            ref, size = getattr(models, role), p.sizes.get(role)
            if ref is None:
                continue
            if size is None:
                lines.setdefault((role, ref), f"* {role} `{ref}`: size unknown here")
                continue
            told = f"{size.parameters / 1e6:,.1f} M parameters, {_bytes(size.held)} in {_held(models, role)}"
            cache = max(q.sizes[role].cache for q in plans if getattr(q.column.sweep.models, role) == ref)
            lines.setdefault((role, ref), f"* {role} `{ref}`: {told}, a cache of up to {_bytes(cache)}")
    return "\n".join(lines.values())


def _held(models: Any, role: str) -> str:
    weights, _ = models.held(role)
    return models.dtype if weights == "dtype" else weights


def _decodings(plans: Sequence[Plan]) -> str:
    """The points by name, once for columns that share them, and what they have in common."""
    lists: dict[str, list[str]] = {}
    for p in plans:
        named = f"{_common(p.column.sweep)}: " + _joined([point.name for point in p.points])
        lists.setdefault(named, []).append(p.column.name)
    if len(lists) == 1:
        return "Decodings, " + next(iter(lists))
    return "\n\n".join(f"Decodings of {', '.join(names)}, {named}" for named, names in lists.items())


def _joined(names: Sequence[str]) -> str:
    """'v3 alpha=0.1, 0.3; target': values of one key joined."""
    runs: dict[str, list[str]] = {}
    for name in names:
        head, equals, value = name.rpartition("=")
        runs.setdefault(head + equals, []).append(value)
    return "; ".join(head + value for head, values in runs.items() for value in [", ".join(values)])


def _common(sweep: Sweep) -> str:
    b = sweep.base
    heat = "greedy" if b.temperature == 0 else f"temperature {b.temperature:g}"
    cut = f", top-p {b.top_p:g}" if b.top_p < 1 else ""
    return f"{heat}{cut}, gamma {b.gamma}, batch {b.batch_size}"


def _legend(experiment: Experiment, plans: Sequence[Plan], measured: str | None) -> str:
    chip, needs = experiment.chip, [sum(s.held + s.cache for s in p.sizes.values()) for p in plans]
    longest = sorted({p.prompt for p in plans})
    lines = [
        f"Memory: weights and caches of both models, prompts of up to {', '.join(map(str, longest))} tokens "
        "and the longest answers; working buffers come on top."
    ]
    if measured:
        lines.append(
            f"Time: of answers as they were measured in {measured}, joined texts in proportion, a method "
            "that was not measured as the target and the drafter together; compilation comes on top."
        )
    elif chip:
        lines.append(
            f"Time: at the stated peaks of one {chip.name} ({chip.tflops:g} TFLOP/s in bfloat16, "
            f"{chip.gb_per_second:g} GB/s), answers at their longest, from every draft accepted to none; "
            "what a loop costs beyond its calls, and compilation, come on top."
        )
        if max(needs) > chip.memory_gb * 1e9:
            lines.append(
                f"More than the {chip.memory_gb:g} GB of one {chip.name}: {_bytes(max(needs))} needed."
            )
    else:
        lines.append(
            "Time: unknown; state a chip's peaks (chip) or give records of measured times (--measured)."
        )
    return "\n".join(lines)


def _or(value: Any, pattern: str) -> str:
    return "unknown" if value is None else pattern.format(value)


def _span(seconds: times.Span | None) -> str:
    if seconds is None:
        return "unknown"
    low, high = (clock(s) for s in seconds)
    return low if low == high else f"{low} to {high}"


def clock(seconds: float) -> str:
    """'2.5 h': seconds in the largest unit of which there are two."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _bytes(n: float) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.1f} MB"
