"""Seeded bugs that the tests must notice, each applied to a copy of the package, never to the work tree.

    python scripts/mutants.py [NAME ...]

Prints who killed each. Exit code 1 if one survives, if its text is no longer found exactly once, or if the
tests fail (or cannot run) without any bug.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Mutant(NamedTuple):
    """One seeded bug: `old`, which occurs once in `file`, becomes `new`; `tests` are pytest's arguments."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


TIES = ("tests/test_probs.py", "-k", "top_k_keeps")
PROBS = ("tests/test_probs.py", "-k", "top_p or uniform")
RULES = ("tests/test_rules.py", "-k", "formula and (v3 or topk or lossy or tv_bound or typical)")
BLOCK = ("tests/test_verify.py", "-k", "uniform or prefix")
FORMULAS = ("tests/test_verify.py", "-k", "formulas and v3")
CACHE = ("tests/test_cache.py", "-k", "clamped or padding")
STACK = ("tests/models/test_scanned.py", "-k", "logits and llama")
JUDGED = ("tests/kernels/test_verification.py", "-k", "verdicts and (v3 or opt) and not log")
BLOCKS = ("tests/kernels/test_attention.py", "-k", "equals_dense and 1-1")
STOPS = ("tests/decode/test_loop.py", "-k", "stops and sometimes")
NOISE = ("tests/decode/test_loop.py", "-k", "noise")
AFRESH = ("tests/decode/test_rows.py", "-k", "markov and afresh")
ALONE = ("tests/decode/test_rows.py", "-k", "markov and alone")
LAW = ("tests/decode/test_conformance.py", "-k", "two_drafts and v3")
BIAS = ("tests/models/test_t5_bias.py",)
INT8 = ("tests/test_int8.py", "-k", "attention or cache or scale_of")
REFILLED = ("tests/decode/test_scheduler.py", "-k", "markov and alone")
EDITS = ("tests/decode/test_edits.py", "-k", "law_is and v3")
LOOKED_UP = ("tests/decode/test_lookup.py", "-k", "every_path and v3")
COPIED = ("tests/models/test_copying.py", "-k", "share and (markov or t5)")
LEAN = ("tests/decode/test_drafting.py", "-k", "behind_the_last or lags")
CASCADE = ("tests/decode/test_token_cascade.py", "-k", "target_calls")
HOSTS = ("tests/hosts/test_gathering.py", "tests/hosts/test_running.py")
PARTS = ("tests/checkpoints/test_placing.py", "-k", "parts_of_joined")
PLACED = ("tests/checkpoints/test_placing.py", "-k", "same_bits or read_once")
TABLES = ("tests/sharding/test_tables.py",)
RINGS = ("tests/models/test_rings.py", "-k", "(over_the_wrap and 3-unrolled) or across_the_wrap")
SEQUENCE = ("tests/decode/test_sequence.py", "-k", "drafts_noise or enumerated")
PACE = ("tests/planning/test_speed.py", "tests/planning/test_roofline.py")
INSIDE = ("tests/profiling/test_scopes.py", "-k", "inside")

SEEN_END = "jnp.minimum(at[-1] + 1, end)"
LOOP, SPECULATIVE, DRAFTING = "decode/loop.py", "decode/speculative.py", "decode/drafting.py"
T5 = "models/t5.py"
KERNEL = "kernels/attention.py"
JUDGE = "kernels/verification.py"
LEFT = "verify.residual(law.pi(part), part.q, rejected)"
LOWEST = "jnp.where(below == 0, ids, model.best)"

REWIND = "kv.rewind(cache, jnp.minimum(cache.length, old.begun[name] + emitted))"
COUNT = "count = jnp.where(done, 0, jnp.minimum(block.count, room))"
SEEN = "seen = (place < count[:, None]) & (place < block.drafted[:, None])"
ADMIT = "put(progress.noise, fresh.noise, axis=1),"
HISTORY = "used_along(view.seen, made.drafts[:, :-1])"
SEEN_BY_Q = "logits = edited(logits, request.edits, x.seen)"
SILENT = "if made.silent is None:"
LATE = "lax.while_loop(lambda x: jnp.any(x.read < due), block, begin)"
SCORED = "draw(distribution(logits, request.sampling), noise.draft[:, 0])"
DRAW = "draw(q, noise.draft[:, x.place])"
WANTED = "top_p * jnp.sum(x, axis=-1, keepdims=True)"
LAST = "(w if self.bonus else limit)"
LAG = "at = jnp.minimum(read[:, None]"
BEHIND = "behind[:, None, None]"
OWN_CALLS = "cache.length - end.place + end.calls"
ROOM = "jnp.minimum(most, request.capacity)) - view.emitted"
RAW_PAIR, FILTERED_PAIR = "made.q_raw, raw(p_logits))", "made.q, distribution(p_logits, sampling))"
STANDS = "noise.accept * q_drafts < rule.at("
BONUS = "(lambda pi, out: (jnp.where(out, pi, here.p), out))({})"
OWN = "rule.pi(here, alpha[:, None]), (accepted < drafted)[:, None]"
PREFIX = "accepted = jnp.sum(jnp.cumprod(stands.astype(jnp.int32), axis=1), axis=1)"
ETA = "jnp.sum(jnp.where(r, pair.q, 0.0), -1, keepdims=True)"
PI = "return jnp.where(r, 0.0, pair.q) + pair.p * eta"
EXCESS = "jnp.maximum(self.slope(pair, rest) * pair.p - pair.q, 0.0)"
WO = '(r"mlp/wo/kernel", ("ff", None)),'
OTHERS = '(role == "drafter" and not name.startswith(BOTH))'
MASK = "jnp.where(cache.memory.mask, 0.0, HIDDEN)"

