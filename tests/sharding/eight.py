"""Run in a process of its own, which sees eight devices: tiny pairs under meshes, what came out as JSON."""

import json
import time
from contextlib import nullcontext
from dataclasses import replace

import jax
import jax.numpy as jnp
import laws
import numpy as np
from eight_cases import CASES
from hlo import carried, moved
from laws import Setting

from spec_cascades import axes, probs, sharding
from spec_cascades.config import Mesh
from spec_cascades.decode import loop, scheduler, sequence
from spec_cascades.decode.autoregressive import Autoregressive
from spec_cascades.decode.speculative import Speculative
from spec_cascades.decode.token_cascade import TokenCascade
from spec_cascades.lowering.hlo import Line, copies, inside_loops
from spec_cascades.models import gemma, llama, t5
from spec_cascades.models.copying import Copying
from spec_cascades.models.markov import Markov
from spec_cascades.rules import RULES

V, B, S, N, GAMMA = 1024, 4, 7, 12, 3
# Heads of ten entries: the shape of a cache is that of no other array.
SIZES = dict(vocab=1000, embeddings=V, d_model=16, d_ff=32, heads=8, layers=2, head_dim=10)
SECOND = dict(generation=2, attention_softcap=50.0, final_softcap=30.0)
T5 = dict(vocab=1000, embeddings=V, d_model=16, d_kv=10, d_ff=32, heads=8, encoder_layers=1, tied=True)


def sharp(module, config):
    """Parameters whose text is not one token repeated."""
    loud = lambda path, x: x * (1.0 if "scale" in str(path) or "embed" in str(path) else 2.5)
    return jax.tree_util.tree_map_with_path(loud, module.init(jax.random.key(0), config))


def decoder_only(module, lm, cut, **sizes):
    """A target of two layers and its first as drafter."""
    config = module.Config(**SIZES, **sizes)
    params = sharp(module, config)
    small = {name: leaf for name, leaf in params.items() if not name.endswith("_1")}
    return {"target": (lm(config), params), "drafter": (cut(lm(replace(config, layers=1))), small)}


def encoder_decoder():
    config = t5.Config(**T5, decoder_layers=2)
    params = sharp(t5, config)
    small = params | {"decoder": {k: v for k, v in params["decoder"].items() if k != "layers_1"}}
    short = replace(config, decoder_layers=1)
    return {"target": (t5.T5(config), params), "drafter": (t5.T5(short), small)}


def pair(name):
    """{role: (model, parameters as a checkpoint holds them)}"""
    keep, three = lambda lm: lm, lambda c: gemma.Gemma(c, scan=True)
    near = dict(window=5, query_scalar=4)
    return {
        "gemma2": lambda: decoder_only(gemma, gemma.Gemma, keep, kv_heads=2, pattern=2, **near, **SECOND),
        "gemma3": lambda: decoder_only(gemma, three, Copying, kv_heads=8, generation=3, **near),
        "llama": lambda: decoder_only(llama, llama.Llama, keep, kv_heads=4, tied=False),
        "t5": encoder_decoder,
    }[name]()


def method_of(name, models):
    drafter, target = models["drafter"], models["target"]
    if name == "target":
        return Autoregressive(target)
    if name == "token":
        return TokenCascade(drafter, target, RULES["chow"], 8)
    return Speculative(drafter, target, RULES[name], GAMMA)


def prompts(b=B):
    tokens = np.asarray(jax.random.randint(jax.random.key(5), (b, S), 2, 1000))
    lengths = np.asarray([S, 3, 5, 4] * b, np.int32)[:b]
    return np.where(np.arange(S) < lengths[:, None], tokens, 0).astype(np.int32), lengths


def asked(b=B, **setting):
    return jax.tree.map(np.asarray, laws.request([Setting(**setting)], b, max_new=N))


def alone(name, kind, request, b=B):
    """The answers of one device."""
    lms, params = served(pair(name), None)
    method = method_of(kind, lms)
    out = loop.generate(method, params, *map(jnp.asarray, prompts(b)), jax.tree.map(jnp.asarray, request), N)
    return jax.device_get(out)


def served(models, layout):
    """({role: model}, {role: parameters as decoding wants them}), on the mesh if there is one."""
    lms = {role: lm for role, (lm, _) in models.items()}
    put = lambda role, lm, params: lm.serving(params) if layout is None else layout.serving(lm, role, params)
    return lms, {role: put(role, *both) for role, both in models.items()}


def compare(name, kind, mesh, b=B, alpha=0.3):
    """One case: whether the greedy tokens are equal, what the loop moves and copies, where the caches lie."""
    request = asked(b, alpha=alpha, temperature=0.0)
    expected = alone(name, kind, request, b)
    layout = sharding.of(mesh)
    lms, params = served(pair(name), layout)
    method = method_of(kind, lms)
    with layout.within():
        tokens, lengths, asks = layout.batch(*prompts(b), request)
        begin = loop.start(method, params, tokens, lengths, asks, N)
        compiled = loop.run.lower(method, params, begin, asks).compile()
        where = lambda caches: {r: list(largest(c).sharding.shard_shape(largest(c).shape)) for r, c in caches}
        placed = where(begin.caches.items())
        end = compiled(params, begin, asks)
        out = jax.device_get(loop.finish(end, asks))
    lines, loops = inside_loops(compiled.as_text())
    return {
        "equal": bool(np.array_equal(out.tokens[:b], expected.tokens)),
        "ledgers": all(np.array_equal(x[:b], y) for x, y in zip(leaves(out), leaves(expected), strict=True)),
        "distinct": len(np.unique(expected.tokens)),
        "rows": len(out.tokens),
        "moved": moved(lines),
        "copied": len(copies(lines, placed.values())),
        "carried": carried(lines, placed.values()),
        "loops": loops,
        "caches": placed,
        "after": where(end.caches.items()),
        "whole": all(x.is_fully_replicated for x in leaves(loop_out(layout, end, asks))),
    }


