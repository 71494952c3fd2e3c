"""What an experiment costs beside the work of its arms, as JSON on standard output.

    python bench/sweep.py [--arms 100] [--repeats 3] [--peers VENV] [--check]

`nothing` are arms whose algorithm returns at once: what is left is validation, the mock backend's start and end, and the whole
record of each run. `trained` are arms of two steps that are scored on ten tasks before and after. Each case runs in a fresh
process, one arm at a time and four; the least of the repeats counts. `wall_seconds` are those of the process, its start
included, `seconds_per_arm` and `cpu_seconds_per_arm` those of the experiment alone. The peer is Hydra's basic launcher with as
many jobs that do nothing.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from support.hydra_jobs import launched

BUDGET_CPU_SECONDS = 0.1
"""CPU of an arm that does nothing."""

WIDTHS = (1, 4)

FILE = """\
version: 1
name: bench
max_concurrent_arms: {width}
{metadata}base_run:
  data: {{path: train.jsonl, transforms: [{{kind: jsonl_to_chat}}]}}
  model: {{name: evsys/tiny}}
  algorithm: {{kind: {algorithm}, params: {{learning_rate: 1e-3, batch_size: 4, steps: 2, lora_rank: 4}}}}
  backend: {{kind: mock}}
matrix: {{axes: {{seed: {seeds}}}}}
"""

METADATA = """\
metadata:
  success_metric: val.mean_reward
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 4}
"""

ALGORITHM = """
from evsys.types import RunResult
from evsys_sdk import SFT, register_algorithm

@register_algorithm("nothing")
class Nothing(SFT):
    async def train(self, ctx):
        return RunResult(status="completed", run_id=ctx.run_id)
"""


def project(root: Path, case: str, arms: int, width: int) -> Path:
    """A folder with an experiment of so many arms."""
    rows = [{"prompt": f"say {n}", "completion": str(n)} for n in range(16)]
    (root / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    verifier = {"name": "exact_match", "expected": "a"}
    tasks = [{"task_id": f"t{n}", "instruction": f"say {n}", "verifier": verifier} for n in range(10)]
    (root / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks), encoding="utf-8")
    (root / "src").mkdir()
    (root / "src" / "algorithms.py").write_text(ALGORITHM, encoding="utf-8")
    trained = case == "trained"
    text = FILE.format(
        width=width,
        metadata=METADATA if trained else "",
        algorithm="sft" if trained else "nothing",
        seeds=list(range(arms)),
    )
    path = root / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def one(case: str, arms: int, width: int) -> dict[str, float]:
    """One experiment in this process."""
    from evsys_runtime.experiment import Experiment

    with tempfile.TemporaryDirectory() as folder:
        path = project(Path(folder), case, arms, width)
        wall, cpu = time.perf_counter(), cpu_seconds()
        result = Experiment.from_yaml(path, quiet=True, skip_grader_check=True).run()
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
        completed = sum(arm.status == "completed" for arm in result.arms)
        if completed != arms:
            sys.exit(f"{completed} of {arms} arms completed: {result.warnings}")
    return {"seconds_per_arm": wall / arms, "cpu_seconds_per_arm": cpu / arms}


def cpu_seconds() -> float:
    """User and system time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measured(case: str, arms: int, width: int, repeats: int) -> dict:
    """The least of each number over fresh processes."""
    runs = []
    for _ in range(repeats):
        start = time.perf_counter()
        argv = [sys.executable, __file__, "--one", case, f"--arms={arms}", f"--width={width}"]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        runs.append({"wall_seconds": time.perf_counter() - start, **json.loads(done.stdout)})
    least = {name: round(min(run[name] for run in runs), 4) for name in runs[0]}
    return {"case": case, "arms": arms, "at_once": width, **least, "repeats": repeats}


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--arms", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", type=Path, help="a virtual environment that has hydra-core installed")
    parser.add_argument("--check", action="store_true", help="end with 1 if a budget is exceeded")
    parser.add_argument("--one", choices=["nothing", "trained"], help=argparse.SUPPRESS)
    parser.add_argument("--width", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.arms, options.width)))
        return
    results = [
        measured(case, options.arms, width, options.repeats)
        for case in ("nothing", "trained")
        for width in WIDTHS
    ]
    found = {
        "python": platform.python_version(),
        "name": "evsys",
        "version": metadata.version("evsys-runtime"),
        "budgets": {"cpu_seconds_per_arm": BUDGET_CPU_SECONDS},
        "results": results,
        "peers": launched(options.peers / "bin" / "python", options.arms, count_as="jobs")
        if options.peers
        else [],
    }
    print(json.dumps(found, indent=2))
    over = [r for r in results if r["case"] == "nothing" and r["cpu_seconds_per_arm"] > BUDGET_CPU_SECONDS]
    if options.check and over:
        sys.exit(f"over budget: {over}")


if __name__ == "__main__":
    main()
