"""The estimate of memory, against what a process that trains and samples really takes."""

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from evsys_backend_local.engine import panels
from evsys_backend_local.engine.estimate import (
    Sampled,
    estimate,
    sampling_bytes,
    sampling_seconds,
    training_bytes,
)
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.workers import blas_info

STATUS = Path("/proc/self/status")
on_linux = pytest.mark.skipif(
    not STATUS.is_file(), reason="the peak is read from the kernel's status of the process"
)

#: Not `ru_maxrss`: a child's begins with what its parent held.
PEAK = f"""
def peak_bytes():
    for line in open("{STATUS}", encoding="ascii"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
"""

STEPS = """
import json, sys
import numpy as np
from evsys_backend_local.engine.adam import AdamParams
from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.estimate import estimate
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.models.resolve import load_base

name, rank, length = map(json.loads, sys.argv[1:])
engine = Engine(load_base(name), workers=2)
model = engine.create_full() if rank is None else engine.create_adapter(rank=rank)
rows = np.random.default_rng(0).integers(97, 123, (8, length + 1))
data = [Example(tokens=row[:-1], targets=row[1:]) for row in rows]


def loss(_, logprobs):
    return 0.0, [np.full(own.shape, -1e-3, np.float32) for own in logprobs], {}


def step():
    engine.forward_backward(model, data, loss, separable=True)
    engine.optim_step(model, AdamParams(learning_rate=1e-4))


step()
snapshots = [model.snapshot(), model.snapshot()]
requests = [SampleRequest(prompt=[i, *rows[0].tolist()], max_tokens=16) for i in range(16)]
for snapshot in snapshots:
    engine.sample(snapshot, requests)
    step()
expected = estimate(engine.shape, rows=rows.size, steps=1, workers=2, longest=length, rank=rank, roof=1e11)
print(json.dumps([expected.peak_bytes, peak_bytes()]))
"""


RUN = """
import json
from evsys_backend_local.client import LocalTrainingClient
from evsys_sdk import Experiment

told = []
plain = LocalTrainingClient.estimate
LocalTrainingClient.estimate = lambda *args: told.append(plain(*args)["peak_bytes"]) or {}
result = Experiment.from_yaml("run.yaml").run()
assert result.status == "completed", result
print(json.dumps([told[0], peak_bytes()]))
"""


def estimated_and_measured(program, *arguments, cwd=None):
    argv = [sys.executable, "-c", PEAK + program, *map(json.dumps, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@on_linux
@pytest.mark.parametrize("rank", [8, None])
def test_the_memory_of_a_run_on_the_built_in_model_is_foreseen(tmp_path, rank):
    rows = [
        {"messages": [{"role": role, "content": f"{n} words " * 8} for role in ("user", "assistant")]}
        for n in range(16)
    ]
    verifier = {"name": "exact_match", "expected": "words"}
    tasks = [{"task_id": f"t{n}", "instruction": f"say {n} " * 8, "verifier": verifier} for n in range(16)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)), encoding="utf-8")
    config = {
        "version": 1,
        "name": "memory",
        "description": "A run whose memory is watched.",
        "metadata": {
            "hypothesis": "It fits.",
            "benchmark": {"name": "tasks", "path": "tasks.jsonl", "max_tokens": 16},
        },
        "run": {
            "data": {"source_kind": "jsonl", "path": "rows.jsonl"},
            "model": {"name": "evsys/tiny"},
            "algorithm": {"kind": "sft", "params": {"steps": 3, "batch_size": 8, "lora_rank": rank}},
            "backend": {"kind": "local", "params": {"workers": 2}},
        },
    }
    (tmp_path / "run.yaml").write_text(json.dumps(config), encoding="utf-8")
    expected, measured = estimated_and_measured(RUN, cwd=tmp_path)
    # Most of it is the interpreter and its libraries, which differ from machine to machine.
    assert expected == pytest.approx(measured, rel=0.2)


@on_linux
@pytest.mark.slow
@pytest.mark.parametrize(("rank", "length"), [(8, 128), (32, 512), (None, 128)])
def test_the_memory_of_a_run_on_smollm2_is_foreseen(rank, length):
    expected, measured = estimated_and_measured(STEPS, "smollm2-135m", rank, length)
    assert expected == pytest.approx(measured, rel=0.15)


SHAPE = ModelShape(dim=576, layers=30, heads=9, kv_heads=3, head_dim=64, hidden=1536, vocab=49152)


