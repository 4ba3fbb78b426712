"""Audits pass on the right code and fail on seeded bugs; the statistics against scipy and simulation."""

import json
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import toys
from scipy import stats

from spec_cascades import audit, cli, verify
from spec_cascades.audit import chi_square, greedy, table
from spec_cascades.audit.cells import OTHER, counts, enumerated
from spec_cascades.audit.settings import Audit
from spec_cascades.config import ConfigError, Decoding, Models
from spec_cascades.decode import loop, speculative
from spec_cascades.probs import Pair, raw

PROMPTS = ["1 3 2", "2 2"]
TOYS = Models("toy", "toy", "float32")


def asked(drafter="toy", **changes):
    """An audit of 2,000 samples of three tokens on each of two prompts."""
    decoding = Decoding(**({"temperature": 1.0, "max_new_tokens": 12, "gamma": 2, "batch_size": 2} | changes))
    models = replace(TOYS, drafter=drafter)
    return Audit(models, decoding, prompts=PROMPTS, samples=2000, rows=500, depth=3)


def verdicts(findings):
    """Whether all checks of the law passed, and all greedy ones."""
    law = [f["passed"] for f in findings if f["check"] == "law"]
    rest = [f["passed"] for f in findings if f["check"] != "law"]
    assert rest
    return all(law), all(rest)


@pytest.fixture
def fresh():
    """No program compiled before serves what the test has patched, and none patched serves afterwards."""
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.parametrize("rule", ["lossless", "v3", "ensemble"])
def test_the_right_code_passes_at_several_seeds(rule):
    engine = toys.engine()
    for seed in (0, 20000, 40000):
        findings = audit.run(asked(rule=rule, seed=seed), engine)
        assert [f["check"] == "law" for f in findings] == [True, True, False, False]
        assert verdicts(findings) == (True, True), (seed, findings)
        assert all(f["cells"] > 8 and f["samples"] == 2000 for f in findings[:2])
        assert all(f["tokens"] > 8 for f in findings[2:])


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "target", "top_k": 3},
        {"method": "oracle", "rule": "v1"},
        {"method": "token", "rule": "chow", "alpha": 0.5},
        {"drafter": "lookup:2", "rule": "lossless"},
        {"rule": "v3", "temperature": 0.5, "min_p": 0.1, "repetition_penalty": 1.3},
        {"rule": "v3", "temperature": 0.0},
    ],
    ids=lambda changes: " ".join(map(str, changes.values())),
)
def test_other_methods_and_filters_pass(changes):
    drafter = changes.get("drafter", "toy")
    findings = audit.run(asked(**changes), toys.engine(drafter=drafter))
    assert verdicts(findings) == (True, True), findings
    # Greedy decoding has no law to sample; a method that drafts nothing has no lossless twin.
    laws = 0 if changes.get("temperature") == 0.0 else 2
    assert sum(f["check"] == "law" for f in findings) == laws
    assert len(findings) == laws + (2 if changes.get("method", "speculative") == "speculative" else 1)


def command(tmp_path, monkeypatch, *overrides):
    """The command on the toy pair, asked as `asked` does, so that little compiles anew."""
    monkeypatch.setattr("spec_cascades.engine.Engine", lambda **models: toys.engine())
    path = tmp_path / "audit.yaml"
    path.write_text(
        f"models: {{dtype: float32}}\nprompts: {PROMPTS}\nsamples: 2000\nrows: 500\ndepth: 3\n"
        "decoding: {rule: v3, temperature: 1, max_new_tokens: 12, gamma: 2, batch_size: 2}\n"
        f"output: {tmp_path}\n"
    )
    return cli.main(["audit", str(path), *overrides])


def test_the_command_says_what_it_found(tmp_path, monkeypatch, capsys):
    assert command(tmp_path, monkeypatch) == 0
    told = capsys.readouterr().out
    assert "power" in told
    assert told.endswith("4 checks passed\n")
    written = [json.loads(line) for line in (tmp_path / audit.FINDINGS).read_text().splitlines()]
    assert len(written) == 4
    assert written[0]["audit"]["decoding"]["alpha"] == 0.5
    assert command(tmp_path, monkeypatch, "level=2") == 2
    assert "level: 2" in capsys.readouterr().err


def test_every_finding_can_be_told(capsys):
    findings = audit.run(replace(asked(method="target"), depth=1, likely=0.9), toys.engine())
    table.show(findings)
    assert "one cell, nothing to compare" in capsys.readouterr().out


