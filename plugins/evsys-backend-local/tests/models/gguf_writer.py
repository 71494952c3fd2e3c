"""Writes small GGUF files for tests, from the format's description."""

import struct

import numpy as np


def _text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value):
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


def write_gguf(path, metadata, tensors):
    """`tensors` maps a name to (shape rows first, type number, raw bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += _text(key) + _value(value)
    data = b""
    for name, (shape, kind, raw) in tensors.items():
        data += b"\0" * (-len(data) % 32)
        head += _text(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", size) for size in reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += raw
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)


def f32(array):
    return (array.shape, 0, np.ascontiguousarray(array, "<f4").tobytes())


TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tokenizer_metadata():
    """A byte-level vocabulary with one merge, of the smollm kind."""
    letters = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    others = [byte for byte in range(256) if byte not in letters]
    alphabet = [chr(b) for b in letters] + [chr(256 + i) for i in range(len(others))]
    tokens = [*TOKENS, *sorted(alphabet), "he"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (len(tokens) - 3),
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    }


LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def write_model(path, weights, architecture="llama", **metadata):
    """A whole model: what a converter would write for these base weights."""
    shape = weights.shape
    sizes = {
        "block_count": shape.layers,
        "context_length": shape.max_context,
        "embedding_length": shape.dim,
        "feed_forward_length": shape.hidden,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "rope.freq_base": shape.rope_theta,
        "attention.layer_norm_rms_epsilon": shape.norm_eps,
    }
    meta = {
        "general.architecture": architecture,
        **{f"{architecture}.{key}": value for key, value in sizes.items()},
        **tokenizer_metadata(),
        **metadata,
    }
    tensors = {}
    if shape.rope_factors is not None:
        tensors["rope_freqs.weight"] = f32(np.asarray(shape.rope_factors))
    for name, array in weights.params.items():
        if name in TOP:
            tensors[TOP[name]] = f32(array)
            continue
        _, _, layer, rest = name.split(".", 3)
        if architecture == "llama" and rest.endswith(("q_proj.weight", "k_proj.weight")):
            # pairs (i, i + half) of a head become neighbours
            half = shape.head_dim // 2
            heads = array.reshape(-1, shape.head_dim, shape.dim)
            order = np.stack([np.arange(half), np.arange(half) + half], 1).reshape(-1)
            array = heads[:, order].reshape(array.shape)
        tensors[f"blk.{layer}.{LAYER[rest]}"] = f32(array)
    write_gguf(path, meta, tensors)
