"""What trackio and mlflow take for the work of `bench/dashboard.py`: runs in an environment of peers, imports nothing of evsys.

    python peers/dashboards.py FOLDER

prints one JSON document. Both store into SQLite files in FOLDER and are called in this process, without their servers and HTTP, which would come
on top: points a second in small (100 points) and large batches, a curve of 100,000 points read, 1,500 runs listed.
"""

import contextlib
import json
import os
import sys
import time
from importlib import metadata
from pathlib import Path

VALUES = 10
SMALL, LARGE = 10, 4000
LONG, RUNS = 100_000, 1500


def rate(call, batches, lines):
    """Points a second, of CPU and of the wall."""
    start = time.process_time(), time.perf_counter()
    for number in range(batches):
        call(number * lines, lines)
    end = time.process_time(), time.perf_counter()
    points = batches * lines * VALUES
    return {
        "points_per_cpu_second": round(points / (end[0] - start[0])),
        "points_per_second": round(points / (end[1] - start[1])),
    }


def times(call, count=5):
    """Milliseconds of a call, the least of several."""
    cpu, wall = [], []
    for _ in range(count):
        start = time.process_time(), time.perf_counter()
        call()
        cpu.append(time.process_time() - start[0])
        wall.append(time.perf_counter() - start[1])
    return {"cpu_milliseconds": round(min(cpu) * 1e3, 1), "wall_milliseconds": round(min(wall) * 1e3, 1)}


def values(step):
    return {f"metric_{name}": step * 0.5 + name for name in range(VALUES)}


def trackio(folder):
    os.environ["TRACKIO_DIR"] = str(folder)
    from trackio.sqlite_storage import SQLiteStorage as Storage

    def log(run):
        def call(first, count):
            steps = list(range(first, first + count))
            Storage.bulk_log(
                project="bench", run=run, metrics_list=[values(step) for step in steps], steps=steps
            )

        return call

    found = {"small": rate(log("small"), 60, SMALL), "large": rate(log("large"), 4, LARGE)}
    for first in range(0, LONG, 20_000):
        steps = list(range(first, first + 20_000))
        Storage.bulk_log(
            project="long", run="long", metrics_list=[{"loss": step * 0.5} for step in steps], steps=steps
        )
    found["curve"] = times(lambda: Storage.get_logs(project="long", run="long"))
    for run in range(RUNS):
        Storage.bulk_log(project="many", run=f"run-{run}", metrics_list=[values(1)], steps=[1])
    found["list"] = times(lambda: Storage.get_runs("many"))
    return found


def mlflow(folder):
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")

    def new_run(experiment):
        return client.create_run(experiment).info.run_id

    def log(run):
        def call(first, count):
            found = [
                Metric(name, value, 0, step)
                for step in range(first, first + count)
                for name, value in values(step).items()
            ]
            for start in range(0, len(found), 1000):  # the most that it takes
                client.log_batch(run, metrics=found[start : start + 1000])

        return call

    bench = client.create_experiment("bench")
    found = {"small": rate(log(new_run(bench)), 60, SMALL), "large": rate(log(new_run(bench)), 1, LARGE)}
    run = new_run(bench)
    for first in range(0, LONG, 1000):
        client.log_batch(
            run, metrics=[Metric("loss", step * 0.5, 0, step) for step in range(first, first + 1000)]
        )
    found["curve"] = times(lambda: client.get_metric_history(run, "loss"), 3)
    many = client.create_experiment("many")
    for _ in range(RUNS):
        log(new_run(many))(1, 1)
    found["list"] = times(lambda: client.search_runs([many], max_results=RUNS), 3)
    return found


def main():
    results = {}
    for peer in (trackio, mlflow):
        own = Path(sys.argv[1]) / peer.__name__
        own.mkdir()
        with contextlib.redirect_stdout(sys.stderr):
            found = peer(own)
        results[peer.__name__] = {"version": metadata.version(peer.__name__), **found}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
