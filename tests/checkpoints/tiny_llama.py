"""A tiny llama model, and GGUF files of it written with the gguf package's own writer."""

import jax
import numpy as np
import tiny_bpe

from spec_cascades.checkpoints.families import llama as family
from spec_cascades.checkpoints.tree import flatten
from spec_cascades.models import llama

WIDTH, HEADS, KV, SIZE, FF, LAYERS = 64, 4, 2, 16, 96, 2
VOCAB = tiny_bpe.trained().get_vocab_size()


def config(**sizes):
    usual = dict(vocab=VOCAB, embeddings=VOCAB, d_model=WIDTH, d_ff=FF, layers=LAYERS, heads=HEADS)
    usual |= dict(kv_heads=KV, head_dim=SIZE, theta=1000.0, bos=1, eos=(0,))
    return llama.Config(**usual | sizes)


def params(config):
    """A tree of the model's shapes, float32 numpy."""
    rng = np.random.default_rng(0)
    draw = lambda shape: rng.normal(size=shape).astype(np.float32)
    return jax.tree.map(draw, llama.shapes_of(config), is_leaf=lambda x: isinstance(x, tuple))


def theirs(config, params):
    """The parameters by Hugging Face name and layout."""
    flat = flatten(params)
    return {name: place.give(flat[place.path]) for name, place in family.places(config).items()}


NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
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


def gguf_name(name):
    name = name.removesuffix(".weight")
    if name.startswith("model.layers."):
        i, part = name.removeprefix("model.layers.").split(".", 1)
        return f"blk.{i}.{NAMES[part]}.weight"
    return f"{NAMES[name]}.weight"


def interleaved(rows, heads):
    """Rows of q or k as llama.cpp turns them: pair j of a head lies at 2j and 2j + 1."""
    out, size = np.empty_like(rows), len(rows) // heads
    for h in range(heads):
        for j in range(size // 2):
            out[h * size + 2 * j] = rows[h * size + j]
            out[h * size + 2 * j + 1] = rows[h * size + size // 2 + j]
    return out


def tensors(config, params):
    """The parameters by GGUF name and layout, float32."""
    found = {gguf_name(name): value for name, value in theirs(config, params).items()}
    for name, value in found.items():
        if "attn_q" in name or "attn_k" in name:
            found[name] = interleaved(value, config.heads if "attn_q" in name else config.kv_heads)
    return found


def keys(config):
    """The metadata of a GGUF file."""
    sizes = {
        "block_count": config.layers,
        "context_length": 128,
        "embedding_length": config.d_model,
        "feed_forward_length": config.d_ff,
        "attention.head_count": config.heads,
        "attention.head_count_kv": config.kv_heads,
        "attention.layer_norm_rms_epsilon": config.epsilon,
        "rope.freq_base": config.theta,
        "rope.dimension_count": config.head_dim,
    }
    return {f"llama.{key}": value for key, value in sizes.items()} | tiny_bpe.metadata()


def write(path, keys, tensors, kind="F32", architecture="llama"):
    """A GGUF file; matrices are stored as `kind`, vectors as float32. What was stored comes back, by name."""
    from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize

    writer, kept = GGUFWriter(path, architecture), {}
    add = {bool: writer.add_bool, str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
    for key, value in keys.items():
        writer.add_array(key, value) if isinstance(value, list) else add[type(value)](key, value)
    for name, value in tensors.items():
        if value.dtype == np.float64:  # a type that is not read
            writer.add_tensor(name, value)
            continue
        own = GGMLQuantizationType[kind if value.ndim == 2 else "F32"]
        data = quantize(np.ascontiguousarray(value), own)
        writer.add_tensor(name, data, raw_dtype=own)
        kept[name] = dequantize(data, own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return kept
