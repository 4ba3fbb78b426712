"""GGUF files of the llama family: llama.cpp's names and metadata, each tensor dequantised as it is placed."""

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spec_cascades.checkpoints import families
from spec_cascades.checkpoints.families.base import Family, Place
from spec_cascades.checkpoints.families.llama import HEAD, TABLE
from spec_cascades.checkpoints.tree import CheckpointError, blank, check_exact, flatten, unflatten
from spec_cascades.models.llama import Config, Linear, Llama3
from spec_cascades.typing import Params

SUFFIX = ".gguf"
ARCHITECTURES = ("llama",)
ROWS = 4096
"""Rows dequantised at a time: the float32 of a whole table would be twice or four times its place."""

LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
WHOLE = {TABLE: "token_embd.weight", "model.norm.weight": "output_norm.weight", HEAD: "output.weight"}
ROPE = "rope_freqs.weight"
"""What Llama 3.1's stretch divides each frequency by: a tensor, since the metadata has no keys for it."""

STRETCHES = (Llama3(8.0), Llama3(32.0))
"""The stretches that were published (Llama 3.1 and 3.2), one of which the divisors must be."""


def read(path: Path, dtype: str) -> tuple[Family, Config, Params, dict[str, Any]]:
    """Family, Config, parameters in `dtype` and metadata of a GGUF file.

    Raises ValueError for a dtype that is not supported, and CheckpointError unless the file holds exactly a
    llama model's tensors, in types that can be dequantised.
    """
    reader = _open(path)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise CheckpointError(f"{path} holds a {architecture!r}, not one of {list(ARCHITECTURES)}")
    family = families.by_model_type("llama")
    family.check_dtype(dtype)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = _config(metadata, tensors)
    places = {_name(theirs): place for theirs, place in family.places(config).items()}
    shapes = flatten(family.shapes_of(config))
    expected = {name: place.shape(shapes[place.path]) for name, place in places.items()}
    found = {name: _shape(tensor) for name, tensor in tensors.items() if name != ROPE}
    check_exact(expected, found, str(path))
    leaves = {}
    for name, place in places.items():
        leaves[place.path] = _leaf(tensors[name], place, config, dtype)
        # What was read of the mapped file need not stay in memory.
        reader.data._mmap.madvise(mmap.MADV_DONTNEED)
    return family, config, unflatten(leaves), metadata


def _open(path: Path) -> Any:
    from gguf import GGUFReader

    try:
        return GGUFReader(path)
    except (ValueError, KeyError, IndexError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as GGUF: {error}") from error


def _name(theirs: str) -> str:
    """GGUF's name of a Hugging Face tensor."""
    if theirs in WHOLE:
        return WHOLE[theirs]
    _, _, i, *rest, _ = theirs.split(".")
    return f"blk.{i}.{LAYER['.'.join(rest)]}.weight"


def _shape(tensor: Any) -> tuple[int, ...]:
    """The tensor's shape as numpy has it: GGUF counts axes from the innermost."""
    return tuple(int(n) for n in reversed(tensor.shape))


# ----------------------------------------------------------------------------------------------------
# Metadata


def _config(metadata: Mapping[str, Any], tensors: Mapping[str, Any]) -> Config:
    def get(key: str) -> Any:
        if f"llama.{key}" not in metadata:
            raise CheckpointError(f"the GGUF file lacks llama.{key}")
        return metadata[f"llama.{key}"]

    if WHOLE[TABLE] not in tensors:
        raise CheckpointError(f"the GGUF file lacks {WHOLE[TABLE]}")
    heads, width = get("attention.head_count"), get("embedding_length")
    size = metadata.get("llama.attention.key_length", width // heads)
    theta = float(metadata.get("llama.rope.freq_base", 10_000.0))
    rows = _shape(tensors[WHOLE[TABLE]])[0]
    config = Config(
        vocab=rows,
        embeddings=rows,
        d_model=width,
        d_ff=get("feed_forward_length"),
        layers=get("block_count"),
        heads=heads,
        kv_heads=metadata.get("llama.attention.head_count_kv", heads),
        head_dim=size,
        theta=theta,
        tied=WHOLE[HEAD] not in tensors,
        # Stored as float32: 1e-5 comes back as 9.99999975e-06.
        epsilon=float(f"{get('attention.layer_norm_rms_epsilon'):.6g}"),
        scaling=_scaling(metadata, tensors, theta, size),
        context=metadata.get("llama.context_length"),
        **_special(metadata),
    )
    turned = metadata.get("llama.rope.dimension_count", size)
    if turned != size:
        raise CheckpointError(f"llama.rope.dimension_count {turned} is not the head size {size}")
    return config


def _special(metadata: Mapping[str, Any]) -> dict[str, Any]:
    get = lambda key: metadata.get(f"tokenizer.ggml.{key}_token_id")
    ends = dict.fromkeys(i for i in map(get, ("eos", "eot", "eom")) if i is not None)
    return {"bos": get("bos"), "eos": tuple(ends), "pad": get("padding")}


def _scaling(
    metadata: Mapping[str, Any], tensors: Mapping[str, Any], theta: float, size: int
) -> Linear | Llama3 | None:
    kind = metadata.get("llama.rope.scaling.type", "none")
    if kind == "linear":
        return Linear(float(metadata["llama.rope.scaling.factor"]))
    if kind != "none":
        raise CheckpointError(f"llama.rope.scaling.type {kind!r} is not one of ['linear', 'none']")
    if ROPE not in tensors:
        return None
    plain = theta ** (-np.arange(0, size, 2) / size)
    divisors = np.asarray(tensors[ROPE].data, np.float64)
    for stretch in STRETCHES:
        if divisors.shape == plain.shape and np.allclose(plain / stretch(plain), divisors, rtol=1e-4):
            return stretch
    raise CheckpointError(f"{ROPE} is none of the published stretches {[str(s) for s in STRETCHES]}")


# ----------------------------------------------------------------------------------------------------
# Tensors


def _leaf(tensor: Any, place: Place, config: Config, dtype: str) -> jnp.ndarray:
    shape = _shape(tensor)
    leaf = blank(shape if place.axes is None else tuple(shape[i] for i in place.axes), dtype)
    view = place.view(leaf)
    _dequantise(tensor, view)
    heads = {"attention/query": config.heads, "attention/key": config.kv_heads}
    for part, n in heads.items():
        if f"/{part}/" in place.path:
            view[...] = _half_rotated(view, n)
    return jax.device_put(leaf)


def _half_rotated(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k, whose rotary pairs GGUF keeps as neighbours (2j, 2j + 1), as halves (j, j + d/2)."""
    apart = rows.reshape(heads, -1, 2, rows.shape[1])
    return apart.swapaxes(1, 2).reshape(rows.shape)


def _dequantise(tensor: Any, view: np.ndarray) -> None:
    """Writes the tensor's values, ROWS rows at a time."""
    from gguf import dequantize

    data, kind = tensor.data, tensor.tensor_type
    try:
        for at in range(0, len(data), ROWS):
            view[at : at + ROWS] = dequantize(data[at : at + ROWS], kind)
    except NotImplementedError as error:
        raise CheckpointError(f"{tensor.name} is of type {kind.name}, which cannot be dequantised") from error