def test_panels_are_counted_where_they_are_made(monkeypatch):
    settings = {"rows": 256, "workers": 2, "rank": 8}
    monkeypatch.setattr(panels, "KERNELS", frozenset())
    without = training_bytes(SHAPE, **settings)
    monkeypatch.setattr(panels, "KERNELS", frozenset([blas_info()["kernel"]]))
    assert training_bytes(SHAPE, **settings) == without + 4 * SHAPE.parameters
    assert sampling_bytes(SHAPE, length=256, full=False) - sampling_bytes(SHAPE, length=256, full=True) == (
        4 * SHAPE.parameters
    )
    monkeypatch.setattr(panels, "MOST_BYTES", 4 * SHAPE.parameters - 1)
    assert training_bytes(SHAPE, **settings) == without


def test_keys_and_values_are_counted_up_to_what_is_held_at_most():
    short, long, longer = (sampling_bytes(SHAPE, length=rows, full=True) for rows in (64, 4096, 8192))
    assert short == 2 * 16 * 64 * 2 * 30 * 192 * 4
    assert long == longer == 2 * 256 << 20


GROUPS = Sampled(prompt_tokens=8 * 32, answers=64, answer_tokens=32, at_once=64)


def test_the_time_of_sampling_is_that_of_its_products_and_of_reading_the_weights_once_a_token(monkeypatch):
    monkeypatch.setattr(panels, "KERNELS", frozenset([blas_info()["kernel"]]))
    weights = SHAPE.linear_parameters
    products = 2 * weights * (8 * 32 + 64 * 32) / (2 * 1e11 * 576 / (576 + 350))
    step = 4 * weights * 5 / 2e11 + 30 * 3e-4
    settings = {"workers": 2, "roof": 1e11}
    assert sampling_seconds(SHAPE, GROUPS, **settings) == pytest.approx(products + 32 * step)
    halves = attrs.evolve(GROUPS, at_once=32)
    assert sampling_seconds(SHAPE, halves, **settings) == pytest.approx(products + 64 * step)
    read = attrs.evolve(GROUPS, read_rows=8 * 32 + 64 * 32)
    assert sampling_seconds(SHAPE, read, **settings) == pytest.approx(2 * products + 32 * step)
    monkeypatch.setattr(panels, "KERNELS", frozenset())  # the weights are copied for each token
    assert sampling_seconds(SHAPE, GROUPS, **settings) > products + 32 * 5 * (step - 30 * 3e-4)


@pytest.mark.parametrize(
    ("prompts", "answers", "measured"),
    [(1, 1, 1.0), (4, 4, 2.2), (16, 16, 3.85), (8, 64, 8.5), (32, 256, 32)],
)
def test_the_time_of_sampling_smollm2_is_right_within_a_factor_of_two(
    prompts, answers, measured, monkeypatch
):
    """CPU seconds of 32 tokens after prompts of 32 at 104 GFLOP/s a core, as the documentation tells them."""
    monkeypatch.setattr(panels, "KERNELS", frozenset([blas_info()["kernel"]]))
    sampled = Sampled(prompt_tokens=32 * prompts, answers=answers, answer_tokens=32, at_once=answers)
    assert measured / 2 < sampling_seconds(SHAPE, sampled, workers=1, roof=1.04e11) < 2 * measured


def test_an_estimate_of_a_step_that_samples_adds_what_sampling_takes():
    settings = {"rows": 2304, "workers": 2, "roof": 1e11, "longest": 64}
    plain, sampling = (estimate(SHAPE, **settings, steps=10, sampled=what) for what in (None, GROUPS))
    added = sampling_seconds(SHAPE, GROUPS, workers=2, roof=1e11)
    assert sampling.seconds == pytest.approx(plain.seconds + 10 * added)
    token = 2 * 30 * 192 * 4
    keys = (8 * 32 + 64 * 32) * token + 8 * 32 * token  # in use, and kept
    assert sampling.peak_bytes - plain.peak_bytes == keys + 64 * 49152 * 16 - 2 * 16 * 64 * token


def test_longer_sequences_and_more_workers_need_more():
    settings = {"rows": 1024, "steps": 1, "workers": 2, "roof": 1e11}
    base = estimate(SHAPE, **settings).peak_bytes
    assert estimate(SHAPE, **settings, longest=2048).peak_bytes > base + 3e9
    assert estimate(SHAPE, **{**settings, "workers": 4}).peak_bytes > base + 0.6e9
