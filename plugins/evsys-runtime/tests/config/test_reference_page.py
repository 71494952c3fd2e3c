"""docs/reference/experiment-file.md says what the classes say, and its examples load."""

import re
from pathlib import Path

import attrs
import pytest

from evsys_runtime.config import model
from evsys_runtime.config.later import later_names

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "experiment-file.md").read_text(encoding="utf-8")
SCOPES = {"ExperimentConfig": "experiment", "RunConfig": "run", "BenchmarkConfig": "benchmark"}
CLASSES = [getattr(model, name) for name in model.__all__ if attrs.has(getattr(model, name))]
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def table(cls: type) -> str:
    """The rows of a class as the page has them."""
    later = later_names(SCOPES[cls.__name__]) if cls.__name__ in SCOPES else ()
    return "\n".join(row(field, later=field.name in later) for field in attrs.fields(cls))


def row(field: attrs.Attribute, *, later: bool) -> str:
    if field.default is attrs.NOTHING:
        default = "required"
    elif field.default is None or isinstance(field.default, attrs.Factory):
        default = "none"
    else:
        default = f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"
    note = " *Not in this version.*" if later else ""
    return f"| `{field.name}` | {field.metadata['help']}{note} | {default} |"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_the_page_lists_every_key_with_its_help_and_default(cls: type):
    assert table(cls) in PAGE


def test_there_are_as_many_tables_as_classes():
    assert PAGE.count("| key | meaning | default |") == len(CLASSES)


@pytest.fixture
def named_data(project: Path) -> None:
    """The data that the examples name."""
    for file, named in (
        ("train", "datasets/topics/v1/train"),
        ("val", "validation/val/tasks"),
        ("test", "benchmark/test/tasks"),
    ):
        (project / "data" / named).parent.mkdir(parents=True)
        (project / f"data/{file}.jsonl").rename(project / f"data/{named}.jsonl")


@pytest.mark.usefixtures("named_data")
@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.split("\n")[1])
def test_examples_load(load, text: str):
    assert load(text).arms


@pytest.mark.usefixtures("named_data")
def test_the_matrix_example_has_the_arms_that_the_page_speaks_of(load):
    names = [arm.name for arm in load(EXAMPLES[1]).arms]
    assert names[:2] == ["lr-0.001-1-r8", "lr-0.001-1-r32"]
    assert len(names) == 16
