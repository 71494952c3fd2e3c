"""Speed of the local engine on this machine, as JSON on standard output.

    python bench/local.py [--repeats 5] [--only tiny|smollm2] [--peers ENVIRONMENT]

`--peers` names a virtual environment, or its Python: the same model and batch are then trained by torch (float32, bfloat16),
jax and TRL's SFTTrainer, each in a process of its own; what isn't installed there is left out by name.

`percent_of_roof` is the share of the measured float32 matrix-product rate of one core that a training step reaches per
CPU second, counting 4 operations a parameter and token (forward and input gradients; a frozen base has no weight
gradients). CPU seconds make the figure independent of what else the machine does. Times are the best of the repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from evsys.errors import ConfigError
from evsys_backend_local.engine.adam import AdamParams
from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.estimate import estimate, measure_roof, training_operations
from evsys_backend_local.engine.prefix_cache import PrefixCache
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.engine.workers import blas_info, cpu_count
from evsys_backend_local.models.export import export_model
from evsys_backend_local.models.resolve import load_base

PEER = Path(__file__).parent / "peers" / "local.py"
LIBRARIES = ("torch-float32", "torch-bfloat16", "jax-float32", "trl-float32")
SEQUENCES, LENGTH, RANK = 8, 128, 8


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def best(action, repeats: int) -> tuple[float, float]:
    """Least wall and least CPU seconds of `action`."""
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), cpu_seconds()
        action()
        walls.append(time.perf_counter() - wall)
        cpus.append(cpu_seconds() - cpu)
    return min(walls), min(cpus)


def batch(vocab: int) -> np.ndarray:
    """8 sequences of 129 random tokens: 128 inputs, 128 targets."""
    return np.random.default_rng(0).integers(0, vocab, (SEQUENCES, LENGTH + 1))


def peak_rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def training(engine: Engine, repeats: int) -> dict[str, float]:
    """One LoRA step on the batch, loss at every position."""
    data = [Example(tokens=row[:-1], targets=row[1:]) for row in batch(engine.shape.vocab)]
    total = SEQUENCES * LENGTH

    def loss(_, logprobs):
        grads = [np.full(own.shape, -1 / total, np.float32) for own in logprobs]
        return -sum(float(own.sum()) for own in logprobs) / total, grads, {}

    model = engine.create_adapter(rank=RANK, seed=0)

    def step() -> float:
        value = engine.forward_backward(model, data, loss, separable=True).value
        engine.optim_step(model, AdamParams(learning_rate=1e-4))
        return value

    started = time.perf_counter()
    first_loss = step()
    first = time.perf_counter() - started
    wall, cpu = best(step, repeats)
    roof = max(measure_roof(0.2, time.thread_time) for _ in range(3))
    operations = training_operations(engine.shape, total)
    expected = estimate(engine.shape, rows=total, steps=1, rank=RANK, workers=engine.workers, roof=roof)
    return {
        "first_step_s": round(first, 4),
        "step_s": round(wall, 4),
        "step_cpu_s": round(cpu, 4),
        "tokens_per_s": round(total / wall, 1),
        "first_loss": round(first_loss, 3),
        "peak_rss_bytes": peak_rss(),
        "gflops_per_cpu_s": round(operations / cpu / 1e9, 1),
        "roof_gflops_per_core": round(roof / 1e9, 1),
        "percent_of_roof": round(100 * operations / cpu / roof, 1),
        "estimated_step_s": round(expected.seconds, 4),
        "estimated_peak_bytes": expected.peak_bytes,
    }


def sampling(engine: Engine, prompts: int, n: int, repeats: int) -> dict[str, float]:
    """`prompts * n` samples of 32 tokens after prompts of 32, with logprobs."""
    rng = np.random.default_rng(0)
    model = engine.create_adapter(rank=RANK, seed=0)
    requests = [
        SampleRequest(prompt=rng.integers(0, engine.shape.vocab, 32).tolist(), n=n, max_tokens=32, seed=index)
        for index in range(prompts)
    ]
    engine.sample(model, requests)
    wall, cpu = best(lambda: engine.sample(model, requests), repeats)
    return {"s": round(wall, 4), "cpu_s": round(cpu, 4), "tokens_per_s": round(prompts * n * 32 / wall, 1)}


def conversation(engine: Engine, repeats: int, *, keep: bool) -> list[float]:
    """CPU seconds of four turns of 8 conversations: 300 tokens to start with, then answers of 16 and 24 tokens more."""
    engine.prefixes = PrefixCache() if keep else PrefixCache(limit=0)
    rng, least = np.random.default_rng(0), [float("inf")] * 4
    starts = [rng.integers(0, engine.shape.vocab, 300).tolist() for _ in range(8)]
    for _ in range(repeats):
        model = engine.create_adapter(rank=RANK, seed=0).snapshot()
        prompts = starts
        for turn in range(4):
            cpu = cpu_seconds()
            requests = [
                SampleRequest(prompt=prompt, max_tokens=16, seed=i) for i, prompt in enumerate(prompts)
            ]
            answers = [output.samples[0].tokens for output in engine.sample(model, requests)]
            least[turn] = min(least[turn], cpu_seconds() - cpu)
            prompts = [
                [*prompt, *answer, *rng.integers(0, engine.shape.vocab, 24).tolist()]
                for prompt, answer in zip(prompts, answers, strict=True)
            ]
        engine.forget(model)
    return [round(cpu, 4) for cpu in least]


def beside(name: str, vocab: int, python: Path, repeats: int) -> dict[str, object]:
    """What each library of the environment of `python` needs for the same step."""
    with tempfile.TemporaryDirectory(prefix="evsys-bench-local-") as folder:
        model, tokens = Path(folder) / "model", Path(folder) / "tokens.json"
        export_model(name, model)
        tokens.write_text(json.dumps(batch(vocab).tolist()), encoding="utf-8")
        figures: dict[str, object] = {}
        for library in LIBRARIES:
            argv = [str(python), str(PEER), library, str(model), str(tokens), str(repeats)]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            lines = done.stdout.splitlines()
            failed = {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1]}
            figures[library] = json.loads(lines[-1]) if done.returncode == 0 and lines else failed
        return figures


def measure(name: str, repeats: int, peers: Path | None) -> dict[str, object]:
    started = time.perf_counter()
    engine = Engine(load_base(name))
    loaded = time.perf_counter() - started
    figures: dict[str, object] = {
        "load_s": round(loaded, 3),
        "parameters": engine.shape.parameters,
        "training_8x128": training(engine, repeats),
        "sampling_16x32": sampling(engine, 16, 1, repeats),
        "sampling_8x8x32": sampling(engine, 8, 8, max(1, repeats // 2)),
        "sampling_32x8x32": sampling(engine, 32, 8, max(1, repeats // 2)),
        "conversation_turns_cpu_s": conversation(engine, max(1, repeats // 2), keep=True),
        "conversation_turns_anew_cpu_s": conversation(engine, max(1, repeats // 2), keep=False),
        "peak_rss_bytes": peak_rss(),
    }
    vocab = engine.shape.vocab
    engine.close()
    del engine
    if peers is not None:
        figures["training_8x128_beside"] = beside(name, vocab, peers, min(repeats, 5))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["tiny", "smollm2"])
    parser.add_argument(
        "--peers", type=Path, help="an environment, or its Python, that has torch, jax or trl"
    )
    options = parser.parse_args()
    peers = options.peers
    if peers is not None and peers.is_dir():
        peers = peers / "bin" / "python"
    coretype = os.environ.get("OPENBLAS_CORETYPE")
    if coretype:
        print(
            f"OPENBLAS_CORETYPE={coretype} is set: the BLAS may run slower kernels than it could",
            file=sys.stderr,
        )
    report: dict[str, object] = {
        "format": 1,
        "python": platform.python_version(),
        "cpus": cpu_count(),
        "load_average": os.getloadavg()[0],
        "blas": blas_info(),
        "openblas_coretype": coretype,
    }
    if options.only != "smollm2":
        report["evsys/tiny"] = measure("evsys/tiny", 4 * options.repeats, peers)
    if options.only != "tiny":
        try:
            report["smollm2-135m"] = measure("smollm2-135m", options.repeats, peers)
        except ConfigError as error:
            report["smollm2-135m"] = {"skipped": str(error)}
    print(json.dumps(report, ensure_ascii=False, indent=2))


if __name__ == "__main__":
    main()
