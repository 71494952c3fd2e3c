"""What trackio, wandb, mlflow and tensorboard take to log a record: runs in an environment of peers, imports nothing of evsys.

    python peers/loggers.py FOLDER RECORDS

prints one JSON document. A record has five values. Times are microseconds of the calling thread, its CPU and the wall's, which is what
training would wait for; what a library does in threads of its own comes on top. trackio and wandb (offline) queue records; mlflow and
tensorboard write them, mlflow into a SQLite file, one record a call and a hundred a call.
"""

import contextlib
import json
import os
import sys
import time
from importlib import metadata
from pathlib import Path

VALUES = {
    "loss": 0.31234567,
    "learning_rate": 1e-4,
    "grad_norm": 1.2345678,
    "tokens": 12345.0,
    "seconds": 0.0123,
}


def measure(call, count):
    """Microseconds a call."""
    start = time.thread_time(), time.perf_counter()
    for step in range(count):
        call(step)
    end = time.thread_time(), time.perf_counter()
    return {
        "cpu": round((end[0] - start[0]) / count * 1e6, 2),
        "wall": round((end[1] - start[1]) / count * 1e6, 2),
        "n": count,
    }


def trackio(folder, count):
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    run = trackio.init(project="bench", name="bench", embed=False, auto_log_cpu=False, auto_log_gpu=False)
    found = measure(lambda step: run.log(VALUES, step=step), count)
    run.finish()
    return {"log": found}


def wandb(folder, count):
    import wandb

    settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True)
    run = wandb.init(project="bench", dir=str(folder), mode="offline", settings=settings)
    found = measure(lambda step: run.log(VALUES, step=step), count)
    run.finish()
    return {"log": found}


def mlflow(folder, count):
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    run = client.create_run(client.create_experiment("bench")).info.run_id

    def record(step):
        return [Metric(name, value, 0, step) for name, value in VALUES.items()]

    def hundred(step):
        client.log_batch(run, metrics=[m for n in range(100) for m in record(10**6 + step * 100 + n)])

    found = {"log": measure(lambda step: client.log_batch(run, metrics=record(step)), max(count // 100, 5))}
    batch = measure(hundred, 3)
    found["log_in_batches_of_100"] = {
        name: round(value / 100, 2) if name != "n" else value * 100 for name, value in batch.items()
    }
    return found


def tensorboard(folder, count):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))

    def log(step):
        values = [Summary.Value(tag=name, simple_value=value) for name, value in VALUES.items()]
        writer.add_event(Event(step=step, wall_time=0.0, summary=Summary(value=values)))

    found = measure(log, count)
    writer.close()
    return {"log": found}


def main():
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    results = {}
    for peer, package in (
        (trackio, "trackio"),
        (wandb, "wandb"),
        (mlflow, "mlflow-skinny"),
        (tensorboard, "tensorboard"),
    ):
        own = folder / peer.__name__
        own.mkdir()
        with contextlib.redirect_stdout(sys.stderr):  # trackio prints
            found = peer(own, count)
        results[peer.__name__] = {"version": metadata.version(package), **found}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