def whole(text):
    """All lines of a module."""
    return [Line(x, 1, True) for x in text.splitlines()]


def leaves(out):
    return jax.tree.leaves(out.ledger) if isinstance(out, loop.Generation) else jax.tree.leaves(out)


def loop_out(layout, end, asks):
    with layout.within():
        return (*loop.finish(end, asks)[:3], end.done)


def largest(cache):
    return max(jax.tree.leaves(cache.layers), key=lambda x: x.size)


def sampled(mesh):
    """Draws of the toy pair: the law's p-value a setting, and how many rows are unlike one device's."""
    settings = [Setting(0.4), Setting(0.3, 0.8, top_p=0.7), Setting(0.2, 1.0, top_k=3, min_p=0.05)]
    each, n, rule = 2048, 4, RULES["v3"]
    method = Speculative(laws.LM, laws.LM, rule, 2)
    request = laws.request(settings, each, max_new=n)
    b = each * len(settings)
    shape = (np.tile(np.asarray(laws.PROMPT, np.int32), (b, 1)), np.full(b, 3, np.int32))
    plain = loop.generate(method, laws.tables(), *map(jnp.asarray, shape), request, n)
    layout = sharding.of(mesh)
    params = {role: layout.params(laws.LM, role, table) for role, table in laws.tables().items()}
    with layout.within():
        call = layout.batch(*shape, jax.tree.map(np.asarray, request))
        out = jax.device_get(loop.generate(method, params, *call, n))
    got = out.tokens.reshape(len(settings), each, n)
    values = []
    for setting, tokens in zip(settings, got, strict=True):
        transition = laws.pi_of(rule, laws.pairs(setting), setting.alpha)
        values.append(float(laws.follows(laws.triples(tokens, 3), laws.joint(transition, 3))))
    return {"p": values, "unlike": int(np.any(out.tokens != np.asarray(plain.tokens), axis=1).sum())}


def pieces(mesh):
    """Draws and filters of wide rows on shards against one device, and what a sort would move."""
    layout = sharding.of(mesh)
    logits = jax.random.normal(jax.random.key(3), (64, 1000)) * 2  # 250 a shard: blocks do not fill it
    u = jax.random.uniform(jax.random.key(4), (64,))
    setting = probs.Sampling(*(jnp.full(64, x) for x in (0.9, 700, 0.9, 1e-4)))
    ten, topk = jnp.full((64, 1), 10.0), RULES["topk"].mask

    def both(x, s, u):
        x = jnp.round(x)  # ties in plenty
        kept = probs.distribution(x, s)
        return kept, probs.draw(kept, u), topk(probs.Pair(*[probs.raw(x)] * 4), ten)

    plain = jax.device_get(jax.jit(both)(logits, setting, u))
    with layout.within():
        args = (*layout.rows((np.asarray(logits), setting, np.asarray(u))),)
        compiled = jax.jit(lambda *a: both(*a)).lower(*args).compile()
        kept, token, mask = jax.device_get(compiled(*args))
        sort = jax.jit(lambda x: jnp.sort(axes.by_vocabulary(x))).lower(args[0]).compile().as_text()
    return {
        "kept": bool(np.array_equal(kept > 0, plain[0] > 0)),
        "close": float(np.abs(kept - plain[0]).max()),
        "same": int((token == plain[1]).sum()),
        "likely": bool((np.take_along_axis(kept, token[:, None], 1) > 0).all()),
        "mask": bool(np.array_equal(mask, plain[2])),
        "moved": moved(whole(compiled.as_text())),
        "sort": moved(whole(sort)),
    }


def hosts(mesh):
    """The toy pair where rows move on the host, refilled slots and a sequence cascade, against one device."""
    layout, n = sharding.of(mesh), 6
    request = laws.request([Setting(1.6, 1.0)], B, max_new=n)
    shape = (jnp.tile(jnp.asarray(laws.PROMPT, jnp.int32), (B, 1)), jnp.full(B, 3, jnp.int32))
    each, found = [list(laws.PROMPT)[: 1 + i % 3] for i in range(B)], []
    method = Speculative(laws.LM, laws.LM, RULES["v3"], 2)
    cascade = sequence.Sequence(laws.LM, laws.LM, "average")
    for there in (None, layout):
        put = lambda role, x, there=there: there.params(laws.LM, role, x) if there else x
        params = {role: put(role, table) for role, table in laws.tables().items()}
        with there.within() if there else nullcontext():
            rows = dict(scheduler.serve(method, params, each, request, n, 2, bucket=8))
            out, info = sequence.run(cascade, params, *shape, request, n)
        refilled = [rows[i].tokens[0].tolist() for i in range(B)]
        answers, deferred = out.tokens.tolist(), info.deferred.tolist()
        found.append({"refilled": refilled, "sequence": answers, "deferred": deferred})
    same = {key: found[0][key] == found[1][key] for key in ("refilled", "sequence")}
    return same | {"deferred": found[1]["deferred"]}


def main():
    # Eight ids for the toy, so that its vocabulary divides.
    laws.VOCAB, laws.LM = 8, Markov(8)
    for name, (family, kind, mesh, *rows) in CASES.items():
        say(name, compare(family, kind, Mesh(*mesh), *rows))
    say("laws", sampled(Mesh(2, 4)))
    say("pieces", pieces(Mesh(2, 4)))
    say("hosts", hosts(Mesh(2, 4)))


def say(name, found):
    print(json.dumps({name: found | {"seconds": round(time.process_time(), 1)}}), flush=True)


if __name__ == "__main__":
    main()
