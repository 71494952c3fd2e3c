"""The engine over a table of operations, for the comparison of tables: everything it computes, as numpy's arrays.

Runs in the tests' own process over numpy and, by `peer.py`, in the other libraries' over torch's CPU tensors.
"""

import asyncio
from pathlib import Path

import numpy as np

import evsys_backend_local.client
from evsys.types import AdamParams as ClientAdam
from evsys.types import Datum, ModelSpec, SamplingParams
from evsys_backend_local.backend import LocalBackend
from evsys_backend_local.engine import ops
from evsys_backend_local.engine.adam import Adam, AdamParams
from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.draw import draw, log_normaliser, reshape_distribution
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.engine.state import load_state, save_state
from evsys_backend_local.engine.workspace import Workspace
from evsys_backend_local.models.load import load_weights

STEPS = 5


def operations(xp):
    """What each operation of the table, and each function over it, gives for the same numbers."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 6, 5, 8))
    square, flat = rng.normal(size=(8, 8)), rng.normal(size=40)
    up = {"x": xp.put(x), "y": xp.put(y), "square": xp.put(square), "flat": xp.put(flat)}
    a, b, m, v = up["x"], up["y"], up["square"], up["flat"]
    rows = np.array([4, 0, 4, 2, 4])
    found = {"put": a, "copy": xp.copy(a), "zeros": xp.zeros((2, 3), np.float64), "like": xp.zeros_like(a)}
    for name, given in {
        "matmul": (a, m),
        "multiply": (a, b),
        "divide": (a, b),
        "subtract": (a, a[:, :1]),
        "exp": (a,),
        "log": (a * a,),
        "sqrt": (a * a,),
        "reciprocal": (a,),
    }.items():
        out = xp.empty_like(a)
        getattr(xp, name)(*given, out=out)
        found |= {name: getattr(xp, name)(*given), name + "-out": out}
    taken = xp.empty((5, 5, 8), np.float64)
    xp.take(a, xp.put(rows), out=taken)
    added, cells = xp.copy(m), xp.copy(v)
    xp.add_at(added, rows, xp.put(x[0]))
    xp.add_at(cells, np.array([3, 3, 0, 39]), xp.put(flat[:4]))
    found |= {
        "take": taken,
        "add_at": added,
        "add_at-cells": cells,
        "maximum": xp.maximum(a, b),
        "minimum": xp.minimum(a, b),
        "clip-low": xp.clip(a, 0, None),
        "clip-high": xp.clip(a, None, 0.5),
        "amax": xp.amax(a, axis=-1, keepdims=True),
        "einsum": xp.einsum("krd,krd->kr", a, b),
        "concatenate": xp.concatenate([a, b]),
        "permute": xp.permute(a, (2, 0, 1)),
        "sum64": xp.sum64(a),
        "cumsum64": xp.cumsum64(a),
        "order": xp.order(xp.put(np.round(flat))),
        "below": xp.below(a * a),
        "sum_runs": xp.sum_runs(m, np.array([0, 1, 5])),
    }
    scalars = {
        "search": int(xp.search(xp.cumsum64(v * v), xp.cumsum64(v * v)[-1] * 0.3)),
        "norm": xp.norm(v),
        "norm64": xp.norm64(xp.put(np.full(3, 1e30, np.float32))),
    }
    found |= functions(xp, a, b, xp.put(rng.normal(size=8)))
    found |= distributions(xp)
    return {name: np.array(xp.host(array)) for name, array in found.items()} | {
        name: np.array(value) for name, value in scalars.items()
    }


def functions(xp, a, b, gain):
    """The element-wise parts of the model."""
    found = {name: xp.empty_like(a) for name in ("rms", "rms-back", "sigmoid", "silu", "d_gate", "d_up")}
    inverse = ops.rms_norm(a, gain, 1e-5, found["rms"])
    ops.rms_norm_backward(b, a, inverse, gain, found["rms-back"])
    ops.silu_gate(a, b, found["sigmoid"], found["silu"])
    spent = {"d_out": xp.copy(b), "scratch": xp.empty_like(a)}
    ops.silu_gate_backward(
        spent["d_out"],
        a,
        b,
        found["sigmoid"],
        d_gate=found["d_gate"],
        d_up=found["d_up"],
        scratch=spent["scratch"],
    )
    cos, sin = (xp.put(table)[:, None] for table in ops.rope_table(6, 8, 100.0, np.dtype(np.float64)))
    for name, inverse_too in (("rotate", False), ("rotate-back", True)):
        found[name] = xp.copy(a)
        ops.rotate(found[name], cos, sin, inverse=inverse_too)
    for name, scale in (("adam", 1.0), ("adam-clipped", 100.0)):
        values = xp.copy(gain)
        adam = Adam(values)
        for _ in range(3):
            adam.update(values, gain * scale, AdamParams(learning_rate=0.1, weight_decay=0.1))
        found[name] = values
    return found | {"inverse": inverse}


def distributions(xp):
    """Temperature, top-k and top-p, and what is drawn, for 40 rows of 600 tokens."""
    rng = np.random.default_rng(1)
    logits = xp.put(rng.normal(0, 3, (40, 600)))
    top, weights, total = log_normaliser(logits, Workspace(np.float64, xp))
    settings = {
        "temperature": rng.choice([0.0, 0.5, 1.0, 2.0], 40),
        "top_k": rng.choice([0, 7, 1000], 40),
        "top_p": rng.choice([0.3, 0.9, 1.0], 40),
    }
    plain = xp.copy(weights)
    reshape_distribution(weights, logits, top, **settings)
    uniform = np.concatenate([[0.0, np.nextafter(1, 0)], rng.random(38)])
    chosen = {"drawn": xp.put(draw(weights, uniform)), "drawn-plain": xp.put(draw(plain, uniform))}
    return {"top": top, "weights": weights, "total": total} | chosen


def squares(_, logprobs):
    """A loss whose gradient depends on the logprobs."""
    return 0.5 * float(sum((own**2).sum() for own in logprobs)), [own.copy() for own in logprobs], {}


def batch_of(rng, vocab):
    """Sequences that share a beginning, some with two targets a position."""
    start = rng.integers(0, vocab, 9)
    data = []
    for index in range(5):
        tokens = np.concatenate([start, rng.integers(0, vocab, 12 + index)])
        targets = rng.integers(0, vocab, (len(tokens), 2)) if index % 2 else np.roll(tokens, -1)
        data.append(Example(tokens=tokens, targets=targets, mask=rng.random(len(tokens)) < 0.7))
    return data


def trained(xp, home, folder, *, dtype, full):
    """Training steps on a family's checkpoint, what is sampled after them, and a further step of the saved state."""
    engine = Engine(load_weights(Path(home), dtype), workers=2, max_rows=64, block_rows=7, xp=xp)
    make = engine.create_full if full else lambda: engine.create_adapter(rank=4, alpha=8.0, seed=1)
    model, rng, found = make(), np.random.default_rng(0), {}
    for step in range(STEPS):
        data = batch_of(rng, engine.shape.vocab)
        result = engine.forward_backward(model, data, squares, separable=bool(step % 2))
        found[f"logprobs-{step}"] = np.concatenate([own.ravel() for own in result.logprobs])
        found[f"gradient-{step}"] = np.array(model.grad.host)
        norm = engine.optim_step(model, AdamParams(learning_rate=1e-3, weight_decay=0.1))
        found[f"norm-{step}"] = np.array(norm)
    found["trained"] = np.array(model.params.host)
    snapshot = model.snapshot()
    for turn, outputs in enumerate(engine.sample(snapshot, requests(rng)) for _ in range(2)):
        for index, output in enumerate(outputs):
            stem = f"sampled-{turn}-{index}"
            found[f"{stem}-tokens"] = np.concatenate([sample.tokens for sample in output.samples])
            found[f"{stem}-logprobs"] = np.concatenate([sample.logprobs for sample in output.samples])
            if output.prompt_logprobs is not None:
                found[f"{stem}-prompt"] = output.prompt_logprobs[1:]
                top = output.samples[0].top_logprobs
                found[f"{stem}-top"] = np.array([list(own.values()) for own in top])
    save_state(model, Path(folder))
    found |= resumed(engine, make(), folder)
    engine.close()
    return found


