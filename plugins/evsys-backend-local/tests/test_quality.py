"""What the backend promises as a whole: RL learns, a run repeats to the bit, losses of one's own, light imports.

That supervised training generalises is in `test_tiny`, gradients are in `engine/test_gradients`, sampled against trained logprobs in
`engine/test_sampler`, shared against separate prefixes in `engine/test_packing`, refusals in `test_client` and `models`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import numpy as np
import pytest
from ruamel.yaml import YAML

from evsys.types import AdamParams, Datum, ModelSpec
from evsys_backend_local.backend import LocalBackend
from evsys_backend_local.engine import adam
from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.tiny.model import load_tiny
from evsys_runtime.training.two_pass import forward_backward
from evsys_sdk import Experiment

START, END = 256, 257
RNG = np.random.default_rng(0)
WORDS = ["".join(RNG.choice(list("abcdefgh"), RNG.integers(3, 8))) for _ in range(80)]


def asked(engine, model, words, *, n, temperature, seed):
    """Prompts, and what the model says to the ambiguous instruction for each word."""
    requests = [
        SampleRequest(
            prompt=[START, *f"user\ndo {word}".encode(), END, 10, START, *b"assistant\n"],
            n=n,
            temperature=temperature,
            max_tokens=12,
            stop_tokens=frozenset([END]),
            seed=seed + index,
        )
        for index, word in enumerate(words)
    ]
    return zip(words, requests, engine.sample(model, requests), strict=True)


def says_length(word, tokens):
    return float(bytes(t for t in tokens if t < START).decode(errors="replace") == str(len(word)))


def test_rl_turns_an_ambiguous_instruction_into_what_is_rewarded():
    """Policy gradient with the group's mean as baseline; the model then gives the length of words that it never trained on."""
    engine = Engine(load_tiny(), workers=2)
    model = engine.create_adapter(rank=8, seed=0)
    train, held_out = WORDS[:60], WORDS[60:]

    def score():
        answers = asked(engine, model, held_out, n=1, temperature=0.0, seed=0)
        return np.mean([says_length(word, output.samples[0].tokens) for word, _, output in answers])

    before = score()
    for step in range(60):
        data, factors = [], []
        words = np.random.default_rng(step).choice(train, 8, replace=False)
        for word, request, output in asked(engine, model, words, n=16, temperature=1.0, seed=1000 * step):
            rewards = np.asarray([says_length(word, sample.tokens) for sample in output.samples])
            for sample, advantage in zip(output.samples, rewards - rewards.mean(), strict=True):
                if advantage:
                    tokens = np.asarray([*request.prompt, *sample.tokens])
                    own = np.arange(1, len(tokens)) >= len(request.prompt)
                    data.append(Example(tokens=tokens[:-1], targets=tokens[1:], mask=own))
                    factors.append(np.where(own, -advantage / 128, 0))
        if data:

            def loss(indices, logprobs, factors=factors):
                gradients = [factors[index] for index in indices]
                pairs = zip(gradients, logprobs, strict=True)
                return float(sum((factor * own).sum() for factor, own in pairs)), gradients, {}

            engine.forward_backward(model, data, loss, separable=True)
            engine.optim_step(model, adam.AdamParams(learning_rate=1e-3))
    after = score()
    engine.close()
    assert before <= 0.1
    assert after >= 0.9


