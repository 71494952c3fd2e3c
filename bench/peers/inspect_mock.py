"""inspect-ai's mock model on the tasks of `bench/evaluation.py`: runs in an environment of peers, imports nothing of evsys.

    python peers/inspect_mock.py TASKS.jsonl CONCURRENT

prints one JSON line. A sample is a generation by `mockllm`, which answers at once with a usage of its own, so that no tokens
are counted; scored by `exact`, logged in inspect's default format.
"""

import json
import resource
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import exact
from inspect_ai.solver import generate


def run(rows, concurrent, folder):
    """Wall and CPU seconds of one evaluation, and the mean of its scores."""
    said = rows[0]["answer"]

    def answer(*_):
        output = ModelOutput.from_content("mockllm/model", said)
        output.usage = ModelUsage(input_tokens=20, output_tokens=5, total_tokens=25)
        return output

    samples = [Sample(id=row["id"], input=row["question"], target=row["answer"]) for row in rows]
    task = Task(dataset=MemoryDataset(samples), solver=generate(), scorer=exact())
    wall, cpu = time.perf_counter(), time.process_time()
    (log,) = evaluate(
        task,
        model=get_model("mockllm/model", custom_outputs=answer),
        log_dir=folder,
        display="none",
        max_connections=concurrent,
        max_samples=concurrent,
    )
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if log.status != "success" or log.results.completed_samples != len(rows):
        sys.exit(f"the evaluation ended as {log.status}: {log.error}")
    return wall, cpu, log.results.scores[0].metrics["mean"].value


def main():
    path, concurrent = sys.argv[1:]
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory(prefix="evsys-bench-inspect-") as folder:
        run(rows[:20], int(concurrent), folder)  # what is imported and compiled once
        wall, cpu, mean = run(rows, int(concurrent), folder)
        written = sum(log.stat().st_size for log in Path(folder).glob("*.eval"))
    figures = {
        "version": metadata.version("inspect-ai"),
        "rollouts": len(rows),
        "mean_reward": mean,
        "rollouts_per_second": round(len(rows) / wall, 1),
        "cpu_ms_per_rollout": round(1000 * cpu / len(rows), 2),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "bytes_written": written,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
