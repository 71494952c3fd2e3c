"""Time of reading experiment files, as JSON on standard output.

    python bench/config.py [--repeats 5] [--arms 10000] [--peers VENV] [--check]

`arms` expands, structures, validates and hashes a matrix: `shared` varies three axes, so that arms have most parts in
common; in `distinct` every arm has params of its own. `planned` is what `evsys plan` does with the distinct arms and 1,000 rows,
`times` how often it takes what validating them does. Each case runs in a fresh process; CPU is user + system time after
imports, the least of the repeats, and memory is the growth of the process's peak. `document` parses a file of 2 kB.
The peer is Hydra's basic launcher, which expands and starts no-op jobs (`hydra_jobs` of them).
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

BUDGET_SECONDS = 0.5
BUDGET_MEGABYTES = 150
HYDRA_JOBS = 100

FILE = """\
version: 1
name: bench
base_run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 1e-3, batch_size: 4}}
  backend: {kind: mock}
"""


def axes_of(case: str, arms: int) -> dict[str, list]:
    side = round(arms**0.5)
    rates = [1e-5 * (number + 1) for number in range(side)]
    if case == "distinct":
        return {
            "algorithm.params.learning_rate": rates,
            "algorithm.params.lora_rank": list(range(1, side + 1)),
        }
    fifth = max(side // 10, 1)
    return {
        "algorithm.params.learning_rate": rates[: side // fifth],
        "algorithm.params.lora_rank": list(range(1, fifth + 1)),
        "run.seed": list(range(side)),
    }


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def one(case: str, arms: int, repeats: int) -> dict:
    """One case in this process; the first run, which loads the plugins, isn't counted."""
    from evsys_runtime.config.validate import load_experiment

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "train.jsonl").write_text('{"messages": []}\n' * 4, encoding="utf-8")
        path = root / "config.yaml"
        if case == "document":
            return document(repeats)
        if case == "planned":
            return planned(root, arms, repeats)
        path.write_text(f"{FILE}matrix: {json.dumps({'axes': {'seed': [1, 2]}})}\n", encoding="utf-8")
        load_experiment(path)
        path.write_text(f"{FILE}matrix: {json.dumps({'axes': axes_of(case, arms)})}\n", encoding="utf-8")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        walls, cpus = [], []
        for _ in range(repeats):
            wall, cpu = time.perf_counter(), cpu_seconds()
            plan = load_experiment(path)
            walls.append(time.perf_counter() - wall)
            cpus.append(cpu_seconds() - cpu)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        hashes = len({arm.digest for arm in plan.arms})
    return {
        "case": case,
        "arms": len(plan.arms),
        "distinct_hashes": hashes,
        "cpu_seconds": round(min(cpus), 3),
        "wall_seconds": round(min(walls), 3),
        "memory_growth_megabytes": round((peak - before) / 1024, 1),
        "repeats": repeats,
    }


def planned(root: Path, arms: int, repeats: int) -> dict:
    """Plan the distinct arms, as `evsys plan` does it after it validated them."""
    from evsys_record.index import Index
    from evsys_runtime.config.validate import load_experiment
    from evsys_runtime.experiment.estimate.plan import plan_experiment

    chat = [{"role": role, "content": "a text " * 40} for role in ("user", "assistant")]
    (root / "train.jsonl").write_text(1000 * (json.dumps({"messages": chat}) + "\n"), encoding="utf-8")
    path = root / "config.yaml"
    validating, planning = [], []
    for number, count in enumerate([4, *[arms] * repeats]):
        path.write_text(
            f"{FILE}matrix: {json.dumps({'axes': axes_of('distinct', count)})}\n", encoding="utf-8"
        )
        start = cpu_seconds()
        plan = load_experiment(path)
        validated = cpu_seconds()
        with Index(root / "experiments") as index:
            index.refresh()
            plan_experiment(plan, index)
        if number:  # the first loads the plugins
            validating.append(validated - start)
            planning.append(cpu_seconds() - start)
    return {
        "case": "planned",
        "arms": arms,
        "cpu_seconds_with_validation": round(min(planning), 3),
        "times": round(min(planning) / min(validating), 2),
        "repeats": repeats,
    }


def document(repeats: int) -> dict:
    from evsys_runtime.config.document import loads

    text = FILE + "notes:\n" + "".join(f"  key_{n}: [a, 1e-4, {{b: text {n}}}]\n" for n in range(50))
    cpus = []
    for _ in range(10 * repeats):
        cpu = time.process_time()
        loads(text)
        cpus.append(time.process_time() - cpu)
    return {"case": "document", "bytes": len(text), "cpu_milliseconds": round(1000 * min(cpus), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--arms", type=int, default=10_000)
    parser.add_argument("--peers", type=Path, help="a virtual environment that has hydra-core installed")
    parser.add_argument("--check", action="store_true", help="end with 1 if a budget is exceeded")
    parser.add_argument(
        "--one", choices=["shared", "distinct", "planned", "document"], help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.arms, options.repeats)))
        return
    results = []
    for case in ("shared", "distinct", "planned", "document"):
        argv = [
            sys.executable,
            __file__,
            "--one",
            case,
            f"--arms={options.arms}",
            f"--repeats={options.repeats}",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        results.append(json.loads(done.stdout))
    found = {
        "python": platform.python_version(),
        "name": "evsys",
        "version": metadata.version("evsys-runtime"),
        "budgets": {"cpu_seconds": BUDGET_SECONDS, "memory_growth_megabytes": BUDGET_MEGABYTES},
        "results": results,
        "peers": launched(options.peers / "bin" / "python", HYDRA_JOBS, count_as="hydra_jobs")
        if options.peers
        else [],
    }
    print(json.dumps(found, indent=2))
    over = [
        result["case"]
        for result in results
        if result.get("cpu_seconds", 0) > BUDGET_SECONDS
        or result.get("memory_growth_megabytes", 0) > BUDGET_MEGABYTES
    ]
    if options.check and over:
        sys.exit(f"over budget: {', '.join(over)}")


if __name__ == "__main__":
    main()
