"""Rollouts a second of the `direct` engine with a model that answers at once: everything around the model, records on disk.

    python bench/rollouts.py [--tasks 1000] [--samples 4] [--concurrent 64] [--rounds 3] [--wave] [--served URL] [--check]

Prints one JSON document; `rollouts_per_second` is the best round by wall time, `cpu_ms_per_rollout` its processor time,
`peak_rss_mb` that of the whole process. With `--served` the model is asked through the `openai_compatible` client at that
address, where `evaluation.py` serves the same answer.
"""

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from support.instant import InstantModel

from evsys import Registry
from evsys.protocols import Renderer
from evsys.types import HarborTask, VerifierSpec
from evsys_record.run_record import RunRecord
from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.evaluation.benchmarks import ApiModel, bind_benchmark
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.experiment.state.seeds import Seeds
from evsys_runtime.rendering.resolve import load_renderer
from evsys_std.inference.openai_compatible import OpenAICompatible

ANSWER = "the answer is 42"
MODEL = "instant"
TARGET = 1000


def instant_model(renderer: Renderer) -> InstantModel:
    return InstantModel(renderer.tokenizer.encode(f"{ANSWER}<|im_end|>"))


def make_tasks(count: int) -> list[HarborTask]:
    return [
        HarborTask(
            task_id=f"task-{i}",
            instruction=f"What is {i} plus {i + 1}? Answer with the number alone.",
            verifier=VerifierSpec(name="exact_match", expected=ANSWER),
        )
        for i in range(count)
    ]


def one_round(args: argparse.Namespace, folder: Path) -> dict[str, float]:
    renderer = load_renderer("evsys/tiny")
    entry = BenchmarkConfig(
        name="bench",
        path="tasks.jsonl",
        metrics=("mean_reward", "pass@1"),
        num_samples=args.samples,
        n_concurrent=args.concurrent,
    )
    registry = Registry()
    benchmark = bind_benchmark(entry, make_tasks(args.tasks), registry=registry)
    record = RunRecord(folder)
    record.create(run_id="bench")
    record.start_attempt()
    evaluator = Evaluator(
        [benchmark],
        renderer,
        seeds=Seeds(),
        registry=registry,
        record=record,
        deterministic=args.wave,
    )
    if args.served:
        served = ApiModel(name=MODEL, client=OpenAICompatible(model=MODEL, base_url=args.served))
        scoring = evaluator.score_model(benchmark, served)
    else:
        scoring = evaluator.score(benchmark, instant_model(renderer), 0)
    wall, cpu = time.perf_counter(), time.process_time()
    result = asyncio.run(scoring)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    record.close()
    total = args.tasks * args.samples
    assert result.status == "completed"
    assert result.scored == total == sum(1 for _ in record.read_rollouts("validation"))
    assert result.metrics["mean_reward"].value == 1.0
    return {"rollouts_per_second": total / wall, "cpu_ms_per_rollout": 1000 * cpu / total}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--concurrent", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wave", action="store_true")
    parser.add_argument("--served", metavar="URL", help="ask a server of the model instead")
    parser.add_argument("--check", action="store_true", help=f"end with 1 below {TARGET} rollouts a second")
    args = parser.parse_args()
    rounds = []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            rounds.append(one_round(args, Path(folder) / "run"))
    best = max(rounds, key=lambda found: found["rollouts_per_second"])
    report = {
        "format": 1,
        "bench": "rollouts",
        **{name: value for name, value in vars(args).items() if name != "check"},
        **{name: round(value, 3) for name, value in best.items()},
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "target_rollouts_per_second": TARGET,
    }
    print(json.dumps(report))
    if args.check and best["rollouts_per_second"] < TARGET:
        sys.exit(1)


if __name__ == "__main__":
    main()