def wrong_residual(monkeypatch):
    monkeypatch.setattr(verify, "residual", lambda pi, q, rejected: pi)


def unverified_first_draft(monkeypatch):
    real = verify.verify
    always = lambda noise: noise._replace(accept=noise.accept.at[:, 0].set(-1.0))
    monkeypatch.setattr(speculative, "verify", lambda noise, *rest: real(always(noise), *rest))


def cache_not_rewound(monkeypatch):
    monkeypatch.setattr(loop, "kv", SimpleNamespace(rewind=lambda cache, length: cache))


def target_unfiltered(monkeypatch):
    monkeypatch.setattr(speculative, "distribution", lambda logits, sampling: raw(logits))


@pytest.mark.parametrize(
    ("bug", "changes", "seen"),
    [
        (wrong_residual, {"rule": "v3"}, (False, True)),
        (cache_not_rewound, {"rule": "lossless", "gamma": 3}, (False, False)),
        (target_unfiltered, {"rule": "lossless", "top_k": 2}, (False, False)),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_a_seeded_bug_is_a_violation(bug, changes, seen, monkeypatch, fresh):
    bug(monkeypatch)
    findings = audit.run(asked(**changes), toys.engine())
    assert verdicts(findings) == seen, findings


def test_a_token_without_mass_is_a_violation_whatever_the_chi_square_says():
    law = np.array([0.999, 0.001, 0.0])
    cells = enumerated(lambda prefixes: [law] * len(prefixes), 1, (), 0.01)
    assert cells.impossible((2,))
    assert not cells.impossible((1,))


def test_no_model_is_needed_that_the_law_does_not_depend_on():
    engine = toys.engine({"drafter": toys.laws.tables()["drafter"]})
    alone = replace(asked(method="drafter"), models=replace(TOYS, target=None))
    assert verdicts(audit.run(alone, engine)) == (True, True)


# ------------------------------------------------------------------------------------------
# Cells


def test_cells_are_the_law_of_the_paths():
    """Two tokens, each a, b, c or end, against the product of their probabilities."""
    table = {(): [0.6, 0.25, 0.05, 0.1], (0,): [0.5, 0.5, 0, 0], (1,): [0.02, 0.9, 0.08, 0]}
    cells = enumerated(lambda prefixes: [np.array(table[x]) for x in prefixes], 2, (3,), 0.09)
    assert cells.law == pytest.approx(
        {
            (3,): 0.1,
            (OTHER,): 0.05,
            (0, 0): 0.3,
            (0, 1): 0.3,
            (0, OTHER): 0.0,
            (1, 1): 0.225,
            (1, OTHER): 0.025,
        }
    )
    paths = [(0, 0), (0, 2), (1, 1), (1, 2), (2, 0), (2, 3), (3,)]
    assert [cells.of(p) for p in paths] == [
        (0, 0),
        (0, OTHER),
        (1, 1),
        (1, OTHER),
        (OTHER,),
        (OTHER,),
        (3,),
    ]
    assert [cells.impossible(p) for p in paths] == [False, True, False, False, False, False, False]
    assert counts(cells, paths)[(OTHER,)] == 2
    with pytest.raises(ValueError, match="ended before its cell"):
        cells.of((0,))


# ------------------------------------------------------------------------------------------
# Chi-square


@pytest.mark.parametrize("freedom", [1, 7, 40])
def test_the_tail_is_that_of_the_chi_square(freedom):
    x = np.array([0.5, 5.0, 30.0, 90.0])
    np.testing.assert_allclose(chi_square.tail(x, freedom), stats.chi2.sf(x, freedom), rtol=1e-4, atol=1e-30)


def draws(law, n, times, seed):
    return np.random.default_rng(seed).multinomial(n, law, times)


def fits(rows, law, level, distance=0.05):
    cells = {(i,): float(x) for i, x in enumerate(law)}
    return [chi_square.fit({(i,): int(c) for i, c in enumerate(row)}, cells, level, distance) for row in rows]


def test_the_level_is_how_often_right_samples_fail():
    law = np.array([0.4, 0.2, 0.2, 0.1, 0.05, 0.03, 0.019, 0.001])
    found = fits(draws(law, 1000, 800, 0), law, 0.05)
    assert {f.cells for f in found} == {7}
    assert np.mean([f.p_value < 0.05 for f in found]) == pytest.approx(0.05, abs=0.02)


def test_the_power_is_how_often_a_law_that_far_off_fails():
    law = np.full(10, 0.1)
    worst = law + 0.01 * np.repeat([1, -1], 5)  # the least favourable: d proportional to pi
    assert np.abs(worst - law).sum() / 2 == pytest.approx(0.05)
    found = fits(draws(worst, 1500, 400, 1), law, 0.01)
    assert 0.3 < found[0].power < 0.9
    assert np.mean([f.p_value < 0.01 for f in found]) == pytest.approx(found[0].power, abs=0.07)
    other = law.copy()
    other[:2] += [0.05, -0.05]
    assert np.mean([f.p_value < 0.01 for f in fits(draws(other, 1500, 100, 2), law, 0.01)]) > found[0].power


def test_small_cells_are_pooled_until_none_is_left():
    law = {(0,): 0.97, (1,): 0.02, (2,): 0.006, (3,): 0.004}
    assert chi_square.fit({(0,): 970, (1,): 20, (2,): 6, (3,): 4}, law, 0.01, 0.05).cells == 4 - 1 + 0
    alone = chi_square.fit({(0,): 97, (1,): 3}, law, 0.01, 0.05)
    assert alone == chi_square.Fit(1, 0.0, 1.0, 0.0)


# ------------------------------------------------------------------------------------------
# Near-ties


def near(gap, v=6):
    """A pair [1, v] under greedy: the target's best two, ids 1 and 3, differ by `gap` nats; the drafter is
    sure of 4."""
    p, q = np.full((2, 1, v), 0.01, np.float32)
    p[0, 1], p[0, 3] = 0.48 * np.exp(gap / 2), 0.48 * np.exp(-gap / 2)
    q[0, 4] = 0.95
    top = lambda x: (np.arange(v) == x.argmax()).astype(np.float32)[None]
    return Pair(top(q), top(p), q, p)


def test_a_difference_is_explained_within_twice_the_noise_alone():
    lossless = Decoding(rule="lossless", alpha=0.0)
    noise = greedy.Noise(0.01, 0.01)
    explained = lambda gap, token, d=lossless: greedy._explained(d, near(gap), token, noise)
    assert explained(0.015, 3)
    assert not explained(0.025, 3)
    assert not explained(0.015, 2)
    # p(4) is 0.01, the threshold (1 - alpha) max p: alpha within the noise lets the draft stand.
    edge = 1 - 0.01 / near(1.0).p_raw.max()
    v3 = lambda off: Decoding(rule="v3", alpha=float(edge - off))
    assert explained(1.0, 4, v3(0.015))
    assert not explained(1.0, 4, v3(0.025))


def test_positions_in_question_do_not_explain_themselves():
    text = lambda *gaps: Pair(*map(np.concatenate, zip(*map(near, gaps), strict=True)))
    assert greedy._noise(text(0.5, 1.0), text(0.5, 3.0), set()).gap == pytest.approx(2.0, abs=1e-5)
    assert greedy._noise(text(0.5, 1.0), text(0.5, 3.0), {1}).gap == 0


def test_first_differences():
    assert greedy._first([1, 2], [1, 2]) is None
    assert greedy._first([1, 2, 3], [1, 4, 3]) == 1
    assert greedy._first([1, 2], [1, 2, 3]) == 2


# ------------------------------------------------------------------------------------------
# Refusals and the command


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "bild"}, "rollback"),
        ({"method": "sequence"}, "whole answers"),
        ({"method": "hybrid"}, "whole"),
    ],
)
def test_methods_without_a_law_are_refused_with_the_reason(changes, words):
    with pytest.raises(ConfigError, match=words):
        asked(**changes)


def test_looked_up_drafts_are_audited_lossless_alone():
    with pytest.raises(ValueError, match=r"set decoding\.rule=lossless"):
        audit.run(asked(drafter="lookup:2", rule="v3"), toys.engine(drafter="lookup:2"))


def test_a_violation_is_exit_code_1(tmp_path, monkeypatch, capsys, fresh):
    unverified_first_draft(monkeypatch)
    assert command(tmp_path, monkeypatch, "decoding.rule=lossless") == 1
    told = capsys.readouterr().out
    assert "NOT EXPLAINED" in told
    assert told.splitlines()[-1].startswith("VIOLATION: ")


@pytest.mark.long
def test_the_embedded_pair_passes():
    models = Models(dtype="float32")
    decoding = Decoding(rule="v3", alpha=0.5, temperature=1.0, batch_size=4)
    small = Audit(models, decoding, law_prompts=1, samples=1024)
    assert verdicts(audit.run(replace(small, task=replace(small.task, limit=4)))) == (True, True)
