from made import run

from spec_cascades.config import Task
from spec_cascades.report import over_tasks, runs, steady

V3 = lambda score, time, alpha=0.5: (f"v3 alpha={alpha}", score, time, {"rule": "v3", "alpha": alpha})
OPT = lambda score, time: ("opt alpha=0.2", score, time, {"rule": "opt", "alpha": 0.2})
CHOW = lambda score, time: ("chow alpha=0.2", score, time, {"rule": "chow", "alpha": 0.2})


def setting(first, second, **shared):
    """The two tasks' points as one setting."""
    one = run(first, **shared)
    two = run(second, task=Task("news.tsv"), file="b.jsonl", **shared)
    (found,) = runs.settings(runs.parts(one + two))
    return found


def ranked(found, name=None):
    tasks = steady.judged(found)
    return steady.standings(tasks, name) if name else steady.standings(tasks)


def test_steadier_keeps_more_tasks_then_takes_less_at_worst_then_spreads_less():
    found = setting([V3(20, 0.8), OPT(20, 0.5), CHOW(20, 0.3)], [V3(20, 0.9), OPT(20, 0.9), CHOW(10, 0.3)])
    order, partly = ranked(found)
    assert [s.rule for s in order] == ["v3", "opt", "chow"]
    assert partly == []
    assert [s.kept for s in order] == [2, 2, 1]
    assert [round(s.spread, 3) for s in order] == [0.1, 0.4, 0.7]
    assert order[2].worst == 1.0, "where the quality is lost the target is run"


def test_each_task_has_its_own_alpha_and_one_setting_has_not():
    found = setting([V3(20, 0.8), V3(10, 0.5, 0.9)], [V3(10, 0.8), V3(20, 0.5, 0.9)])
    (own,), _ = ranked(found)
    assert [r["name"] for r in own.at.values()] == ["v3 alpha=0.5", "v3 alpha=0.9"]
    fixed, _ = ranked(found, steady.one_setting)
    assert {(s.rule, s.kept) for s in fixed} == {("v3, alpha 0.5, gamma 4", 1), ("v3, alpha 0.9, gamma 4", 1)}


def test_what_did_not_run_everywhere_is_not_ranked():
    found = setting([V3(20, 0.8), OPT(20, 0.1)], [V3(20, 0.9)])
    order, partly = ranked(found)
    assert ([s.rule for s in order], [s.rule for s in partly]) == (["v3"], ["opt"])
    rows = {row[0]: row for row in over_tasks.of_setting("k", found)[0].rows}
    assert rows["opt"][2] == "not on every task"
    assert rows["opt"][-1] == "not run"


def test_the_sentences_say_who_is_steadiest_and_gains_most():
    found = setting([V3(20, 0.8), OPT(20, 0.5)], [V3(20, 0.8), OPT(20, 0.9)], width=0.01)
    first, second = over_tasks.answers([found])
    assert "v3 is the steadiest over 2 tasks: it keeps the target's quality on 2" in first
    assert "takes 0.80 of the target's time at worst, with a spread of 0.00" in first
    assert "do not tell" not in first
    assert "en-de-everyday gains most: 2.00 [1.96, 2.04] times as fast" in second
    assert "do not tell" not in second
    vague = setting([V3(20, 0.8), OPT(20, 0.5)], [V3(20, 0.8), OPT(20, 0.9)], width=0.3)
    first, second = over_tasks.answers([vague])
    assert "the intervals on the worst task do not tell it from opt" in first
    assert "the intervals do not tell it from news" in second


def test_one_task_says_nothing_over_tasks():
    (alone,) = runs.settings(runs.parts(run([V3(20, 0.8)])))
    (line,) = over_tasks.answers([alone])
    assert "one task only" in line
    assert "steadiest" not in line
    assert over_tasks.of_setting("k", alone) == []


def test_tasks_without_a_score_are_left_out_and_named():
    one = run([V3(20, 0.8)])
    two = run([V3(None, 0.9)], task=Task(name="spec_bench"), file="b.jsonl", unscored=True)
    (found,) = runs.settings(runs.parts(one + two))
    (line,) = over_tasks.answers([found])
    assert "one task only" in line
    assert "left out, for want of a score or of the target alone: spec_bench" in line


def test_slower_than_the_target_is_said():
    first, _ = over_tasks.answers([setting([V3(20, 0.8)], [V3(20, 1.2)])])
    assert "takes 1.20 of the target's time at worst, with a spread of 0.40, which is slower than" in first


def test_no_gain_is_said():
    _, second = over_tasks.answers([setting([V3(20, 1.1)], [V3(20, 1.2)])])
    assert "no task gains: at the target's quality nothing is faster" in second


def test_nothing_kept_anywhere_is_said():
    first, second = over_tasks.answers([setting([V3(10, 0.5)], [V3(10, 0.4)])])
    assert "no rule that ran on all 2 tasks keeps the target's quality on any" in first
    assert "no task gains" in second