def requests(rng):
    """Prompts longer than a kept chunk, plain and reshaped draws, greedy and stopped ones."""
    prompt = rng.integers(0, 259, 150).tolist()
    warped = {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "stop_tokens": frozenset(range(10))}
    return [
        SampleRequest(prompt=prompt, n=3, max_tokens=20, seed=3, prompt_logprobs=True, top_logprobs=2),
        SampleRequest(prompt=prompt[:100], n=2, max_tokens=40, **warped),
        SampleRequest(prompt=prompt[:9], max_tokens=70, temperature=0),
    ]


def resumed(engine, model, folder):
    """One more step from a checkpoint, whoever wrote it."""
    load_state(model, Path(folder), with_optimizer=True)
    engine.forward_backward(model, batch_of(np.random.default_rng(7), engine.shape.vocab), squares)
    engine.optim_step(model, AdamParams(learning_rate=1e-3))
    return {"resumed": np.array(model.params.host)}


def continued(xp, home, folder, *, dtype, full):
    """`resumed` alone, by a fresh engine."""
    engine = Engine(load_weights(Path(home), dtype), workers=2, max_rows=64, block_rows=7, xp=xp)
    model = engine.create_full() if full else engine.create_adapter(rank=4, alpha=8.0)
    found = resumed(engine, model, folder)
    engine.close()
    return found


