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


def write_model(path, weights, **metadata):
    """A whole Llama model: what a converter would write for these base weights."""
    shape = weights.shape
    meta = {
        "general.architecture": "llama",
        "llama.block_count": shape.layers,
        "llama.context_length": shape.max_context,
        "llama.embedding_length": shape.dim,
        "llama.feed_forward_length": shape.hidden,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.kv_heads,
        "llama.attention.key_length": shape.head_dim,
        "llama.rope.freq_base": shape.rope_theta,
        "llama.attention.layer_norm_rms_epsilon": shape.norm_eps,
        **tokenizer_metadata(),
        **metadata,
    }
    names = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    tensors = {}
    for name, array in weights.params.items():
        if name == "model.embed_tokens.weight":
            tensors["token_embd.weight"] = f32(array)
        elif name == "model.norm.weight":
            tensors["output_norm.weight"] = f32(array)
        else:
            _, _, layer, rest = name.split(".", 3)
            stem = rest.removesuffix(".weight")
            if stem.endswith(("q_proj", "k_proj")):
                # pairs (i, i + half) of a head become neighbours
                half = shape.head_dim // 2
                heads = array.reshape(-1, shape.head_dim, shape.dim)
                order = np.stack([np.arange(half), np.arange(half) + half], 1).reshape(-1)
                array = heads[:, order].reshape(array.shape)
            tensors[f"blk.{layer}.{names[stem]}.weight"] = f32(array)
    write_gguf(path, meta, tensors)
