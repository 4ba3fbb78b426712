"""GGUF files of the llama family: llama.cpp's names and metadata, each tensor dequantised as it is placed."""

import mmap
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spec_cascades.checkpoints import families
from spec_cascades.checkpoints.families.base import Family, Opened, Place
from spec_cascades.checkpoints.families.llama import HEAD, TABLE
from spec_cascades.checkpoints.leaves import Index, Leaf
from spec_cascades.checkpoints.tree import CheckpointError, check_exact, flatten
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

    Raises ValueError for a dtype that is not supported, and CheckpointError as `open_model` does and for
    types that cannot be dequantised.
    """
    opened, metadata = open_model(path)
    opened.family.check_dtype(dtype)
    return opened.family, opened.config, opened.read(dtype), metadata


def open_model(path: Path) -> tuple[Opened, dict[str, Any]]:
    """What a GGUF file holds, its tensors unread, and its metadata.

    Raises CheckpointError unless the file holds exactly a llama model's tensors.
    """
    reader = _open(path)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise CheckpointError(f"{path} holds a {architecture!r}, not one of {list(ARCHITECTURES)}")
    family = families.by_model_type("llama")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = _config(metadata, tensors)
    places = {_name(theirs): place for theirs, place in family.places(config).items()}
    shapes = flatten(family.shapes_of(config))
    expected = {name: place.shape(shapes[place.path]) for name, place in places.items()}
    found = {name: _shape(tensor) for name, tensor in tensors.items() if name != ROPE}
    check_exact(expected, found, str(path))
    leaves = {}
    for name, place in places.items():
        fill = partial(_fill, reader, tensors[name], place, _turned(place, config))
        leaves[place.path] = Leaf(shapes[place.path], fill)
    return Opened(family, config, _stored(tensors.values()), leaves), metadata


def _stored(tensors: Iterable[Any]) -> dict[str, int]:
    """Bytes by llama.cpp's name of a type."""
    held: dict[str, int] = {}
    for tensor in tensors:
        kind = tensor.tensor_type.name
        held[kind] = held.get(kind, 0) + int(tensor.n_bytes)
    return held


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


def _turned(place: Place, config: Config) -> int:
    """Rows of a head whose rotary pairs are neighbours; 1 for tensors that are not turned."""
    return config.head_dim if re.search("/attention/(query|key)/", place.path) else 1


def _fill(reader: Any, tensor: Any, place: Place, head: int, out: np.ndarray, index: Index) -> None:
    """Writes a part of a leaf: the rows it needs, whole heads where `head` is more than 1, ROWS at a time."""
    view, (rows, *rest) = place.view(out, index)
    step = max(1, ROWS // head) * head
    for at in range(rows.start // head * head, rows.stop, step):
        end = min(at + step, -(-rows.stop // head) * head)
        own = slice(max(at, rows.start), min(end, rows.stop))
        values = _half_rotated(_dequantised(tensor, at, end), head)
        view[own.start - rows.start : own.stop - rows.start] = values[own.start - at : own.stop - at, *rest]
        # What was read of the mapped file need not stay in memory.
        reader.data._mmap.madvise(mmap.MADV_DONTNEED)


def _half_rotated(rows: np.ndarray, head: int) -> np.ndarray:
    """Rows of q or k, whose rotary pairs GGUF keeps as neighbours (2j, 2j + 1), as halves (j, j + d/2)."""
    if head == 1:
        return rows
    apart = rows.reshape(-1, head // 2, 2, rows.shape[1])
    return apart.swapaxes(1, 2).reshape(rows.shape)


def _dequantised(tensor: Any, start: int, stop: int) -> np.ndarray:
    """Rows of a tensor, float32."""
    from gguf import dequantize

    kind = tensor.tensor_type
    try:
        return dequantize(tensor.data[start:stop], kind)
    except NotImplementedError as error:
        raise CheckpointError(f"{tensor.name} is of type {kind.name}, which cannot be dequantised") from error
