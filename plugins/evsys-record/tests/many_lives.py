"""Run by test_crash.py: writes the same record again and again, each time killed at another of its system calls.

Arguments: a folder, then the calls to die at. Life 0 lives to its end and says how many calls it made. Each life has a
folder `<n>/` with the record and the file `acknowledged`, a line for each call of the record that returned.
"""

import os
import random
import signal
import sys
from pathlib import Path

from evsys.types import ArmResult, Conclusion, ExperimentResult, Message, Rollout, Turn
from evsys_record.experiment_record import ExperimentRecord
from evsys_runtime.data.cache import DatasetCache
from evsys_runtime.data.dataset import MaterializedDataset

REAL = {name: getattr(os, name) for name in ("write", "fsync", "rename", "replace", "mkdir", "link")}
REAL["fsync"] = lambda descriptor: None  # one may die here, but a kill takes nothing from the system's memory


class Life:
    """Counts the calls; at the fatal one a part of what was to be written gets written, and the process dies."""

    def __init__(self, root, fatal):
        self.root, self.fatal, self.calls = root, fatal, 0
        self.acknowledged = os.open(root / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def dies(self, name):
        def call(*arguments, **options):
            self.calls += 1
            if self.calls == self.fatal:
                if name == "write":
                    data = bytes(arguments[1])
                    REAL[name](arguments[0], data[: round(len(data) * random.Random(self.fatal).random())])
                os.kill(os.getpid(), signal.SIGKILL)
            return REAL[name](*arguments, **options)

        return call

    def ack(self, *what):
        REAL["write"](self.acknowledged, f"{what!r}\n".encode())

    def live(self):
        for name in REAL:
            setattr(os, name, self.dies(name))
        record = ExperimentRecord.create(self.root / "experiments", "crash", b"name: crash\n")
        self.ack("created", record.directory.name)
        with record.lock:
            self.experiment(record)
        self.ack("calls", self.calls)

    def experiment(self, record):
        run = record.run("a-s0", facts={"arm": "a"})
        self.ack("run")
        run.start_attempt()
        self.ack("attempt")
        rows = MaterializedDataset.from_rows([{"prompt": f"{n}"} for n in range(20)], "prompt")
        run.link_training_data(DatasetCache(self.root / "cache").keep(rows))
        self.ack("data")
        turn = Turn(message=Message(role="assistant", content="ж" * 3000), tokens=tuple(range(2000)))
        for step in (1, 2, 3):
            run.intent(step, f"b{step}", [f"r{step}"])
            self.ack("intent", step)
            run.rollout(step, Rollout(task_id="t", sample_index=0, turns=(turn,)))
            self.ack("rollout", step)
            run.metrics(step, {"loss": 1.0 / step})
            self.ack("metrics", step)
            run.done(step, f"b{step}")
            self.ack("done", step)
            if step > 1:
                folder = run.checkpoints.begin(step)
                (folder / "weights.bin").write_bytes(bytes(9000))
                manifest = {"loop": {"row": step}}
                run.checkpoints.commit(folder, step=step, attempt=run.attempt, manifest=manifest)
                self.ack("checkpoint", step)
        arm = ArmResult(run_id="a-s0", arm="a", repeat=0, seed=1, status="completed", identity="i")
        run.write_result(arm)
        self.ack("run_result")
        conclusion = Conclusion(verdict="REFUTED", reason="r")
        facts = {"experiment_id": record.experiment_id, "name": "crash", "directory": str(record.directory)}
        result = ExperimentResult(**facts, status="completed", conclusion=conclusion, arms=(arm,))
        record.write_result(result, "text")
        self.ack("result")


def main(top, places):
    for place in places:
        root = top / str(place)
        root.mkdir(parents=True)
        child = os.fork()
        if child == 0:
            Life(root, place).live()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == (signal.SIGKILL if place else 0), (place, status)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(place) for place in sys.argv[2:]])
