"""SmolLM2, Llama 3, TinyLlama and models of their shape: Hugging Face's names and config.json."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spec_cascades.checkpoints.families.base import Family, Place, Weights, kernel
from spec_cascades.checkpoints.tree import CheckpointError, Shapes
from spec_cascades.models import llama
from spec_cascades.models.llama import Config, Linear, Llama3

DTYPES = ("float32", "bfloat16")

FIELDS = {
    "embeddings": "vocab_size",
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "epsilon": "rms_norm_eps",
}
IN_USE = "vocab_in_use"
"""Our own key of config.json: how many of the table's rows are ids of the tokenizer."""

FIXED = {"hidden_act": ("silu", "swish"), "attention_bias": (False,), "mlp_bias": (False,)}
"""Keys of which the family is one value (the first is the default), and all of its spellings."""

LLAMA3 = {
    "factor": "factor",
    "low": "low_freq_factor",
    "high": "high_freq_factor",
    "original": "original_max_position_embeddings",
}
KINDS = ("default", "linear", "llama3")

BLOCK = {
    "self_attn.q_proj": "attention/query",
    "self_attn.k_proj": "attention/key",
    "self_attn.v_proj": "attention/value",
    "self_attn.o_proj": "attention/out",
    "mlp.gate_proj": "mlp/gate",
    "mlp.up_proj": "mlp/up",
    "mlp.down_proj": "mlp/down",
}
NORMS = {"input_layernorm": "pre_attention_norm", "post_attention_layernorm": "pre_mlp_norm"}
TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def check_dtype(name: str) -> None:
    """Raises ValueError for what is no weight dtype of this package."""
    if name not in DTYPES:
        raise ValueError(f"dtype {name!r} is not one of {list(DTYPES)}")


# ----------------------------------------------------------------------------------------------------
# config.json


def read_config(json: Mapping[str, Any], weights: Weights) -> Config:
    """Config of a config.json and the weights beside it, which show whether the head is tied.

    Raises CheckpointError for a key that is missing or a model that cannot be represented.
    """
    absent = [key for key in FIELDS.values() if key not in json]
    if absent:
        raise CheckpointError(f"config.json lacks {', '.join(absent)}")
    for key, allowed in FIXED.items():
        if json.get(key, allowed[0]) not in allowed:
            raise CheckpointError(f"{key} {json[key]!r} is not one of {list(allowed)}: no such layer here")
    sizes = {ours: json[theirs] for ours, theirs in FIELDS.items()}
    theta, scaling = rope(json)
    return Config(
        vocab=json.get(IN_USE) or json["vocab_size"],
        kv_heads=json.get("num_key_value_heads") or json["num_attention_heads"],
        head_dim=json.get("head_dim") or json["hidden_size"] // json["num_attention_heads"],
        theta=theta,
        scaling=scaling,
        tied=_tied(json, weights),
        bos=json.get("bos_token_id"),
        eos=ids(json.get("eos_token_id")),
        pad=json.get("pad_token_id"),
        context=json.get("max_position_embeddings"),
        **sizes,
    )


def ids(value: int | list[int] | None) -> tuple[int, ...]:
    """A key that holds one id, several or none."""
    return () if value is None else tuple(value) if isinstance(value, list) else (value,)


def rope(json: Mapping[str, Any]) -> tuple[float, Linear | Llama3 | None]:
    """theta and scaling of either layout: `rope_theta` and `rope_scaling`, or `rope_parameters` with both."""
    given = json.get("rope_parameters") or json.get("rope_scaling") or {}
    theta = float(given.get("rope_theta") or json.get("rope_theta") or 10_000.0)
    part = given.get("partial_rotary_factor", json.get("partial_rotary_factor", 1.0))
    if part != 1.0:
        raise CheckpointError(f"partial_rotary_factor {part} is not 1: heads are turned as a whole here")
    kind = given.get("rope_type", given.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, Linear(float(_of(given, "factor")))
    if kind == "llama3":
        values = {ours: _of(given, theirs) for ours, theirs in LLAMA3.items()}
        return theta, Llama3(**{**values, "factor": float(values["factor"])})
    raise CheckpointError(f"rope_type {kind!r} is not one of {list(KINDS)}")


def _of(given: Mapping[str, Any], key: str) -> Any:
    if key not in given:
        raise CheckpointError(f"config.json's rope settings lack {key}: {dict(given)}")
    return given[key]


def _tied(json: Mapping[str, Any], weights: Weights) -> bool:
    """No head where none is promised, or a head that repeats the table; one that differs is a head."""
    if HEAD not in weights.shapes:
        return bool(json.get("tie_word_embeddings", False))
    return weights.same(HEAD, TABLE)


def write_config(config: Config) -> dict[str, Any]:
    """config.json such that transformers' LlamaForCausalLM computes what `models.llama` does.

    RoPE is written in both layouts: versions before 5 read `rope_theta` and `rope_scaling` only.
    """
    keys = {theirs: getattr(config, ours) for ours, theirs in FIELDS.items()}
    scaling = _scaling(config.scaling)
    return keys | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": config.tied,
        "rope_theta": config.theta,
        "rope_scaling": scaling,
        "rope_parameters": {"rope_theta": config.theta, **(scaling or {"rope_type": "default"})},
        "bos_token_id": config.bos,
        "eos_token_id": config.eos[0] if len(config.eos) == 1 else list(config.eos) or None,
        "pad_token_id": config.pad,
        IN_USE: config.vocab,
        **({} if config.context is None else {"max_position_embeddings": config.context}),
    }


def _scaling(scaling: Linear | Llama3 | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    if isinstance(scaling, Linear):
        return {"rope_type": "linear", "factor": scaling.factor}
    return {"rope_type": "llama3"} | {theirs: getattr(scaling, ours) for ours, theirs in LLAMA3.items()}


# ----------------------------------------------------------------------------------------------------
# Tensor names


def places(config: Config) -> dict[str, Place]:
    """Where each Hugging Face tensor goes in the tree."""
    table = {TABLE: Place("embedder/embedding"), "model.norm.weight": Place("final_norm/scale")}
    for i in range(config.layers):
        ours, theirs = f"layers_{i}", f"model.layers.{i}"
        table |= {f"{theirs}.{a}.weight": kernel(f"{ours}/{b}/kernel") for a, b in BLOCK.items()}
        table |= {f"{theirs}.{a}.weight": Place(f"{ours}/{b}/scale") for a, b in NORMS.items()}
    return table | ({} if config.tied else {HEAD: kernel("logits_dense/kernel")})


def duplicates(config: Config) -> dict[str, str]:
    """Copies of the table that writers leave behind."""
    return {HEAD: TABLE} if config.tied else {}


def _no_t5x(shapes: Shapes) -> Config:
    raise CheckpointError("a llama model cannot be told from a T5X tree: no such checkpoints are published")


FAMILY = Family(
    model_type="llama",
    config=Config,
    check_dtype=check_dtype,
    read_config=read_config,
    write_config=write_config,
    places=places,
    duplicates=duplicates,
    # Early conversions stored the rotary frequencies, which follow from config.json.
    never_used=frozenset(f"model.layers.{i}.self_attn.rotary_emb.inv_freq" for i in range(128)),
    shapes_of=llama.shapes_of,
    infer=_no_t5x,
    lm=llama.Llama,
    with_vocab=lambda config, ids: replace(config, vocab=ids),
    usual_vocab=lambda rows: rows,
)