MUTANTS = [
    Mutant("drafter not rewound", LOOP, REWIND, f'({REWIND} if name != "drafter" else cache)', AFRESH),
    Mutant("target not rewound", LOOP, REWIND, f'({REWIND} if name != "target" else cache)', AFRESH),
    Mutant("drafter's cache misses the last draft", DRAFTING, LAST, LAST.replace("w if", "w - 1 if"), AFRESH),
    Mutant("a lagging drafter skips a draft", DRAFTING, LAG, LAG.replace("read", "view.emitted"), LEAN),
    Mutant("a lagging drafter answers the older token", DRAFTING, BEHIND, f"0 * {BEHIND}", LEAN),
    Mutant("a row lags by the batch's calls", DRAFTING, OWN_CALLS, "cache.length", LEAN),
    Mutant("a kernel that no table names", "sharding/tables.py", WO, "", TABLES),
    Mutant("the drafter on the target's axes", "axes.py", OTHERS, "False", TABLES),
    Mutant("padding enters a ring", "models/rings.py", SEEN_END, f"at[-1] + 1 + 0 * {SEEN_END}", RINGS),
    Mutant("a ring turns a slot too early", "models/rings.py", "% at.size", "% (at.size - 1)", RINGS),
    Mutant("residual without q", "verify.py", "jnp.maximum(pi - q, 0.0)", "pi", BLOCK),
    Mutant("bonus from p", "verify.py", OWN, BONUS.format(OWN), FORMULAS),
    Mutant(
        "bonus from the residual",
        "verify.py",
        "(accepted < drafted)[:, None]",
        "(accepted <= drafted)[:, None]",
        BLOCK,
    ),
    Mutant("one uniform a row", "verify.py", STANDS, STANDS.replace("accept", "accept[:, :1]"), BLOCK),
    Mutant(
        "one uniform for draft and acceptance", "verify.py", STANDS, STANDS.replace("accept", "draft"), LAW
    ),
    Mutant(
        "one uniform for acceptance and residual", "verify.py", "(noise.residual,", "(noise.accept,", BLOCK
    ),
    Mutant("acceptance with its sides swapped", "verify.py", STANDS, STANDS.replace("<", ">="), BLOCK),
    Mutant("acceptance at equality", "verify.py", STANDS, STANDS.replace("<", "<="), BLOCK),
    Mutant(
        "batch-wide acceptance", "verify.py", PREFIX, f"{PREFIX}.min() + jnp.zeros_like(drafts[:, 0])", BLOCK
    ),
    Mutant("batch-wide advance", LOOP, COUNT, COUNT.replace("block.count", "jnp.min(block.count)"), ALONE),
    Mutant("draft greedy, q soft", DRAFTING, DRAW, "jnp.argmax(q, -1).astype(jnp.int32)", LAW),
    Mutant("raw q in the ratio", SPECULATIVE, "Pair(made.q, ", "Pair(made.q_raw, ", LAW),
    Mutant("rules read the filtered pair", SPECULATIVE, RAW_PAIR, FILTERED_PAIR, LAW),
    Mutant("noise without position", LOOP, "key(seed), position)", "key(seed), 0 * position)", NOISE),
    Mutant("a limit off by one", LOOP, ROOM, f"{ROOM} + 1", STOPS),
    Mutant("a token after the end", LOOP, "argmax(ends, axis=1) + 1", "argmax(ends, axis=1) + 2", STOPS),
    Mutant("text goes on after the end", LOOP, "old.done | ended |", "old.done |", STOPS),
    Mutant("finished rows go on", LOOP, COUNT, "count = jnp.minimum(block.count, room)", STOPS),
    Mutant(
        "drafts past the end counted",
        LOOP,
        SEEN,
        "seen = live[:, None] & (place < block.drafted[:, None])",
        STOPS,
    ),
    Mutant("eta left out", "rules.py", PI, PI.removesuffix(" * eta"), RULES),
    Mutant("eta from p", "rules.py", ETA, ETA.replace("pair.q", "pair.p"), RULES),
    Mutant("V3 against max q", "rules.py", "- alpha) * pair.p_top", "- alpha) * pair.q_top", RULES),
    Mutant("lossy residual of p alone", "rules.py", EXCESS, "pair.p", RULES),
    Mutant(
        "solved beta left at one", "rules.py", EXCESS, EXCESS.replace("self.slope(pair, rest) * ", ""), RULES
    ),
    Mutant("a bounded step goes past q", "rules.py", "distance > bound, bound", "distance > 0, bound", RULES),
    Mutant("typical without the entropy", "rules.py", "exp(-pair.", "exp(0 * pair.", RULES),
    Mutant("top-p of an unscaled top-k", "probs.py", WANTED, "top_p", PROBS),
    Mutant("a tie too many", "probs.py", "(before < wanted)", "(before <= wanted)", TIES),
    Mutant("a draw may hit weight zero", "probs.py", "(cumulated > x)", "(cumulated >= x)", PROBS),
    Mutant("a write clamps at the end", "cache.py", 'values, mode="drop"', 'values, mode="clip"', CACHE),
    Mutant(
        "scanned layers share one cache",
        "cache.py",
        "full_like(slots, layer)",
        "zeros_like(slots)",
        STACK,
    ),
    Mutant("the kernel sees tokens to come", KERNEL, "(behind >= 0) & (at < l)", "at < l", BLOCKS),
    Mutant(
        "the kernel skips a slot",
        KERNEL,
        "length + t - 1, block",
        "length + t - 2, block",
        BLOCKS,
    ),
    Mutant("the kernel draws from pi after a rejection", JUDGE, LEFT, "law.pi(part)", JUDGED),
    Mutant(
        "the kernel takes the last id of a chunk for its best",
        JUDGE,
        LOWEST,
        LOWEST.replace("ids,", "ids[:, -1:],"),
        JUDGED,
    ),
    Mutant(
        "the kernel sums p where it defers", JUDGE, "alpha), part.q, 0.0)", "alpha), part.p, 0.0)", JUDGED
    ),
    Mutant(
        "a rejected row goes on in the kernel",
        JUDGE,
        "accepted[...] == place, place <",
        "accepted[...] <= place, place <",
        JUDGED,
    ),
    Mutant(
        "the kernel's D_TV the wrong way", JUDGE, "part.p - part.q, 0.0", "part.q - 0 * part.p, 0.0", JUDGED
    ),
    Mutant("a newcomer keeps the old noise", "decode/scheduler.py", ADMIT, "progress.noise,", REFILLED),
    Mutant("a penalty forgets the draft", SPECULATIVE, HISTORY, HISTORY.replace("made", "0 * made"), EDITS),
    Mutant("the drafter's scores are not edited", DRAFTING, SEEN_BY_Q, "pass", EDITS),
    Mutant("a copy is a draft where none is found", SPECULATIVE, SILENT, "if True:", LOOKED_UP),
    Mutant("a late target reads one block only", "decode/token_cascade.py", LATE, "block(begin)", CASCADE),
    Mutant(
        "both stages draw alike", "decode/sequence.py", SCORED, SCORED.replace("draft", "residual"), SEQUENCE
    ),
    Mutant(
        "int8 values weighed by the keys' scales",
        "models/layers.py",
        "(v.scale, 2, 3)",
        "(k.scale, 2, 3)",
        INT8,
    ),
    Mutant(
        "int8 keys without their scales", "models/layers.py", "(k.scale, 2, 3)", "(k.scale**0, 2, 3)", INT8
    ),
    Mutant("int8 by truncation", "int8.py", "jnp.round(wide /", "jnp.trunc(wide /", INT8),
    Mutant(
        "one int8 scale for all tokens",
        "cache.py",
        "rounded(x, -1, COMPUTED)",
        "rounded(x, -2, COMPUTED)",
        INT8,
    ),
    Mutant("relative bias off by one", T5, "jnp.clip(behind, 0,", "jnp.clip(behind + 1, 0,", BIAS),
    Mutant("prompt padding seen by the decoder", T5, MASK, MASK.replace("HIDDEN", "0.0"), CACHE),
    Mutant(
        "a copy's share taken for its odds",
        "models/copying.py",
        "(w / (1 - w) for w in self.trust)",
        "(w for w in self.trust)",
        COPIED,
    ),
    Mutant(
        "the text of a copying model is not kept",
        "models/copying.py",
        "kv.advance(cache, (own.layers, text), tokens.shape[1])",
        "kv.advance(cache, (own.layers, cache.layers[1]), tokens.shape[1])",
        COPIED,
    ),
    Mutant(
        "a copying model forgets the source",
        "models/copying.py",
        "whole = behind(*source, ",
        "whole = behind(0 * source[0], source[1], ",
        COPIED,
    ),
    Mutant(
        "a batch's answers end together",
        "planning/speed.py",
        ") ** rows\n        more",
        ")\n        more",
        PACE,
    ),
    Mutant(
        "a plan's lossless block drafts once too often",
        "planning/roofline.py",
        "(gamma - 1) * self.call",
        "gamma * self.call",
        PACE,
    ),
    Mutant(
        "key heads beyond their number divide a cache",
        "planning/roofline.py",
        "min(self.over(role), model.kv_heads)",
        "self.over(role)",
        PACE,
    ),
    Mutant("a loop's time counts what is in it", "profiling/scopes.py", "-= end - start", "-= 0", INSIDE),
    Mutant(
        "a message keeps its padding",
        "hosts/gathering.py",
        "max(0, min(CHUNK, size - start))",
        "CHUNK",
        HOSTS,
    ),
    Mutant(
        "who fails says nothing",
        "hosts/gathering.py",
        '_line(failed).encode() if failed else b""',
        'b""',
        HOSTS,
    ),
    Mutant(
        "others begin where their own files say",
        "hosts/lockstep.py",
        "else Echo(done)",
        "else Echo([])",
        HOSTS,
    ),
    Mutant(
        "logs stay on the disks of their processes",
        "hosts/shards.py",
        "if gathering.lead() and not (path",
        "if False and not (path",
        HOSTS,
    ),
    Mutant("all take the first shard", "hosts/shards.py", 'shard=f"{i}/{n}"', 'shard=f"0/{n}"', HOSTS),
    Mutant(
        "a part is read twice",
        "checkpoints/placing.py",
        "in parts.items()])",
        "in [*parts.items()] * 2])",
        PLACED,
    ),
    Mutant(
        "a stacked tensor in another's slot",
        "checkpoints/families/base.py",
        "i - own.start for",
        "-1 for",
        PLACED,
    ),
    Mutant(
        "a head's numbers from its first on", "checkpoints/leaves.py", "own.start - start * size", "0", PARTS
    ),
]


