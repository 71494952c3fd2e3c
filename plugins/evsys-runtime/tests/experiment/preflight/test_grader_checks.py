"""An experiment whose graders can't tell right from wrong doesn't begin; what they said is on record."""

import asyncio
import json
from pathlib import Path

import pytest

from evsys import Registry, use_registry
from evsys.errors import DataError
from evsys.types import Completion, Message
from evsys_runtime.config.model import BenchmarkConfig, PluginSpec
from evsys_runtime.experiment.evaluated_models import NamedClient
from evsys_runtime.experiment.evaluation import ascore

LETTERS = "abcdefghijkl"

ALWAYS = """
from evsys import register_verifier

@register_verifier("always")
def always(model_output, expected, params):
    return 1.0
"""


@pytest.fixture
def lenient(project):
    """A project whose tasks are judged by a verifier that passes everything; a blank line precedes them."""
    project.code("verifiers", ALWAYS)
    project.tasks([(f"t{i:02d}", f"say {c}", c) for i, c in enumerate(LETTERS)], verifier="always")
    path = project.root / "tasks.jsonl"
    path.write_text("\n" + path.read_text("utf-8"), encoding="utf-8")
    return project


def checks(folder: str | Path) -> dict:
    return json.loads((Path(folder) / "grader_check.json").read_text("utf-8"))


def test_a_grader_that_passes_everything_stops_the_experiment_at_the_line_of_the_task(lenient):
    with pytest.raises(DataError, match="gives full marks to every answer") as caught:
        lenient.experiment().run()
    error = caught.value
    assert (error.source, error.line, error.exit_code) == ("tasks.jsonl", 2, 4)
    assert "task 't00' and 11 more" in error.message
    assert "'val'" in error.message
    assert "--skip-grader-check" in error.hint
    assert not (lenient.root / ".evsys/experiments").exists()


def test_the_check_can_be_left_out_and_the_record_says_so(lenient):
    result = lenient.experiment(skip_grader_check=True).run()
    assert result.status == "completed"
    assert checks(result.directory) == {"format": 1, "checked": False, "benchmarks": []}


def test_who_scored_what_is_on_record(project):
    result = project.experiment().run()
    [check] = checks(result.directory)["benchmarks"]
    assert (check["benchmark"], check["tasks"], check["checked"]) == ("val", 12, 12)
    [verifier] = check["verifiers"]
    assert (verifier["verifier"], verifier["oracle"]) == ("exact_match", "declared")
    assert verifier["full_marks"]["oracle"] == 12
    assert verifier["full_marks"]["empty"] == verifier["full_marks"]["echo"] == 0


def test_what_is_odd_about_a_grader_is_a_warning_of_the_result(project):
    project.tasks(
        [(f"t{i:02d}", f"which of {LETTERS}?", c) for i, c in enumerate(LETTERS)], verifier="contains"
    )
    result = project.experiment().run()
    assert any("the echoed prompt gets full marks from 'contains'" in warning for warning in result.warnings)


def test_several_faulty_graders_are_told_at_once_each_with_its_place(lenient):
    lenient.write("other.jsonl", [json.loads(line) for line in lines(lenient.root / "tasks.jsonl")])
    metadata = """
metadata:
  success_metric: val.mean_reward
  benchmark:
    - {name: val, path: tasks.jsonl, max_tokens: 4}
    - {name: more, path: other.jsonl, max_tokens: 4}
"""
    with pytest.raises(DataError) as caught:
        lenient.experiment(metadata=metadata).run()
    assert "2 graders don't distinguish right answers from wrong ones" in caught.value.message
    assert "tasks.jsonl:2: benchmark 'val'" in caught.value.message
    assert "other.jsonl:1: benchmark 'more'" in caught.value.message


def lines(path: Path) -> list[str]:
    return [line for line in path.read_text("utf-8").splitlines() if line]


class Counts:
    """An API model."""

    asked = 0

    async def generate(self, messages, sampling, *, n=1, tools=()):
        Counts.asked += 1
        return [Completion(message=Message(role="assistant", content="a"), finish_reason="stop")] * n


def test_scoring_without_training_checks_graders_before_the_model_is_asked(project):
    project.tasks([("t00", "say a", "a"), ("t01", "say b", "b")], verifier="always")
    registry = Registry()
    registry.register("inference_client", "counts", Counts)
    registry.register("verifier", "always", lambda model_output, expected, params: 1.0)
    Counts.asked = 0

    def score(**options):
        with use_registry(registry):
            return asyncio.run(
                ascore(
                    NamedClient(label="sage", client=PluginSpec(kind="counts")),
                    [BenchmarkConfig(name="val", path="tasks.jsonl")],
                    project_root=project.root,
                    registry=registry,
                    quiet=True,
                    **options,
                )
            )

    with pytest.raises(DataError, match="full marks to every answer"):
        score()
    assert Counts.asked == 0
    result = score(skip_grader_check=True)
    assert (Counts.asked, result.status) == (2, "completed")
    assert checks(Path(result.run_dir).parent.parent)["checked"] is False
