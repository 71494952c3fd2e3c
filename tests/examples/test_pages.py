"""The examples' pages show what is there, and the experiment that lives on a page alone runs too."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from house import ROOT
from ruamel.yaml import YAML

from evsys_runtime.experiment import Experiment

PAGES = ROOT / "docs/examples"
CONFIGS = sorted(
    path
    for path in (ROOT / "examples").rglob("*.yaml")
    if (path.parent / "data").is_dir() and ".evsys" not in path.parts
)
NAMES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/config.yaml"))
INTENTS = 10


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_example_has_a_readme_a_page_and_a_place_in_both_lists(name: str):
    assert (ROOT / "examples" / name / "README.md").is_file()
    assert (PAGES / f"{name}.md").is_file()
    assert f"({name}/README.md)" in (ROOT / "examples/README.md").read_text(encoding="utf-8")
    assert f"({name}.md)" in (PAGES / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_code_on_a_page_is_the_examples_own(name: str):
    sources = {path.read_text(encoding="utf-8") for path in (ROOT / "examples" / name).glob("src/*.py")}
    assert set(blocks(PAGES / f"{name}.md", "python")) <= sources


def values(tree: Any, key: str) -> Iterator[Any]:
    """Everything that is called `key` in an experiment file."""
    if isinstance(tree, dict):
        yield from (value for name, value in tree.items() if name == key)
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from values(child, key)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_an_example_names_its_data(config: Path):
    tree = YAML(typ="safe", pure=True).load(config.read_text(encoding="utf-8"))
    assert list(values(tree, "path")) == []
    assert list(values(tree, "dataset_name")) != []


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_data_of_an_example_lie_as_in_a_new_project_and_are_described(config: Path):
    data = config.parent / "data"
    files = {path.relative_to(data).as_posix() for path in data.rglob("*.jsonl")}
    layout = re.compile(r"datasets/\w+/v1/train\.jsonl|(?:validation|benchmark)/\w+/tasks\.jsonl")
    assert [name for name in files if not layout.fullmatch(name)] == []
    for name in files:
        metadata = YAML(typ="safe", pure=True).load((data / name).with_name("metadata.yaml"))
        assert metadata.keys() == {"description", "licence"}


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """The page's experiment beside two small files of our own in the shape of the real ones."""
    (config,) = blocks(PAGES / "banking77.md", "yaml")
    intents = re.findall(r"^ +- (\w+)$", config, re.MULTILINE)
    assert len(intents) == INTENTS
    (tmp_path / "config.yaml").write_text(config, encoding="utf-8")
    (tmp_path / "banking77").mkdir()
    for name, each in (("train", 4), ("test", 2)):
        with (tmp_path / f"banking77/{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "category"])
            for intent in (*intents, "another_intent"):
                for number in range(each):
                    writer.writerow([f'{name} {number}: what about\n"{intent}", please?', intent])
    return tmp_path / "config.yaml"


def test_the_banking_page_has_an_experiment_that_runs_from_two_csv_files(bank: Path):
    overrides = ("run.backend.kind=mock", "run.algorithm.params.steps=2")
    result = Experiment.from_yaml(bank, overrides=overrides, quiet=True).run()
    assert (result.status, result.exit_code) == ("completed", 0)
    evaluation = result.arms[0].evaluations[-1]
    assert (evaluation.tasks, evaluation.no_score) == (2 * INTENTS, 0)
    assert len(evaluation.breakdown["category"]) == INTENTS
    rows = (Path(result.arms[0].run_dir) / "data/training_data.jsonl").read_text(encoding="utf-8")
    assert len(rows.splitlines()) == 4 * INTENTS
    assert "another_intent" not in rows
