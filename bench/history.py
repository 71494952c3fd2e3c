"""What a question to the memory of past experiments costs: seconds of `evsys history`, `context` and `next` over generated records.

Prints one JSON document. The records are those of a project of many runs, written as runs write them; the config of every arm is another one, and
a run in a hundred failed. A figure is the least of several: other work on the machine only ever adds.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from evsys.types import (
    ArmResult,
    Comparison,
    Conclusion,
    EvaluationResult,
    ExperimentResult,
    MetricValue,
    RunResult,
    Usage,
)
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.index import Index

# Seconds of CPU that the command may take, Python's own start included.
BUDGETS = {"history": 0.3}
OLD = 1_700_000_000


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000, help="runs on record")
    parser.add_argument("--each", type=int, default=20, help="runs of an experiment")
    parser.add_argument(
        "--tasks", type=int, default=100, help="tasks that each run was scored on, before and after"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds (the least counts)")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--check", action="store_true", help="end with 1 if a budget is exceeded")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, tempfile.TemporaryDirectory() as compiled:
        # Modules are found compiled, as they are from the second run after an installation on.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        project = Path(folder)
        write_records(
            project / ".evsys" / "experiments", options.runs // options.each, options.each, options.tasks
        )
        for each in (project, project / "alone"):
            (each / ".evsys").mkdir(parents=True, exist_ok=True)
            (each / "config.yaml").write_text(CONFIG, encoding="utf-8")
            (each / "train.jsonl").write_text(ROW, encoding="utf-8")
        results = measure_all(project, options.rounds)
    document = {
        "name": "evsys",
        "version": metadata.version("evsys-runtime"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "runs": options.runs,
        "runs_of_an_experiment": options.each,
        "unit": "seconds",
        "budgets": BUDGETS,
        "results": results,
    }
    print(json.dumps(document, indent=2))
    over = [name for name, budget in BUDGETS.items() if results[name]["cpu_min"] > budget]
    if options.check and over:
        sys.exit(f"over budget: {', '.join(over)}")


def write_records(experiments: Path, count: int, each: int, tasks: int) -> None:
    """One experiment, and copies of it with names, times and verdicts of their own."""
    os.fsync = lambda _descriptor: None
    template = write_one(experiments, each, tasks)
    facts = template.facts
    for number in range(1, count):
        name = f"{2026 + number // 10_000}0101-{number % 10_000:06d}-sweep"
        copy = experiments / name
        shutil.copytree(template.directory, copy, copy_function=shutil.copyfile)
        changed = {
            **facts,
            "experiment_id": name,
            "tags": [f"tag-{number % 7}"],
            "hypothesis": f"idea {number} helps",
        }
        (copy / "experiment.json").write_text(json.dumps(changed), encoding="utf-8")
        vary(copy, number)
    for where, folders, files in experiments.walk():
        for name in (*folders, *files):
            os.utime(where / name, (OLD, OLD))


def vary(copy: Path, number: int) -> None:
    """Give every arm a config of its own, and let a run of every fifth experiment fail."""
    path = copy / "resolved.json"
    resolved = json.loads(path.read_bytes())
    for place, arm in enumerate(resolved["arms"]):
        arm["run"]["algorithm"]["params"]["learning_rate"] = 1e-6 * (1 + place + 100 * number)
    path.write_text(json.dumps(resolved), encoding="utf-8")
    if number % 5 == 0:
        path = next(copy.glob("runs/*/run_result.json"))
        failure = {
            "boundary": "backend",
            "message": f"out of memory: {number} MiB",
            "error_type": "BackendError",
        }
        path.write_text(
            json.dumps({**json.loads(path.read_bytes()), "status": "failed", "failure": failure}),
            encoding="utf-8",
        )


def configured() -> dict[str, object]:
    """A config of an arm with as many keys as they have."""
    params = {f"param_{number}": number for number in range(30)}
    return {
        "algorithm": {"kind": "evsys-algo-sft/sft", "params": {"learning_rate": 1e-3, **params}},
        "model": {"name": "evsys/tiny"},
        "backend": {"kind": "evsys-backend-mock/mock", "params": {}},
        "data": {"source_kind": "jsonl", "path": "train.jsonl", "transforms": [{"kind": "jsonl_to_chat"}]},
    }


CONFIG = """version: 1
name: next
run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.01, steps: 100, batch_size: 4}}
  backend: {kind: mock}
