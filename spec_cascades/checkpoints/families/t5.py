"""T5 1.0, T5 1.1 and Flan-T5: Hugging Face's names and config.json, and sizes read off a T5X tree."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from spec_cascades.checkpoints.families.base import Family, Place, Weights, kernel
from spec_cascades.checkpoints.tree import CheckpointError, Shapes
from spec_cascades.models import t5
from spec_cascades.models.t5 import Config

DTYPES = ("float32", "bfloat16")

FEED_FORWARD = {
    "relu": (False, "relu"),
    "gelu_new": (False, "gelu"),
    "gated-gelu": (True, "gelu"),
    "gated-gelu_new": (True, "gelu"),
    "gated-relu": (True, "relu"),
}
"""`feed_forward_proj` -> (gated, activation); plain "gelu" is the exact error function, used by no T5."""

FEED_FORWARD_NAME = {value: name for name, value in reversed(FEED_FORWARD.items())}

USED_OF = {32_128: 32_100}
"""Rows of the published table -> ids its tokenizer knows (32,000 pieces and 100 sentinels)."""

FIELDS = {
    "embeddings": "vocab_size",
    "d_model": "d_model",
    "d_kv": "d_kv",
    "d_ff": "d_ff",
    "heads": "num_heads",
    "encoder_layers": "num_layers",
}
OPTIONAL = {
    "buckets": "relative_attention_num_buckets",
    "max_distance": "relative_attention_max_distance",
    "epsilon": "layer_norm_epsilon",
    "pad": "pad_token_id",
    "eos": "eos_token_id",
    "start": "decoder_start_token_id",
}
IN_USE = "vocab_in_use"
"""Our own key of config.json: how many of the table's rows are ids of the tokenizer."""


def check_dtype(name: str) -> None:
    """Raises ValueError, with the reason, for float16 and for what is no weight dtype."""
    if name == "float16":
        t5.refuse_fp16(jax.ShapeDtypeStruct((), jnp.float16))
    if name not in DTYPES:
        raise ValueError(f"dtype {name!r} is not one of {list(DTYPES)}")


# ----------------------------------------------------------------------------------------------------
# config.json


def read_config(json: Mapping[str, Any], weights: Weights) -> Config:
    """Config of a config.json and the weights beside it, which alone say whether the head is tied.

    Raises CheckpointError for a key that is missing or a model that cannot be represented.
    """
    absent = [key for key in FIELDS.values() if key not in json]
    if absent:
        raise CheckpointError(f"config.json lacks {', '.join(absent)}")
    form = json.get("feed_forward_proj", "relu")
    if form not in FEED_FORWARD:
        raise CheckpointError(f"feed_forward_proj {form!r} is not one of {sorted(FEED_FORWARD)}")
    gated, activation = FEED_FORWARD[form]
    sizes = {ours: json[theirs] for ours, theirs in FIELDS.items()}
    sizes |= {ours: json[theirs] for ours, theirs in OPTIONAL.items() if json.get(theirs) is not None}
    return Config(
        vocab=json.get(IN_USE) or json["vocab_size"],
        decoder_layers=json.get("num_decoder_layers") or json["num_layers"],
        gated=gated,
        activation=activation,
        tied=_tied(json, weights),
        **sizes,
    )


def _tied(json: Mapping[str, Any], weights: Weights) -> bool:
    """Whether the head is the table, scaled by d_model^-0.5; the two properties go together in every T5.

    A v1.1 model says tie_word_embeddings = false and brings a head; newer writers say true of every
    model and keep the scaling apart, as scale_decoder_outputs.
    """
    scaled = json.get("scale_decoder_outputs", json.get("tie_word_embeddings") is not False)
    has_head = "lm_head.weight" in weights.shapes
    if not scaled:
        if not has_head:
            raise CheckpointError(
                "lm_head.weight is missing, but config.json asks for unscaled logits: a T5 with tied "
                "embeddings scales them by d_model^-0.5. Set tie_word_embeddings to true, or store the head."
            )
        return False
    if has_head and not weights.same("lm_head.weight", "shared.weight"):
        raise CheckpointError(
            "lm_head.weight differs from shared.weight, but config.json asks for the scaled logits of tied "
            "embeddings. Set tie_word_embeddings (and scale_decoder_outputs, if there) to false, or drop it."
        )
    return True


def write_config(config: Config) -> dict[str, Any]:
    """config.json such that transformers' T5ForConditionalGeneration computes what `models.t5` does."""
    form = FEED_FORWARD_NAME[config.gated, config.activation]
    keys = {theirs: getattr(config, ours) for ours, theirs in (FIELDS | OPTIONAL).items()}
    return keys | {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "is_encoder_decoder": True,
        "num_decoder_layers": config.decoder_layers,
        "feed_forward_proj": form,
        "tie_word_embeddings": config.tied,
        "scale_decoder_outputs": config.tied,
        IN_USE: config.vocab,
    }


