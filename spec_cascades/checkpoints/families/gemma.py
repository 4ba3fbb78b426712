"""Gemma 1, 2 and 3: Hugging Face's names and config.json, and sizes read off the official tree."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spec_cascades.checkpoints.families.base import Family, Place, Weights, kernel
from spec_cascades.checkpoints.tree import CheckpointError, Shapes
from spec_cascades.models import gemma
from spec_cascades.models.gemma import Config

DTYPES = ("float32", "bfloat16")

USED_OF = {256_128: 256_000, 262_208: 262_144}
"""Rows of published tables -> ids their tokenizers know."""

TYPES = {1: "gemma", 2: "gemma2", 3: "gemma3_text"}
"""generation -> `model_type`."""

WRAPPER = "gemma3"
"""The `model_type` whose `text_config` is a "gemma3_text", beside a tower for images."""

DEFAULTS = {
    "gemma": gemma.PRESETS["gemma-7b"],
    "gemma2": gemma.PRESETS["gemma-2-2b"],
    "gemma3_text": replace(
        gemma.PRESETS["gemma-3-4b"], d_model=2304, d_ff=9216, layers=26, window=4096, rope_scale=1.0
    ),
}
"""What a key that config.json leaves out stands for: transformers writes no value that is its default."""

SIZES = {
    "embeddings": "vocab_size",
    "d_model": "hidden_size",
    "head_dim": "head_dim",
    "d_ff": "intermediate_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "layers": "num_hidden_layers",
    "epsilon": "rms_norm_eps",
    "pad": "pad_token_id",
    "bos": "bos_token_id",
}
LATER = {"window": "sliding_window", "query_scalar": "query_pre_attn_scalar"}
"""Keys that Gemma 1 lacks."""
SOFTCAPS = {"attention_softcap": "attn_logit_softcapping", "final_softcap": "final_logit_softcapping"}
"""Keys of Gemma 2 (Gemma 3 has them too, as null); null means no cap."""
ACTIVATION = "gelu_pytorch_tanh"
LOCAL, GLOBAL = "sliding_attention", "full_attention"
IN_USE = "vocab_in_use"
"""Our own key of config.json: how many of the table's rows are ids of the tokenizer."""


def check_dtype(name: str) -> None:
    """Raises ValueError, with the reason, for float16 and for what is no weight dtype."""
    if name == "float16":
        raise ValueError(
            "Gemma in float16 overflows: its activations pass 65,504 and become inf. "
            "Load the weights as bfloat16 or float32."
        )
    if name not in DTYPES:
        raise ValueError(f"dtype {name!r} is not one of {list(DTYPES)}")


# ----------------------------------------------------------------------------------------------------
# config.json


def read_config(json: Mapping[str, Any], weights: Weights) -> Config:
    """Config of a config.json, older or newer layout, with or without a part for images.

    Raises CheckpointError for a model that cannot be represented.
    """
    if json.get("model_type") == WRAPPER:
        json = dict(json.get("text_config") or {}) | {"model_type": TYPES[3]}
    name = json["model_type"]
    base = DEFAULTS[name]
    _refuse(json)
    names = SIZES if base.generation == 1 else SIZES | LATER
    found = {ours: json[theirs] for ours, theirs in names.items() if json.get(theirs) is not None}
    if base.generation > 1:
        found |= {ours: json[theirs] for ours, theirs in SOFTCAPS.items() if theirs in json}
    found |= _ends(json) | _rope(json, base) | {"context": json.get("max_position_embeddings")}
    config = replace(base, **found | {"vocab": json.get(IN_USE) or found.get("embeddings", base.embeddings)})
    if base.generation == 1:
        return replace(config, query_scalar=config.head_dim)
    return replace(config, pattern=_pattern(json, config))


def _refuse(json: Mapping[str, Any]) -> None:
    """Raises CheckpointError for what transformers' classes can do and no published Gemma does."""
    first, third = json["model_type"] == TYPES[1], json["model_type"] == TYPES[3]
    form = json.get("hidden_activation") or json.get("hidden_act") or ACTIVATION
    # The first Gemma's configs say "gelu" and mean its approximation.
    known = (ACTIVATION, "gelu") if first else (ACTIVATION,)
    odd = [key for key in ("attention_bias", "use_bidirectional_attention") if json.get(key)]
    odd += [key for key in [SOFTCAPS["attention_softcap"]] if third and json.get(key) is not None]
    if form not in known:
        raise CheckpointError(f"activation {form!r} is not one of {list(known)}")
    if odd:
        raise CheckpointError(f"config.json sets {', '.join(odd)}, which is not supported")


def _ends(json: Mapping[str, Any]) -> dict[str, Any]:
    eos = json.get("eos_token_id")
    if eos is None:
        return {}
    return {"eos": tuple(eos) if isinstance(eos, list) else (eos,)}


