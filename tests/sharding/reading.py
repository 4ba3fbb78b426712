"""Run in a process of its own, which sees eight devices: texts read and commands run on a mesh, as JSON."""

import contextlib
import io
import json
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import eight
import jax
import jax.numpy as jnp
import laws
import numpy as np
import toys
import yaml
from hlo import moved

from spec_cascades import along, axes, cli, engine, methods, sharding
from spec_cascades.audit import greedy, sampled
from spec_cascades.audit import laws as audited
from spec_cascades.audit.settings import Audit
from spec_cascades.checkpoints import Loaded
from spec_cascades.config import Decoding, Mesh, Models
from spec_cascades.kernels import attention
from spec_cascades.models import layers
from spec_cascades.models.markov import Markov
from spec_cascades.rules import RULES
from spec_cascades.trace import figures, running

MESH = Mesh(2, 4, 2)
BLOCK = 3
TEXTS = ["3 1 2 9 14", "5 6", "7 7 900"]
ANSWERS = [[5, 17, 999, 3], [8], [2, 30, 31, 32, 33, 34, 35]]
PROMPTS = ["1 3 2", "0 1 1", "2 2 3", "3 0 1", "1 1 1"]
EDITED = Decoding(
    temperature=0.8, top_k=20, top_p=0.9, repetition_penalty=1.4, logit_bias={5: 1.0}, forbidden=[7]
)
BASE = {"temperature": 1.0, "max_new_tokens": 8, "gamma": 2, "batch_size": 3}


def wide(mesh, family="gemma2", dtype="float32"):
    """An engine of tiny models of 1,024 ids; Gemma's target has fewer key heads than devices."""
    made = engine.Engine("tiny", "tiny", dtype, mesh=mesh)
    for role, (lm, params) in eight.pair(family).items():
        params = jax.tree.map(lambda x: x.astype(dtype), params)
        params = lm.serving(params) if mesh is None else made._layout.serving(lm, role, params)
        made._loaded[role] = Loaded(lm, params, toys.Words(1000), SimpleNamespace(context=None), "tiny")
    return made


def pairs():
    """q and p of the tiny Gemmas along texts: the largest differences to one device, and what travels."""
    plain, there = wide(None), wide(MESH)
    one, two = (along.along(e, TEXTS, ANSWERS, EDITED, BLOCK) for e in (plain, there))
    kept = lambda pairs: [(x.q > 0).sum(-1).tolist() for x in pairs]
    return {
        "off": max(off(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(x, y, strict=True)),
        "kept": kept(one) == kept(two),
        "shapes": [x.p.shape for x in two],
        **lowered(there),
    }


def lowered(there):
    """What the reading of a batch moves between devices, and how its laws lie."""
    call = there.call(TEXTS, methods.pairing(EDITED, len(TEXTS)))
    with there.within():
        call = there.placed(call)
        answers = np.zeros((len(call.tokens), 32), np.int32)
        read = along._read.lower(
            call.method.models["target"],
            call.params["target"],
            *(call.tokens, call.lengths, answers, call.request, BLOCK, "target"),
        ).compile()
    shapes = [list(s.shard_shape((4, 32, eight.V))) for s in read.output_shardings]
    return {"moved": moved(eight.whole(read.as_text())), "laws": shapes}


def widths():
    """What pi and a trace's figures of host arrays [32, 1024] move, and how the device holds the arrays."""
    there = wide(MESH)
    pair = along.Pair(*(np.zeros((32, eight.V), np.float32),) * 4)
    with there.within():
        pi = audited._pi.lower(RULES["v3"], pair, np.zeros((32, 1), np.float32)).compile()
        one = np.zeros(32, np.int32), np.zeros(32, bool)
        traced = figures._figures.lower(
            pair, *one, RULES["v3"], False, np.float32(0.5), np.uint32(0)
        ).compile()
    inputs = lambda x: list(jax.tree.leaves(x.input_shardings)[0].shard_shape((32, eight.V)))
    return {
        n: {"moved": moved(eight.whole(x.as_text())), "held": inputs(x)}
        for n, x in (("pi", pi), ("figures", traced))
    }


def rounded():
    """A bfloat16 pair on a mesh, sums over devices rounded as on a TPU: a law, and greedy tokens against what
    one device holds of them.
    """
    token = layers.backend.set("tpu")
    there, plain = (wide(mesh, "llama", "bfloat16") for mesh in (MESH, None))
    asked = Decoding(temperature=0.7, rule="lossless", alpha=0.0, max_new_tokens=2, gamma=2)
    settings = dict(law_prompts=1, samples=1024, rows=512, likely=0.02)
    sampled.READINGS = {"bfloat16": (None,)}  # to compile less; further readings only make more samples fit
    (law,) = sampled.check(Audit(Models("tiny", "tiny", "bfloat16"), asked, **settings), there, TEXTS[:1])
    greedily = replace(asked, temperature=0.0)
    texts = [f"{i} {37 * i} {11 * i}" for i in range(3, 19)]
    answers = [a.tokens for a in there.run(texts * 32, greedily).answers[: len(texts)]]
    noise, gaps = [0.0], []
    for i in range(0, len(texts), 4):  # as many as an audit reads in a call
        given = texts[i : i + 4], answers[i : i + 4], greedily, "target"
        for tokens, here, other in zip(
            given[1], along.alone(plain, *given), along.alone(there, *given), strict=True
        ):
            wrong = {t for t, token in enumerate(tokens) if here.p[t].argmax() != token}
            noise.append(greedy._noise(here, other, wrong).gap)
            gaps += [greedy._gap(here.p_raw[t : t + 1]) for t in sorted(wrong)]
    layers.backend.reset(token)
    told = {key: float(law[key]) for key in ("passed", "p_value", "cells", "enumerated")}
    return told | {"noise": max(noise), "gaps": gaps, "distinct": len({t for row in answers for t in row})}


def kernel():
    """The attention kernel, interpreted, with rows and heads divided, against the reference."""
    found, layout = {}, sharding.of(MESH)
    for name, heads, layers_, role in (
        ("copies of two, stacked", 2, 3, "target"),
        ("a drafter over two devices", 2, None, "drafter"),
    ):
        keys = jax.random.split(jax.random.key(1), 3)
        shape = (4, heads, 24, 8) if layers_ is None else (4, layers_, heads, 24, 8)
        q, k, v = (
            jax.random.normal(key, s) for key, s in zip(keys, ((4, 8, 3, 8), shape, shape), strict=True)
        )
        length, layer = jnp.array([0, 7, 8, 20]), None if layers_ is None else jnp.int32(1)
        plain = attention.reference(q, (k, v), length, layer, 6, 1.5)
        with layout.within():
            put = lambda x, r=role: jax.jit(lambda x: axes.by_heads(x, r))(np.asarray(x))
            run = jax.jit(partial(attention.OnMesh(role, interpret=True), window=6, softcap=1.5))
            got = run(put(q), (put(k), put(v)), length, layer)
        shard = list(got.sharding.shard_shape(got.shape))
        found[name] = {"off": off(got, plain), "shard": shard}
    return found


def said(*arguments):
    """[exit code, stdout, stderr] of the command line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(list(map(str, arguments)))
    return [code, out.getvalue(), err.getvalue()]


def replayed(folder, mesh):
    """What the toy pair's rules cost along texts drawn on a mesh or without one."""
    engine.Engine = lambda **models: toys.engine(mesh=mesh)
    (folder / "few.tsv").write_text("".join(f"{prompt}\t1 2\n" for prompt in PROMPTS))
    task = {"path": str(folder / "few.tsv")}
    points = [{"rule": "v3", "alpha": [0.2, 0.8]}]
    code = command(folder, "replay", task=task, base=BASE, points=points, output=str(folder / "out"))
    lines = (folder / "out/replay.jsonl").read_text().splitlines()
    return code, [[x[key] for x in map(json.loads, lines)] for key in ("rejection_rate", "acceptance")]


def command(folder, name, **settings):
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings | {"models": {"dtype": "float32"}}))
    return said(name, path)


