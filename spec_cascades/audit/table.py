"""Findings of an audit in plain lines."""

from typing import Any


def show(findings: list[dict[str, Any]]) -> None:
    """Prints a line a finding, its differences below it, and the verdict."""
    for finding in findings:
        print("\n".join(_lines(finding)))
    failed = sum(not f["passed"] for f in findings)
    print(
        f"VIOLATION: {failed} of {len(findings)} checks failed"
        if failed
        else f"{len(findings)} checks passed"
    )


def _lines(f: dict[str, Any]) -> list[str]:
    verdict = "ok  " if f["passed"] else "FAIL"
    if f["check"] == "law":
        return [f"{verdict} {_law(f)}", *_impossible(f)]
    counts = f"{f['answers']} answers, {f['tokens']} tokens, {len(f['differences'])} differ"
    noise = (
        f"noise between block sizes {f['noise']:.2g} nats (at most {f['noise_limit']:g}), "
        f"which explains gaps below {2 * f['noise']:.2g}"
    )
    head = f"{verdict} {f['check']}: {counts}; {noise}"
    return [head, *map(_difference, f["differences"])]


def _law(f: dict[str, Any]) -> str:
    told = (
        "one cell, nothing to compare"
        if f["cells"] == 1
        else (
            f"chi-square {f['statistic']:.1f} on {f['cells'] - 1} degrees, p = {f['p_value']:.2g} "
            f"(fails below {f['level']:.2g}); power {f['power']:.0%} at a TV distance of {f['distance']:g}"
        )
    )
    return (
        f"law of {f['depth']} tokens, {f['samples']} samples, {f['cells']} cells "
        f"({f['enumerated']:.0%} of the mass enumerated): {told}: {f['prompt']!r:.60}"
    )


def _impossible(f: dict[str, Any]) -> list[str]:
    return [f"     tokens that pi gives no mass: {f['impossible'][:5]}"] if f["impossible"] else []


def _difference(d: dict[str, Any]) -> str:
    why = "a near-tie" if d["explained"] else "NOT EXPLAINED"
    return (
        f"     prompt {d['prompt']}, token {d['position']}: {d['token']}, the target's best two "
        f"{d['target_best']}, top-2 gap {d['top2_gap']:.3g} nats (drafter {d['drafter_top2_gap']:.3g}): {why}"
    )