def _rope(json: Mapping[str, Any], base: Config) -> dict[str, float]:
    """Bases and scale, from `rope_parameters` (by kind of layer in Gemma 3) or from the keys before it."""
    new = json.get("rope_parameters")
    far = new or {"rope_theta": json.get("rope_theta")} | (json.get("rope_scaling") or {})
    near = far
    if base.generation == 3:
        far = (new.get(GLOBAL) or {}) if new else far
        near = (new.get(LOCAL) or {}) if new else {"rope_theta": json.get("rope_local_base_freq")}
    if _scale(near) != 1.0:
        raise CheckpointError(f"rope scaling {near}: only the global layers of a Gemma 3 may have one")
    return {
        "rope_base": float(far.get("rope_theta") or base.rope_base),
        "local_rope_base": float(near.get("rope_theta") or base.local_rope_base),
        "rope_scale": _scale(far),
    }


def _scale(rope: Mapping[str, Any]) -> float:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in ("default", "linear"):
        raise CheckpointError(f"rope type {kind!r} is not one of ['default', 'linear']")
    return float(rope.get("factor") or 1.0) if kind == "linear" else 1.0


def _pattern(json: Mapping[str, Any], config: Config) -> int:
    """Every how many layers one is global, from the list of their kinds or the number itself."""
    pattern = json.get("sliding_window_pattern") or json.get("_sliding_window_pattern") or config.pattern
    kinds = json.get("layer_types")
    if kinds is None:
        return pattern
    if GLOBAL in kinds:
        pattern = kinds.index(GLOBAL) + 1
    elif pattern <= len(kinds):
        pattern = len(kinds) + 1
    if kinds != _kinds(replace(config, pattern=pattern)):
        raise CheckpointError(f"layer_types {kinds} do not repeat in a pattern over {config.layers} layers")
    return pattern


def _kinds(config: Config) -> list[str]:
    return [LOCAL if config.local(i) else GLOBAL for i in range(config.layers)]


def write_config(config: Config) -> dict[str, Any]:
    """config.json such that transformers' Gemma of that generation computes what `models.gemma` does.

    Raises CheckpointError for a model that transformers cannot represent.
    """
    g, sizes = config.generation, SIZES if config.generation == 1 else SIZES | LATER | SOFTCAPS
    _check_writable(config)
    keys = {theirs: getattr(config, ours) for ours, theirs in sizes.items()} | _write_rope(config)
    if g > 1:
        keys["layer_types"] = _kinds(config)
    return keys | {
        "architectures": [f"Gemma{'' if g == 1 else g}ForCausalLM"],
        "model_type": TYPES[g],
        "hidden_act" if g == 1 else "hidden_activation": ACTIVATION,
        "eos_token_id": list(config.eos) if len(config.eos) > 1 else config.eos[0],
        "tie_word_embeddings": True,
        IN_USE: config.vocab,
        **({} if config.context is None else {"max_position_embeddings": config.context}),
    }


def _check_writable(config: Config) -> None:
    """What transformers' classes cannot say, by generation."""
    plain = dict(pattern=1, query_scalar=config.head_dim, attention_softcap=None, final_softcap=None)
    one_rope = dict(rope_scale=1.0, local_rope_base=config.rope_base)
    fixed = {1: plain | one_rope, 2: one_rope, 3: dict(attention_softcap=None)}[config.generation]
    wrong = [f"{k} is {getattr(config, k)}, not {v}" for k, v in fixed.items() if getattr(config, k) != v]
    if wrong:
        raise CheckpointError(f"transformers has no Gemma {config.generation} whose {', '.join(wrong)}")


def _write_rope(config: Config) -> dict[str, Any]:
    """The layout of transformers 5, and the keys that its predecessors look for."""
    far: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_base}
    old = {"rope_theta": config.rope_base}
    if config.generation < 3:
        return old | {"rope_parameters": far}
    if config.rope_scale != 1.0:
        scaling = {"rope_type": "linear", "factor": config.rope_scale}
        far, old = far | scaling, old | {"rope_scaling": scaling}
    near = {"rope_type": "default", "rope_theta": config.local_rope_base}
    old |= {"rope_local_base_freq": config.local_rope_base, "sliding_window_pattern": config.pattern}
    return old | {"rope_parameters": {GLOBAL: far, LOCAL: near}}


# ----------------------------------------------------------------------------------------------------
# Tensor names


def canonical(name: str) -> str | None:
    """A tensor's name in a model that reads text alone; None for a tensor of the part that sees images."""
    if name.removeprefix("model.").startswith(("vision_tower.", "multi_modal_projector.")):
        return None
    if name.startswith("model.language_model."):
        return "model." + name.removeprefix("model.language_model.")
    return name.removeprefix("language_model.")