class Broken(Exception):
    """The script itself is at fault: a text is gone, or tests fail or cannot run without a bug."""


def main() -> int:
    """Runs the mutants named on the command line, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    names = parser.parse_args().names
    if unknown := set(names) - {m.name for m in MUTANTS}:
        parser.error(f"{sorted(unknown)} not among {[m.name for m in MUTANTS]}")
    chosen = [m for m in MUTANTS if m.name in names or not names]
    with tempfile.TemporaryDirectory() as folder:
        try:
            copy = _copied(Path(folder) / "copy")
            _check_without_a_bug(copy, chosen)
            survivors = [m.name for m in chosen if not _killed(copy, m)]
        except Broken as error:
            print(error, file=sys.stderr)
            return 1
    print(
        f"{len(chosen) - len(survivors)} of {len(chosen)} killed"
        + (f"; alive: {survivors}" if survivors else "")
    )
    return 1 if survivors else 0


def _copied(copy: Path) -> Path:
    heavy = shutil.ignore_patterns("__pycache__", "*.safetensors")
    for name in ("spec_cascades", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=heavy)
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def _check_without_a_bug(copy: Path, chosen: list[Mutant]) -> None:
    for m in chosen:
        found = (copy / "spec_cascades" / m.file).read_text().count(m.old)
        if found != 1:
            raise Broken(f"{m.name}: its text occurs {found} times in {m.file}: {m.old!r}")
    for tests in dict.fromkeys(m.tests for m in chosen):
        code, output = _pytest(copy, tests)
        if code != 0:
            raise Broken(f"without any bug, pytest {' '.join(tests)} ends with {code}:\n{output[-3000:]}")


def _killed(copy: Path, m: Mutant) -> bool:
    path = copy / "spec_cascades" / m.file
    whole, start = path.read_text(), time.perf_counter()
    path.write_text(whole.replace(m.old, m.new))
    try:
        code, output = _pytest(copy, m.tests)
    finally:
        path.write_text(whole)
    # 1 is a failing test; a bug that cannot even be collected (2 and above) proves nothing.
    if code not in (0, 1):
        raise Broken(f"{m.name}: pytest ends with {code}:\n{output[-3000:]}")
    killer = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    by = killer[1].removeprefix("tests/") if code else "ALIVE"
    print(
        f"{m.name:42} {by if killer or not code else '?':78} {time.perf_counter() - start:5.0f} s", flush=True
    )
    return code == 1


def _pytest(copy: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """Exit code and output of the tests on the copy, stopped at the first failure."""
    # No bytecode: a changed file of equal size within a second would be taken for the old one.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(copy.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    env = os.environ | cache | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--tb=short", *tests]
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
