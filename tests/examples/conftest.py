"""Runs of the examples, on copies, so that records stay out of the tree."""

import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from house import ROOT

from evsys.types import ExperimentResult
from evsys_runtime.experiment import Experiment

EXAMPLES = ROOT / "examples"


class Example:
    """A copy of an example, and what it makes of overrides."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *overrides: str) -> ExperimentResult:
        """Each score is made anew, so that equal ones are no copies."""
        path = self.folder / "config.yaml"
        return Experiment.from_yaml(path, overrides=overrides, quiet=True, no_cache=True).run()

    def data(self) -> dict[str, str]:
        """Path below `data/` of each file of rows, and its text."""
        data = self.folder / "data"
        return {
            path.relative_to(data).as_posix(): path.read_text(encoding="utf-8")
            for path in data.rglob("*.jsonl")
        }

    def train(self) -> list[dict]:
        """The rows of its one dataset."""
        (path,) = (self.folder / "data/datasets").glob("*/v1/train.jsonl")
        return read_jsonl(path)

    def tasks(self, name: str = "held_out") -> list[dict]:
        """The rows of a validation benchmark."""
        return read_jsonl(self.folder / "data/validation" / name / "tasks.jsonl")

    def scripted(self) -> dict[str, str]:
        """The same, as its script would write them."""
        return runpy.run_path(str(self.folder / "make_data.py"))["files"]()


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Example]:
    def copy(name: str) -> Example:
        folder = tmp_path_factory.mktemp(name) / name
        shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns(".evsys", "__pycache__"))
        return Example(folder)

    return copy


def read_jsonl(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="session")
def read() -> Callable[[Path], list[dict]]:
    return read_jsonl


@pytest.fixture(scope="session")
def score() -> Callable[..., float]:
    """(result, step) -> the success metric of the first arm at this step; -1 is the last one."""

    def at(result: ExperimentResult, step: int) -> float:
        metric = result.conclusion.metric.rpartition(".")[2]
        evaluations = result.arms[0].evaluations
        found = evaluations[-1] if step == -1 else next(e for e in evaluations if e.step == step)
        return found.metrics[metric].value

    return at
