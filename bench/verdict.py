"""What a verdict costs: every arm against the baseline on the same tasks; prints one JSON document.

    python bench/verdict.py [--arms 20] [--tasks 1000] [--draws 10000] [--rounds 5] [--peers ENVIRONMENT] [--check]

`statistics` are tests, intervals and corrected p-values alone; `verdict` is the whole conclusion from the results of the arms, with the advice what would
settle it, and its own number of draws. With `--peers` scipy does parts of the statistics on the same differences, in an environment that has it:
`bootstrap` gives an interval of each arm and no test, `permutation_test` flips their signs, which gives a test and no interval. The least of several
rounds counts.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

import numpy as np

from evsys.types import ArmResult, EvaluationResult, MetricValue
from evsys_runtime.experiment.verdict.conclude import conclude
from evsys_runtime.experiment.verdict.question import Question
from evsys_stats.corrections import corrected
from evsys_stats.paired import Pair, paired_differences

# Seconds for 20 arms, 1,000 tasks, 10,000 draws.
BUDGETS = {"verdict": 1.0}
QUESTION = Question(
    benchmark="val",
    metric="mean_reward",
    direction="max",
    task_value=lambda rewards: sum(rewards) / len(rewards),
    baseline="baseline",
    reward_range=(0.0, 1.0),
)


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--arms", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5, help="rounds (the least counts)")
    parser.add_argument("--peers", type=Path, help="an environment that has scipy")
    parser.add_argument("--check", action="store_true", help="end with 1 if a budget is exceeded")
    options = parser.parse_args()
    scores = simulated(options.arms, options.tasks)
    results = arm_results(scores)
    statistics = [measured(scores, options.draws) for _ in range(options.rounds)]
    verdicts = [concluded(results) for _ in range(options.rounds)]
    least = {
        name: {unit: min(each[unit] for each in rounds) for unit in ("wall", "cpu")}
        for name, rounds in (("statistics", statistics), ("verdict", verdicts))
    }
    peer = None if options.peers is None else beside(options.peers, scores, options.draws, options.rounds)
    document = {
        "name": "evsys",
        "version": metadata.version("evsys-runtime"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cpus": os.cpu_count(),
        "arms": options.arms,
        "tasks": options.tasks,
        "draws": options.draws,
        "unit": "seconds",
        "budgets": BUDGETS,
        "results": least,
        "peers": None if peer is None else {"scipy": compared(peer, statistics[0])},
    }
    print(json.dumps(document, indent=2))
    if options.check and least["verdict"]["wall"] > BUDGETS["verdict"]:
        sys.exit("over budget: verdict")


def simulated(arms: int, tasks: int) -> np.ndarray:
    """Scores with partial credit, [arms + 1, tasks], the baseline last; some arms are a little better."""
    rng = np.random.default_rng(0)
    hardness = rng.random(tasks)
    shifts = np.append(np.linspace(0.0, 0.05, arms), 0.0)
    return np.clip(hardness + shifts[:, None] + rng.normal(0.0, 0.2, (arms + 1, tasks)), 0.0, 1.0)


def arm_results(scores: np.ndarray) -> list[ArmResult]:
    """A training run of each arm, scored once."""
    names = [*(f"arm-{i}" for i in range(len(scores) - 1)), QUESTION.baseline]
    return [
        ArmResult(
            run_id=f"{name}-s0",
            arm=name,
            repeat=0,
            seed=0,
            status="completed",
            identity=name,
            evaluations=(scoring(row),),
        )
        for name, row in zip(names, scores.tolist(), strict=True)
    ]


def scoring(rewards: list[float]) -> EvaluationResult:
    """One sample of each task."""
    return EvaluationResult(
        benchmark=QUESTION.benchmark,
        split="val",
        step=10,
        status="completed",
        metrics={QUESTION.metric: MetricValue(value=sum(rewards) / len(rewards))},
        tasks=len(rewards),
        num_samples=1,
        scored=len(rewards),
        task_rewards={f"t{i:04d}": (reward,) for i, reward in enumerate(rewards)},
        benchmark_hash="b",
        verifier_hash="v",
    )


def concluded(results: list[ArmResult]) -> dict:
    """The whole conclusion."""
    wall, cpu = time.perf_counter(), time.process_time()
    conclude(QUESTION, results)
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def measured(scores: np.ndarray, draws: int) -> dict:
    """Tests, intervals, corrected p-values and simultaneous intervals of every arm."""
    tasks = tuple(map(str, range(scores.shape[1])))
    pairs = [Pair(arm=arm, baseline=scores[-1], largest=1.0, tasks=tasks) for arm in scores[:-1]]
    wall, cpu = time.perf_counter(), time.process_time()
    found = paired_differences(pairs, draws=draws)
    family = corrected(found, [one.p_value for one in found], family=len(found), level=0.05, at_zero=True)
    simultaneous = [one.interval(family.single_level) for one in found]
    return {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "correction": family.method,
        "simultaneous": simultaneous,
        "intervals": [[one.low, one.high] for one in found],
        "p_values": [one.p_value for one in found],
    }


def beside(environment: Path, scores: np.ndarray, draws: int, rounds: int) -> dict:
    """The same differences by scipy, in a process of its own."""
    python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    script = Path(__file__).parent / "peers" / "scipy_bootstrap.py"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.npy"
        np.save(path, scores)
        said = subprocess.run(
            [str(python), str(script), str(path), str(draws), str(rounds)],
            check=True,
            capture_output=True,
            text=True,
        )
    return json.loads(said.stdout)


def compared(peer: dict, ours: dict) -> dict:
    """The figures of scipy, how far its intervals' ends are from ours, as a part of their width, and how far its p-values are."""
    theirs, own = np.array(peer.pop("intervals")), np.array(ours["intervals"])
    widths = own[:, 1] - own[:, 0]
    p_values = np.abs(np.array(peer.pop("p_values")) - ours["p_values"])
    return {
        **peer,
        "largest_difference_of_ends": float(np.abs(theirs - own).max(axis=1).max() / widths.min()),
        "largest_difference_of_p_values": float(p_values.max()),
    }


if __name__ == "__main__":
    main()
