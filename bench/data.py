"""Rows a second and memory of the way from a file to typed rows, evsys beside HF datasets; prints one JSON document.

The work: read chat rows of 1.2 kB in mixed scripts, `filter`, `jsonl_to_chat`, `map`, and type them. Each contender
runs in a process of its own; a rate is input rows over the least CPU seconds of a number of runs.
"""

import argparse
import importlib.util
import json
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

RATE = 80_000  # rows a second, streamed and typed
GROWTH = 50  # MB of resident memory that a big file may add

TRANSFORMS = [
    {"kind": "filter", "params": {"conditions": [{"column": "score", "op": ">=", "value": 0.1}]}},
    {"kind": "jsonl_to_chat", "params": {"user_column": "question", "assistant_column": "answer"}},
    {"kind": "map", "params": {"set": {"source": "bench"}}},
]
WORDS = [
    "the",
    "model",
    "learns",
    "ответ",
    "数据",
    "quick",
    "brown",
    "fox",
    "über",
    "data",
    "líne",
    "table",
    "मेज",
]


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rows", type=int, default=100_000, help="rows of the file that rates are measured on"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each contender (the least counts)")
    parser.add_argument(
        "--big", type=int, default=2000, help="MB of the file that memory is measured on; 0 for none"
    )
    parser.add_argument(
        "--folder", type=Path, help="where the files go; by default the system's temporary folder"
    )
    parser.add_argument("--no-peers", action="store_true", help="measure evsys alone")
    parser.add_argument("--check", action="store_true", help="end with 1 if evsys misses a target")
    parser.add_argument("--worker", nargs=2, metavar=("CONTENDER", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(*options.worker)))
        return

    with tempfile.TemporaryDirectory(prefix="evsys-bench-", dir=options.folder) as folder:
        results = measure(options, Path(folder))
    document = {
        "python": platform.python_version(),
        "msgspec": importlib.util.find_spec("msgspec") is not None,
        "targets": {"rows_per_second": RATE, "rss_growth_mb": GROWTH},
        "results": results,
    }
    print(json.dumps(document, indent=2))
    missed = missed_targets(results)
    if options.check and missed:
        sys.exit(f"missed: {', '.join(missed)}")


def measure(options: argparse.Namespace, folder: Path) -> list[dict]:
    path = folder / "rows.jsonl"
    size = write_rows(path, options.rows)
    results = []
    contenders = ["evsys_read", "evsys_stream", "evsys_load"]
    if not options.no_peers and importlib.util.find_spec("datasets"):
        contenders.append("datasets_map")
    for contender in contenders:
        runs = [run_worker(contender, path) for _ in range(options.runs)]
        cpu = min(run["cpu"] for run in runs)
        results.append(
            {
                "name": contender,
                "version": metadata.version("datasets" if contender == "datasets_map" else "evsys-runtime"),
                "rows_per_second": round(options.rows / cpu),
                "mb_per_second": round(size / cpu / 1e6),
                "wall_min": round(min(run["wall"] for run in runs), 2),
                "rss_growth_mb": round(min(run["rss_growth_mb"] for run in runs), 1),
                "file_mb": round(size / 1e6),
                "rows_out": runs[0]["rows"],
            }
        )
    if options.big:
        path.unlink()
        size = write_rows(path, options.big * 1_000_000 * options.rows // size)
        for contender in ["evsys_stream", "evsys_load"]:
            run = run_worker(contender, path)
            results.append({"name": f"{contender}_big", "file_mb": round(size / 1e6), **rounded(run)})
    return results


def rounded(run: dict) -> dict:
    return {key: round(value, 1) for key, value in run.items()}


def missed_targets(results: list[dict]) -> list[str]:
    missed = [
        f"{result['name']} reads {result['rows_per_second']} rows/s"
        for result in results
        if result["name"] == "evsys_stream" and result["rows_per_second"] < RATE
    ]
    return missed + [
        f"{result['name']} grows by {result['rss_growth_mb']} MB"
        for result in results
        if result["name"].endswith("_big") and result["rss_growth_mb"] > GROWTH
    ]


def write_rows(path: Path, rows: int) -> int:
    """Chat rows of 1.2 kB on average; the same for the same count. Returns the file's size in bytes."""
    draw = random.Random(0)
    pool = [[" ".join(draw.choices(WORDS, k=draw.randrange(60, 110))) for _ in range(2)] for _ in range(500)]
    with path.open("w", encoding="utf-8") as stream:
        for number in range(rows):
            question, answer = pool[number % 500]
            row = {"id": number, "question": question, "answer": answer, "score": round(draw.random(), 4)}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path.stat().st_size


def run_worker(contender: str, path: Path) -> dict:
    argv = [sys.executable, __file__, "--worker", contender, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{contender} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)


# --- what a worker does -----------------------------------------------------------------------------------------


def work(contender: str, path: str) -> dict:
    """One run in this process; imports are not counted."""
    prepared = {
        "evsys_read": evsys_read,
        "evsys_stream": evsys_stream,
        "evsys_load": evsys_load,
        "datasets_map": datasets_map,
    }[contender](Path(path))
    before, cpu, wall = memory("VmRSS"), time.process_time(), time.perf_counter()
    rows = prepared()
    return {
        "rows": rows,
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "rss_growth_mb": (memory("VmHWM") - before) / 1e6,
    }


def memory(field: str) -> int:
    """Bytes of resident memory: `VmRSS` is now, `VmHWM` the greatest so far. Elsewhere than on Linux both are the latter."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(
            line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith(field)
        )
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def evsys_read(path: Path):
    from evsys_runtime.data.readers import read_rows

    return lambda: sum(1 for _ in read_rows(path))


def evsys_stream(path: Path):
    """Rows come and go: the rate that the target is about."""
    from evsys import Registry
    from evsys_runtime.data.parse import parse_rows
    from evsys_runtime.data.pipeline import apply, build_stages
    from evsys_runtime.data.readers import ReadReport, read_rows

    report = ReadReport()
    stages = build_stages(TRANSFORMS, Registry())
    rows = apply(read_rows(path, report=report), stages, source=report)
    return lambda: sum(1 for _ in parse_rows(rows, "chat", place=report.place))


def evsys_load(path: Path):
    """What a run does: the same, and every row is hashed and kept, in a file once there are many."""
    from evsys import Registry
    from evsys_runtime.data.load import load_dataset

    registry = Registry()
    registry.build("transform", "identity")  # imports what the transforms need
    block = {"path": str(path), "transforms": TRANSFORMS}

    def run() -> int:
        data = load_dataset(
            block, shape="chat", project_root=path.parent, registry=registry, spool_dir=path.parent / "spool"
        )
        return len(data)

    return run


def datasets_map(path: Path):
    """The peer's way: load into its cache, filter, two maps."""
    import datasets

    datasets.disable_progress_bars()
    cache = tempfile.mkdtemp(prefix="hf-", dir=path.parent)

    def chat(row: dict) -> dict:
        said = [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}]
        return {"messages": said}

    def run() -> int:
        data = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=cache)
        data = data.filter(lambda row: row["score"] >= 0.1)
        return len(data.map(chat).map(lambda _row: {"source": "bench"}))

    return run


if __name__ == "__main__":
    main()
