"""Run by test_kills.py: a sweep of three arms at two seeds that is killed at one of its writes, and taken up again.

Arguments: the project, the number of the write to die at (0: at none), and `run` or `resume`. It prints how many writes there were.
"""

import os
import signal
import sys
from pathlib import Path
from random import Random

CALLS = ("write", "fsync", "rename", "replace", "link", "unlink", "mkdir", "ftruncate")


class Life:
    """Counts the calls that change a disk; at the fatal one a part of what was to be written gets written, and the process dies."""

    def __init__(self, fatal):
        self.fatal, self.calls = fatal, 0
        self.real = {name: getattr(os, name) for name in CALLS}
        for name in CALLS:
            setattr(os, name, self.counted(name))

    def counted(self, name):
        real = self.real[name]

        def call(*arguments, **options):
            if name == "write" and arguments[0] in (1, 2):  # what is printed is no record
                return real(*arguments, **options)
            self.calls += 1
            if self.calls == self.fatal:
                if name == "write":
                    data = bytes(arguments[1])
                    real(arguments[0], data[: round(len(data) * Random(self.fatal).random())])
                os.kill(os.getpid(), signal.SIGKILL)
            if name == "fsync":  # a kill takes nothing from the system's memory
                return None
            return real(*arguments, **options)

        return call


def main(root, fatal, what):
    from evsys.errors import ConfigError
    from evsys_runtime.experiment import Experiment
    from evsys_runtime.experiment.resume.unfinished_experiments import newest_unfinished

    life = Life(fatal)
    folder = None
    if what == "resume":
        try:
            folder = newest_unfinished(root / ".evsys/experiments")
        except ConfigError:  # killed before there was an experiment, or when all of it was on record
            folder = next((path.parent for path in root.glob(".evsys/experiments/*/experiment.json")), None)
    experiment = (
        Experiment.from_yaml(root / "config.yaml", quiet=True)
        if folder is None
        else Experiment.resume(folder, quiet=True)
    )
    result = experiment.run()
    sys.stdout.write(f"{life.calls} {result.status}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