def traced():
    """A trace of the toy pair on a mesh; its figures beside those of the same pair on one device."""
    made, decoding = toys.engine(mesh=MESH), Decoding(**BASE, rule="v3", alpha=0.5)
    trace = running.trace(made, PROMPTS[0], decoding)
    tokens = [token.id for token in trace.tokens]
    (pair,) = along.along(made, PROMPTS[:1], [tokens], decoding)
    given = pair, tokens, [True] * len(tokens), figures.Law(RULES["v3"], 0.5), 0
    with made.within():
        there = jax.tree.leaves(figures.figures(*given))
    plain = jax.tree.leaves(figures.figures(*given))
    return {
        "disagreements": int(trace.disagreements),
        "tokens": len(tokens),
        "off": max(off(*two) for two in zip(there, plain, strict=True)),
    }


def refusals():
    """What a mesh that cannot be is told by each command, by the real engine."""
    engine.Engine = REAL
    large, odd = "mesh={data: 8, model: 2}", "mesh.model=8"
    with tempfile.TemporaryDirectory() as folder:
        sweep = ["task.path=embedded:en-de-everyday", "task.limit=40", f"output={folder}/out"]
        return {
            "audit": said("audit", large),
            "trace": said("trace", "Hello.", "--set", large),
            "replay": said("replay", *sweep, "points=[{rule: v3}]", large),
            "tune": said("tune", *sweep, "points=[{rule: v3}]", "loss=1", large),
            "heads": said("trace", "Hello.", "--set", odd),
        }


REAL = engine.Engine


def main():
    say("pairs", pairs())
    say("widths", widths())
    say("kernel", kernel())
    say("bfloat16", rounded())
    # Eight ids for the toy, so that its vocabulary divides.
    laws.VOCAB, laws.LM = 8, Markov(8)
    laws.tables.cache_clear()
    both = []
    for mesh in (None, MESH):
        with tempfile.TemporaryDirectory() as folder:
            both.append(replayed(Path(folder), mesh))
    (_, prices), (code, same) = both
    say("replay", {"code": code, "off": off(prices, same)})
    say("trace", traced())
    say("refusals", refusals())


def off(a, b):
    return float(np.abs(np.asarray(a, float) - np.asarray(b, float)).max())


def say(name, found):
    print(json.dumps({name: found, "seconds": round(time.process_time(), 1)}), flush=True)


if __name__ == "__main__":
    main()