# ----------------------------------------------------------------------------------------------------
# Tensor names


def places(config: Config) -> dict[str, Place]:
    """Where each Hugging Face tensor goes in the tree."""
    table = {"shared.weight": Place("token_embedder/embedding")}
    for i in range(config.encoder_layers):
        ours, theirs = f"encoder/layers_{i}", f"encoder.block.{i}.layer"
        table |= _attention(f"{theirs}.0", "SelfAttention", ours, "attention", "pre_attention_layer_norm")
        table |= _feed_forward(f"{theirs}.1", ours, config)
    for i in range(config.decoder_layers):
        ours, theirs = f"decoder/layers_{i}", f"decoder.block.{i}.layer"
        table |= _attention(
            f"{theirs}.0", "SelfAttention", ours, "self_attention", "pre_self_attention_layer_norm"
        )
        table |= _attention(
            f"{theirs}.1",
            "EncDecAttention",
            ours,
            "encoder_decoder_attention",
            "pre_cross_attention_layer_norm",
        )
        table |= _feed_forward(f"{theirs}.2", ours, config)
    for stack in ("encoder", "decoder"):
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        table[bias] = kernel(f"{stack}/relpos_bias/rel_embedding")
        table[f"{stack}.final_layer_norm.weight"] = Place(f"{stack}/{stack}_norm/scale")
    head = {} if config.tied else {"lm_head.weight": kernel("decoder/logits_dense/kernel")}
    return table | head


def _attention(theirs: str, kind: str, ours: str, name: str, norm: str) -> dict[str, Place]:
    letters = {"q": "query", "k": "key", "v": "value", "o": "out"}
    kernels = {
        f"{theirs}.{kind}.{letter}.weight": kernel(f"{ours}/{name}/{word}/kernel")
        for letter, word in letters.items()
    }
    return kernels | {f"{theirs}.layer_norm.weight": Place(f"{ours}/{norm}/scale")}


def _feed_forward(theirs: str, ours: str, config: Config) -> dict[str, Place]:
    names = ("wi_0", "wi_1", "wo") if config.gated else ("wi", "wo")
    kernels = {f"{theirs}.DenseReluDense.{n}.weight": kernel(f"{ours}/mlp/{n}/kernel") for n in names}
    return kernels | {f"{theirs}.layer_norm.weight": Place(f"{ours}/pre_mlp_layer_norm/scale")}


def duplicates(config: Config) -> dict[str, str]:
    """Copies of the table that writers leave behind."""
    copies = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
    return {name: "shared.weight" for name in copies + ["lm_head.weight"] * config.tied}


# ----------------------------------------------------------------------------------------------------
# T5X


def infer(shapes: Shapes) -> Config:
    """Config of a T5X tree: every size is a shape, and the activation goes with the gate.

    Raises CheckpointError naming a tensor without which a size is unknown.
    """
    rows, d_model = _shape(shapes, "token_embedder/embedding", 2)
    heads, buckets = _shape(shapes, "encoder/relpos_bias/rel_embedding", 2)
    _, joined = _shape(shapes, "encoder/layers_0/attention/query/kernel", 2)
    gated = "encoder/layers_0/mlp/wi_0/kernel" in shapes
    _, d_ff = _shape(shapes, f"encoder/layers_0/mlp/{'wi_0' if gated else 'wi'}/kernel", 2)
    return Config(
        vocab=rows,
        embeddings=rows,
        d_model=d_model,
        d_kv=joined // heads,
        d_ff=d_ff,
        heads=heads,
        encoder_layers=_layers(shapes, "encoder"),
        decoder_layers=_layers(shapes, "decoder"),
        gated=gated,
        activation="gelu" if gated else "relu",
        tied="decoder/logits_dense/kernel" not in shapes,
        buckets=buckets,
    )


def _shape(shapes: Shapes, name: str, rank: int) -> tuple[int, ...]:
    shape = shapes.get(name)
    if shape is None or len(shape) != rank:
        raise CheckpointError(
            f"cannot tell the model's size: {name} is {shape or 'missing'}, expected {rank} axes"
        )
    return tuple(shape)


def _layers(shapes: Shapes, stack: str) -> int:
    indices = [int(m[1]) for name in shapes if (m := re.match(rf"{stack}/layers_(\d+)/", name))]
    if not indices:
        raise CheckpointError(f"cannot tell the model's size: no {stack}/layers_0")
    return max(indices) + 1


FAMILY = Family(
    model_type="t5",
    config=Config,
    check_dtype=check_dtype,
    read_config=read_config,
    write_config=write_config,
    places=places,
    duplicates=duplicates,
    # The first T5 release stored a bias for cross-attention, which has none.
    never_used=frozenset({"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"}),
    shapes_of=t5.shapes_of,
    infer=infer,
    lm=t5.T5,
    with_vocab=lambda config, ids: replace(config, vocab=ids),
    usual_vocab=lambda rows: USED_OF.get(rows, rows),
)