"""
ROW = '{"prompt": "say a", "completion": "a"}\n'


def write_one(experiments: Path, runs: int, tasks: int) -> ExperimentRecord:
    """An experiment of `runs` arms, each scored on `tasks` tasks before and after training."""
    ids = [f"lr={number}" for number in range(runs)]
    planned = [{"run_id": f"{arm}-s0", "arm": arm, "repeat": 0} for arm in ids]
    facts = {
        "arms": planned,
        "success_metric": "faq.pass@1",
        "direction": "max",
        "tags": ["tag-0"],
        "hypothesis": "it helps",
    }
    record = ExperimentRecord.create(
        experiments, "sweep", b"version: 1\n", facts=facts, moment=1_767_225_600.0
    )
    record.write_resolved([{**each, "run": configured()} for each in planned])
    rewards = {f"task-{number}": (1.0,) for number in range(tasks)}
    for arm in ids:
        scored = [
            EvaluationResult(
                benchmark="faq",
                split="val",
                step=step,
                status="completed",
                metrics={"pass@1": MetricValue(value=0.5, low=0.4, high=0.6, n=tasks)},
                task_rewards=rewards,
            )
            for step in (0, 100)
        ]
        written = record.run(
            f"{arm}-s0", facts={"arm": arm, "repeat": 0, "data": {"fingerprint": "sha256:d"}}
        )
        written.start_attempt()
        written.close()
        written.write_result(
            ArmResult(
                run_id=f"{arm}-s0",
                arm=arm,
                repeat=0,
                seed=0,
                status="completed",
                identity="sha256:i",
                run=RunResult(status="completed", steps=100),
                evaluations=tuple(scored),
                usage=Usage(trained_tokens=100_000, cost_usd=0.0),
            )
        )
    compared = tuple(Comparison(arm=arm, outcome="tie", before=0.5, after=0.5, effect=0.0) for arm in ids)
    conclusion = Conclusion(verdict="REFUTED", reason="every arm ties", best_arm=ids[0], comparisons=compared)
    result = ExperimentResult(
        experiment_id=record.experiment_id,
        name="sweep",
        status="completed",
        directory=str(record.directory),
        conclusion=conclusion,
    )
    record.write_result(result)
    return record


def measure_all(project: Path, rounds: int) -> dict[str, dict[str, float]]:
    """The whole index made once, then questions to it, each as a command of its own."""
    experiments = project / ".evsys" / "experiments"

    def reindex() -> None:
        with Index(experiments) as index:
            index.refresh(anew=True)

    def refresh() -> None:
        with Index(experiments) as index:
            index.refresh()

    def touch_one() -> None:
        os.utime(next(experiments.glob("*/runs/*/run_result.json")))
        refresh()

    results = {
        "reindex": measure(reindex, 1),
        "look_for_changes": measure(refresh, rounds),
        "one_run_changed": measure(touch_one, rounds),
    }
    questions = {
        "python_alone": [],
        "history": ["history"],
        "history_of_text": ["history", "--text", "idea helps", "--tag", "tag-3", "--json"],
        "history_of_runs_by_score": ["history", "--runs", "--sort", "score", "--limit", "100"],
        "show": ["show", "last", "--json"],
        "validate_alone": ["validate", "alone/config.yaml"],
        "validate": ["validate", "config.yaml"],
        "history_near": ["history", "--near", "config.yaml"],
        "context": ["context"],
        "context_json": ["context", "--json"],
        "next": ["next"],
        "why": ["why"],
    }
    for name, arguments in questions.items():
        what = ["-m", "evsys_cli.main", *arguments] if arguments else ["-c", "pass"]
        command(project, what)
        results[name] = measure(lambda what=what: command(project, what), rounds)
    return results


def command(project: Path, arguments: list[str]) -> None:
    """Run Python with these arguments in the project."""
    subprocess.run([sys.executable, *arguments], cwd=project, check=True, stdout=subprocess.DEVNULL)


def measure(call: Callable[[], object], rounds: int) -> dict[str, float]:
    """The least of the rounds, of CPU (children included) and of wall time."""
    cpu, wall = [], []
    for _ in range(rounds):
        start = spent(), time.perf_counter()
        call()
        cpu.append(spent() - start[0])
        wall.append(time.perf_counter() - start[1])
    return {"cpu_min": round(min(cpu), 4), "wall_min": round(min(wall), 4), "n": rounds}


def spent() -> float:
    """Seconds of CPU of this process and of the children that ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


if __name__ == "__main__":
    main()
