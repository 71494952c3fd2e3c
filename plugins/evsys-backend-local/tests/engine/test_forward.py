"""The packed forward pass against a plain one written here, sequence by sequence."""

import numpy as np

from evsys_backend_local.engine.batch import Example


def norm(x, gain, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def rotated(x, position, theta, factors):
    half = len(x) // 2
    out = np.empty_like(x)
    for i in range(half):
        angle = position * theta ** (-2 * i / len(x)) / (factors[i] if factors else 1)
        out[i] = x[i] * np.cos(angle) - x[i + half] * np.sin(angle)
        out[i + half] = x[i + half] * np.cos(angle) + x[i] * np.sin(angle)
    return out


def linear(weights, lora, layer, parent, name, x):
    y = weights.params[f"model.layers.{layer}.{parent}.{name}.weight"] @ x
    bias = f"model.layers.{layer}.{parent}.{name}.bias"
    if bias in weights.params:
        y = y + weights.params[bias]
    stem = f"layers.{layer}.{parent}.{name}"
    if lora is not None and stem + ".lora_A" in lora.params:
        y = y + lora.scale * (lora.params[stem + ".lora_B"] @ (lora.params[stem + ".lora_A"] @ x))
    return y


def plain_logits(weights, lora, tokens):
    s = weights.shape
    xs = [weights.embed[t].copy() for t in tokens]
    for layer in range(s.layers):
        w = {k.removeprefix(f"model.layers.{layer}."): v for k, v in weights.params.items()}
        queries, keys, values = [], [], []
        for position, x in enumerate(xs):
            h = norm(x, w["input_layernorm.weight"], s.norm_eps)
            heads = {}
            for name, store in (("q_proj", queries), ("k_proj", keys), ("v_proj", values)):
                y = linear(weights, lora, layer, "self_attn", name, h).reshape(-1, s.head_dim)
                if s.qk_norm and name != "v_proj":
                    y = norm(y, w[f"self_attn.{name[0]}_norm.weight"], s.norm_eps)
                if name != "v_proj":
                    y = np.stack([rotated(head, position, s.rope_theta, s.rope_factors) for head in y])
                heads[name] = y
                store.append(y)
        for position in range(len(xs)):
            mixed = []
            seen = range(max(0, position + 1 - s.window) if s.window else 0, position + 1)
            for head in range(s.heads):
                kv = head // (s.heads // s.kv_heads)
                scores = np.array([queries[position][head] @ keys[j][kv] for j in seen])
                p = np.exp(scores / np.sqrt(s.head_dim) - (scores / np.sqrt(s.head_dim)).max())
                p /= p.sum()
                mixed.append(sum(weight * values[j][kv] for weight, j in zip(p, seen, strict=True)))
            x = xs[position] + linear(weights, lora, layer, "self_attn", "o_proj", np.concatenate(mixed))
            h = norm(x, w["post_attention_layernorm.weight"], s.norm_eps)
            gate = linear(weights, lora, layer, "mlp", "gate_proj", h)
            up = linear(weights, lora, layer, "mlp", "up_proj", h)
            xs[position] = x + linear(
                weights, lora, layer, "mlp", "down_proj", gate / (1 + np.exp(-gate)) * up
            )
    return np.stack([weights.head @ norm(x, weights.final_norm, s.norm_eps) for x in xs])


def test_logprobs_equal_a_plain_model(make_engine, randomise, examples, variant):
    engine = make_engine(**variant)
    model = randomise(engine.create_adapter(rank=3))
    for example, logprobs in zip(examples, engine.forward(model, examples), strict=True):
        logits = plain_logits(engine.weights, model.lora, example.tokens)
        logits -= logits.max(-1, keepdims=True)
        table = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        targets = example.targets.reshape(len(logits), -1)
        expected = np.take_along_axis(table, targets, 1) * example.mask[:, None]
        np.testing.assert_allclose(logprobs.reshape(expected.shape), expected, rtol=1e-10, atol=1e-12)


def test_a_fresh_adapter_is_the_base_model(make_engine, examples):
    engine = make_engine()
    for ours, base in zip(
        engine.forward(engine.create_adapter(rank=4), examples),
        engine.forward(engine.base, examples),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, base)


def test_compute_logprobs_has_one_entry_a_token_and_nan_first(make_engine):
    engine = make_engine()
    scores = engine.compute_logprobs(engine.base, [[3, 4, 5, 6], [1]])
    assert np.isnan(scores[0][0])
    assert np.isnan(scores[1]).all()
    expected = engine.forward(engine.base, [Example(tokens=[3, 4, 5], targets=[4, 5, 6])])[0]
    np.testing.assert_allclose(scores[0][1:], expected, rtol=1e-6)