def through_the_client(xp, folder):
    """Every built-in loss, a callable one, and sampling, as a run of an experiment asks for them."""
    return asyncio.run(_through_the_client(xp, Path(folder)))


async def _through_the_client(xp, folder):
    chosen, evsys_backend_local.client.select = evsys_backend_local.client.select, lambda device: xp
    backend = LocalBackend()
    try:
        client = await backend.prepare(ModelSpec(name="evsys/tiny"), folder, 0)
        assert client.facts["dtype"] == "float32"
        tokens, rng, found = (
            np.frombuffer(b"turn: abc -> bca", np.uint8).astype(np.int64),
            np.random.default_rng(0),
            {},
        )
        inputs = {
            "target_tokens": tokens[1:],
            "weights": np.ones(len(tokens) - 1, np.float32),
            "logprobs": np.full(len(tokens) - 1, -2.0, np.float32),
            "advantages": rng.normal(size=len(tokens) - 1).astype(np.float32),
        }
        data = [Datum(tokens=tokens[:-1], loss_inputs=inputs)]

        def own(data, logprobs):
            return sum((0.1 * one**2).sum() for one in logprobs)

        for loss in ("cross_entropy", "importance_sampling", "ppo", "cispo", "dro", own):
            name = loss if isinstance(loss, str) else "own"
            params = {"beta": 0.1} if name == "dro" else None
            result = await client.forward_backward(data, loss, params)
            step = await client.optim_step(ClientAdam(learning_rate=1e-3))
            found |= {f"{name}-loss": np.array(result.loss), f"{name}-norm": np.array(step.grad_norm)}
        sampler = await client.sampling_client()
        answer = await sampler.sample(tokens[:9].tolist(), SamplingParams(max_tokens=12), n=4)
        found["tokens"] = np.concatenate([one.tokens for one in answer.sequences])
        found["logprobs"] = np.concatenate([one.logprobs for one in answer.sequences])
        found["scored"] = (await sampler.compute_logprobs(tokens.tolist()))[1:]
        await backend.teardown(client)
    finally:
        evsys_backend_local.client.select = chosen
    return found