def test_a_deterministic_run_repeats_to_the_bit(tmp_path, monkeypatch):
    rows = [{"q": f"turn: {word}", "a": word[1:] + word[0]} for word in WORDS[:24]]
    tasks = [
        {
            "task_id": word,
            "instruction": f"turn: {word}",
            "verifier": {"name": "exact_match", "expected": word[1:] + word[0]},
        }
        for word in WORDS[60:72]
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)), encoding="utf-8")
    benchmark = {
        "name": "held_out",
        "path": "tasks.jsonl",
        "run_every": 2,
        "max_tokens": 8,
        "temperature": 1.0,
    }
    chat = {"kind": "jsonl_to_chat", "params": {"user_column": "q", "assistant_column": "a"}}
    config = {
        "version": 1,
        "name": "again",
        "description": "The same run twice.",
        "deterministic": True,
        "metadata": {"hypothesis": "It repeats.", "benchmark": benchmark},
        "run": {
            "data": {"source_kind": "jsonl", "path": "rows.jsonl", "transforms": [chat]},
            "model": {"name": "evsys/tiny"},
            "algorithm": {"kind": "sft", "params": {"steps": 5, "batch_size": 8, "lora_rank": 4}},
            "backend": {"kind": "local", "params": {"workers": 2}},
        },
    }
    with (tmp_path / "run.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(config, file)
    monkeypatch.chdir(tmp_path)

    def records(path):
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def run():
        result = Experiment.from_yaml(tmp_path / "run.yaml").run()
        assert result.status == "completed", result
        [folder] = (tmp_path / ".evsys/experiments").glob(f"{result.directory.rpartition('/')[2]}/runs/*")
        metrics = records(folder / "training/metrics.jsonl")
        rollouts = records(folder / "validation/rollouts.jsonl")
        weights = [
            path.read_bytes() for path in sorted(folder.glob("checkpoints/*/adapter_model.safetensors"))
        ]
        said = sorted((r["step"], r["rollout"]["task_id"], r["rollout"]["output"]) for r in rollouts)
        return [row["values"] for row in metrics], said, weights

    first, second = run(), run()
    values, said, weights = first
    assert len(values) == 5
    assert len({output for _, _, output in said}) > 1
    assert weights
    assert first == second


# --- losses of one's own ----------------------------------------------------------------------------------------------


def focal(data, logprobs):
    return sum(
        np.sum(-d.loss_inputs["weights"] * (1 - np.exp(x)) ** 2 * x)
        for d, x in zip(data, logprobs, strict=True)
    )


def dpo(data, logprobs):
    margins = [np.sum(x - d.loss_inputs["ref_logprobs"]) for d, x in zip(data, logprobs, strict=True)]
    return np.logaddexp(0.0, -0.1 * (np.stack(margins[::2]) - np.stack(margins[1::2]))).sum()


def gspo(data, logprobs):
    total = 0.0
    for d, x in zip(data, logprobs, strict=True):
        ratio, advantage = np.exp(np.mean(x - d.loss_inputs["logprobs"])), d.loss_inputs["advantages"].mean()
        total += -np.minimum(ratio * advantage, np.clip(ratio, 0.9, 1.1) * advantage)
    return total


def batch(step):
    rng = np.random.default_rng(step)
    data = []
    for length in (9, 12, 7, 10):
        tokens = rng.integers(97, 123, length + 1)
        inputs = {
            "target_tokens": tokens[1:],
            "weights": rng.choice([0.0, 0.25], length),
            "advantages": rng.normal(size=length),
            "logprobs": rng.normal(-4, 0.2, length),
            "ref_logprobs": rng.normal(-4, 0.2, length),
        }
        data.append(Datum(tokens=tokens[:-1], loss_inputs=inputs))
    return data


@pytest.mark.parametrize("loss", [focal, dpo, gspo])
def test_a_loss_of_ones_own_leaves_the_weights_that_two_passes_of_cross_entropy_leave(tmp_path, loss):
    async def trained(capabilities):
        backend = LocalBackend(workers=2)
        client = await backend.prepare(ModelSpec(name="evsys/tiny"), tmp_path, 0)
        values = []
        for step in range(3):
            values.append((await forward_backward(client, capabilities, batch(step), loss)).loss)
            await client.optim_step(AdamParams(learning_rate=1e-3))
        weights = client._model.params.flat.copy()
        await backend.teardown(client)
        return values, weights

    one, weights = asyncio.run(trained(LocalBackend.capabilities))
    two, others = asyncio.run(trained(frozenset({"loss_fns:cross_entropy"})))
    assert two == pytest.approx(one, rel=1e-5)
    # Adam divides by the gradient's own size, so the last bits of a gradient near 0 move a weight a little.
    assert np.linalg.norm(weights - others) < 1e-3 * np.linalg.norm(weights)
    np.testing.assert_allclose(weights, others, rtol=0, atol=3e-4)


# --- imports ----------------------------------------------------------------------------------------------------------

HEAVY = {"torch", "jax", "transformers", "peft", "scipy", "pandas", "huggingface_hub"}


@pytest.mark.parametrize("module", ["evsys_backend_local", "evsys_backend_local.client"])
def test_no_array_library_but_numpy_is_imported(module):
    code = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())