def places(config: Config) -> dict[str, Place]:
    """Where each Hugging Face tensor goes in the tree."""
    table = {
        "model.embed_tokens.weight": Place("embedder/input_embedding"),
        "model.norm.weight": Place("final_norm/scale"),
    }
    for i in range(config.layers):
        ours, theirs = f"layer_{i}", f"model.layers.{i}"
        table |= _attention(f"{theirs}.self_attn", f"{ours}/attn", config)
        table |= {
            f"{theirs}.mlp.gate_proj.weight": Place(f"{ours}/mlp/gating_einsum", slot=(0,)),
            f"{theirs}.mlp.up_proj.weight": Place(f"{ours}/mlp/gating_einsum", slot=(1,)),
            f"{theirs}.mlp.down_proj.weight": kernel(f"{ours}/mlp/linear"),
        }
        norms = NORMS if config.generation == 1 else LATER_NORMS
        table |= {f"{theirs}.{hf}.weight": Place(f"{ours}/{name}/scale") for hf, name in norms.items()}
    return table


NORMS = {"input_layernorm": "pre_attention_norm", "post_attention_layernorm": "pre_ffw_norm"}
LATER_NORMS = {
    "input_layernorm": "pre_attention_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "pre_ffw_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def _attention(theirs: str, ours: str, config: Config) -> dict[str, Place]:
    m, d, n, h = config.d_model, config.head_dim, config.heads, config.kv_heads
    inward = lambda heads, name, *slot: Place(
        f"{ours}/{name}/w", axes=(0, 2, 1), split=(heads, d, m), joined=(heads * d, m), slot=slot
    )
    if n == h:
        q, k, v = (inward(n, "qkv_einsum", i) for i in range(3))
    else:
        q, k, v = inward(n, "q_einsum"), inward(h, "kv_einsum", 0), inward(h, "kv_einsum", 1)
    out = Place(f"{ours}/attn_vec_einsum/w", axes=(1, 2, 0), split=(m, n, d), joined=(m, n * d))
    named = {"q_proj": q, "k_proj": k, "v_proj": v, "o_proj": out}
    if config.generation == 3:
        named |= {"q_norm": Place(f"{ours}/_query_norm/scale"), "k_norm": Place(f"{ours}/_key_norm/scale")}
    return {f"{theirs}.{name}.weight": place for name, place in named.items()}


# ----------------------------------------------------------------------------------------------------
# The official tree


def infer(shapes: Shapes) -> Config:
    """Config of an official tree, by its flat shapes (`layer_0/attn/q_einsum/w`; `gating_einsum` either way).

    Windows, soft-caps and rotations are in no shape, so they are those of the published model of these
    sizes. Raises CheckpointError where there is none, or for a tensor without which a size is unknown.
    """
    rows, d_model = _shape(shapes, "embedder/input_embedding", 2)
    heads, head_dim, _ = _shape(shapes, "layer_0/attn/attn_vec_einsum/w", 3)
    joined = "layer_0/attn/qkv_einsum/w" in shapes
    kv_heads = heads if joined else _shape(shapes, "layer_0/attn/kv_einsum/w", 4)[1]
    d_ff, _ = _shape(shapes, "layer_0/mlp/linear", 2)
    generation = 3 if "layer_0/attn/_query_norm/scale" in shapes else 1
    if generation == 1 and "layer_0/post_attention_norm/scale" in shapes:
        generation = 2
    indices = [int(m[1]) for name in shapes if (m := re.match(r"layer_(\d+)/", name))]
    sizes = dict(d_model=d_model, head_dim=head_dim, d_ff=d_ff, heads=heads, kv_heads=kv_heads)
    sizes |= dict(layers=max(indices) + 1, generation=generation)
    for preset in gemma.PRESETS.values():
        if all(getattr(preset, key) == value for key, value in sizes.items()):
            return replace(preset, vocab=min(preset.vocab, rows), embeddings=rows)
    raise CheckpointError(f"no published Gemma has these sizes: {sizes}; known: {sorted(gemma.PRESETS)}")


def _shape(shapes: Shapes, name: str, rank: int) -> tuple[int, ...]:
    shape = shapes.get(name)
    if shape is None or len(shape) != rank:
        raise CheckpointError(
            f"cannot tell the model's size: {name} is {shape or 'missing'}, expected {rank} axes"
        )
    return tuple(shape)


FAMILY = Family(
    model_type="gemma",
    other_types=("gemma2", "gemma3_text", WRAPPER),
    config=Config,
    check_dtype=check_dtype,
    read_config=read_config,
    write_config=write_config,
    places=places,
    duplicates=lambda config: {"lm_head.weight": "model.embed_tokens.weight"},
    never_used=frozenset(),
    canonical=canonical,
    shapes_of=gemma.shapes_of,
    infer=infer,
    lm=gemma.Gemma,
    with_vocab=lambda config, ids: replace(config, vocab=ids),
    usual_vocab=lambda rows: USED_OF.get(rows, rows),
)
