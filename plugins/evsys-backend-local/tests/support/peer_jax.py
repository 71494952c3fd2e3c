"""A decoder of the Llama family in jax, written from the papers and configs alone, to differentiate automatically.

It computes in float64, one sequence at a time, with every head spelled out: a check on a faster program, not a fast one.
"""

import json
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

jax.config.update("jax_enable_x64", True)


def rms(x, gain, eps):
    return x * gain / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + eps)


def frequencies(config, width):
    """Angles per position. Llama 3.1 slows waves that fit too rarely into the original context."""
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = settings.get("rope_theta") or config.get("rope_theta") or 10000.0
    plain = [theta ** (-2 * i / width) for i in range(width // 2)]
    kind = settings.get("rope_type", "default")
    if kind == "default":
        return plain
    if kind == "linear":
        return [value / settings["factor"] for value in plain]
    low, high, factor = (settings[name] for name in ("low_freq_factor", "high_freq_factor", "factor"))
    original = settings["original_max_position_embeddings"]
    changed = []
    for value in plain:
        wavelength = 2 * math.pi / value
        if wavelength > original / low:
            value /= factor
        elif wavelength >= original / high:
            share = (original / wavelength - low) / (high - low)
            value = (1 - share) * value / factor + share * value
        changed.append(value)
    return changed


def turned(x, angles):
    """Rotate `[T, heads, width]`, the first half of a head against the second."""
    first, second = jnp.split(x, 2, axis=-1)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def forward(config, weights, adapter, scale, tokens):
    """Logits `[T, vocab]`."""
    heads = config["num_attention_heads"]
    kv_heads = config["num_key_value_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    eps, count = config["rms_norm_eps"], len(tokens)
    angles = jnp.arange(count)[:, None] * jnp.asarray(frequencies(config, width))
    distance = jnp.arange(count)[:, None] - jnp.arange(count)
    seen = distance >= 0
    windowed = config["model_type"] == "mistral" or config.get("use_sliding_window")
    if windowed and config.get("sliding_window"):
        seen &= distance < config["sliding_window"]

    def linear(name, x):
        y = x @ weights[f"model.{name}.weight"].T
        if f"model.{name}.bias" in weights:
            y += weights[f"model.{name}.bias"]
        if f"{name}.lora_A" in adapter:
            y += scale * (x @ adapter[f"{name}.lora_A"].T) @ adapter[f"{name}.lora_B"].T
        return y

    x = weights["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        stem = f"layers.{layer}"
        normed = rms(x, weights[f"model.{stem}.input_layernorm.weight"], eps)
        parts = {}
        for letter, own in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            part = linear(f"{stem}.self_attn.{letter}_proj", normed).reshape(count, own, width)
            gain = weights.get(f"model.{stem}.self_attn.{letter}_norm.weight")
            part = part if gain is None else rms(part, gain, eps)
            parts[letter] = part if letter == "v" else turned(part, angles)
        mixed = []
        for head in range(heads):
            other = head * kv_heads // heads
            scores = parts["q"][:, head] @ parts["k"][:, other].T / math.sqrt(width)
            mixed.append(jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1) @ parts["v"][:, other])
        x += linear(f"{stem}.self_attn.o_proj", jnp.concatenate(mixed, -1))
        normed = rms(x, weights[f"model.{stem}.post_attention_layernorm.weight"], eps)
        gate = jax.nn.silu(linear(f"{stem}.mlp.gate_proj", normed))
        x += linear(f"{stem}.mlp.down_proj", gate * linear(f"{stem}.mlp.up_proj", normed))
    head = weights["model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"]
    return rms(x, weights["model.norm.weight"], eps) @ head.T


def gradients(job):
    """`logprobs` [T - 1] and the gradients of -sum(weights * logprobs) by the adapter's names."""
    home, folder = Path(job["model"]), Path(job["adapter"])
    config = json.loads((home / "config.json").read_text(encoding="utf-8"))
    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    weights = {}
    for path in home.glob("*.safetensors"):
        weights.update({name: jnp.asarray(value, jnp.float64) for name, value in load_file(path).items()})
    adapter = {}
    for name, value in load_file(folder / "adapter_model.safetensors").items():
        adapter[re.sub(r"^base_model\.model\.model\.|\.weight$", "", name)] = jnp.asarray(value, jnp.float64)
    tokens, factors = jnp.asarray(job["tokens"]), jnp.asarray(job["weights"])

    def loss(adapter):
        logits = forward(config, weights, adapter, settings["lora_alpha"] / settings["r"], tokens)
        table = jax.nn.log_softmax(logits[:-1], -1)
        logprobs = jnp.take_along_axis(table, tokens[1:, None], 1)[:, 0]
        return -(factors * logprobs).sum(), logprobs

    (_, logprobs), found = jax.value_and_grad(loss, has_aux=True)(adapter)
    named = {f"base_model.model.model.{name}.weight": np.asarray(value) for name, value in found.items()}
    return {"logprobs": np.asarray(logprobs), **named}
