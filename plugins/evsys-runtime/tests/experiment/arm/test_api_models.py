"""API models scored beside the arms: recorded, shown, counted, and no part of the verdict."""

import json
from pathlib import Path

import pytest
from small_project import METADATA, RUN, forgotten

from evsys.errors import ConfigError
from evsys_runtime.config.model import BenchmarkConfig, PluginSpec
from evsys_runtime.experiment.verdict.prose import evaluation_line
from evsys_runtime.experiment.verdict.tables import score_tables

ORACLE = """
from evsys import option, register_inference_client
from evsys.types import Completion, Message, Usage
import attrs

calls = []

@register_inference_client("oracle")
class Oracle:
    @attrs.frozen(kw_only=True)
    class Config:
        model: str = option("oracle", "its name")
        says: str = option("a", "what it says")

    def __init__(self, model, says):
        self.says = says

    async def generate(self, messages, sampling, *, n=1, tools=()):
        calls.append(messages)
        if self.says == "down":
            raise ConnectionError("the service is down")
        used = Usage(prompt_tokens=2, completion_tokens=1, cost_usd=0.5)
        said = Message(role="assistant", content=self.says)
        return [Completion(message=said, finish_reason="stop", usage=used)] * n
"""

NAMED = """
@register_inference_client("named")
class Named(Oracle):
    Config = None

    def __init__(self):
        self.says = "a"
"""


def compared(*models: str) -> str:
    return f"{METADATA.rstrip()}\n    models: [{', '.join(models)}]\n"


def oracle(name: str, says: str = "a") -> str:
    return f"{{kind: oracle, params: {{model: {name}, says: {says}}}}}"


@pytest.fixture
def result(project):
    project.code("clients", ORACLE)
    return project.experiment(metadata=compared(oracle("sage"), oracle("fool", "b"))).run()


def of_models(result) -> list:
    return [e for arm in result.arms for e in arm.evaluations if e.model is not None]


def test_each_model_is_scored_on_the_entrys_tasks(result):
    assert (result.status, result.exit_code) == ("completed", 0)
    sage, fool = of_models(result)
    assert [(e.model, e.benchmark, e.step, e.status) for e in (sage, fool)] == [
        ("sage", "val", 0, "completed"),
        ("fool", "val", 0, "completed"),
    ]
    assert sage.metrics["mean_reward"].value == 1.0
    assert fool.metrics["mean_reward"].value == 0.0
    assert (sage.scored, sage.usage.cost_usd) == (12, 6.0)


def test_its_scores_are_on_record_under_its_name(result):
    run = Path(result.directory) / "runs/run-s0/validation"
    rollouts = [json.loads(line) for line in (run / "rollouts.jsonl").read_text("utf-8").splitlines()]
    assert sum(line["facts"].get("model") == "sage" for line in rollouts) == 12
    assert "val/val@sage/mean_reward" in (run / "metrics.jsonl").read_text("utf-8")


def test_it_is_shown_beside_the_arms(result):
    [table] = score_tables(result.arms)
    assert [row[0] for row in table.rows] == ["untrained", "run", "sage", "fool"]
    assert table.rows[2][1].startswith("1.000")
    assert "sage" in (Path(result.directory) / "conclusion.md").read_text("utf-8")
    assert evaluation_line(of_models(result)[0]) == "val (val), sage: mean_reward 1.000"


def test_it_is_no_part_of_the_verdict(project, result):
    forgotten(result)
    alone = project.experiment().run()
    assert result.conclusion.verdict == alone.conclusion.verdict
    assert result.conclusion.comparisons == alone.conclusion.comparisons


def test_several_arms_have_it_scored_once(project):
    project.code("clients", ORACLE)
    text = f"matrix:\n  axes:\n    run.algorithm.params.steps: [2, 3]\nbase_run:{RUN}"
    result = project.experiment(text, metadata=compared(oracle("sage"))).run()
    assert len(result.arms) == 2
    assert [e.model for e in of_models(result)] == ["sage"]
    [table] = score_tables(result.arms)
    assert [row[0] for row in table.rows].count("sage") == 1


def test_a_model_whose_service_is_down_leaves_the_arms_scored_and_the_experiment_partial(project):
    project.code("clients", ORACLE)
    result = project.experiment(metadata=compared(oracle("sage", "down"))).run()
    [evaluation] = of_models(result)
    assert (evaluation.status, evaluation.no_score) == ("invalid", 12)
    assert "the service is down" in evaluation.failure.message
    assert (result.status, result.exit_code) == ("completed", 1)
    assert result.arms[0].status == "completed"
    assert result.conclusion.verdict != "INVALID"


def test_a_client_that_cant_be_made_is_refused_before_training(project):
    project.code("clients", ORACLE)
    with pytest.raises(ConfigError) as caught:
        project.experiment(metadata=compared("{kind: oracle, params: {modle: x}}", "{kind: nobody}"))
    places = [problem.path for problem in caught.value.problems]
    assert places == ["$.metadata.benchmark.models[0].params.modle", "$.metadata.benchmark.models[1].kind"]


def test_a_model_that_is_named_twice_is_refused(project):
    project.code("clients", ORACLE)
    with pytest.raises(ConfigError, match="'sage' is scored already"):
        project.experiment(metadata=compared(oracle("sage"), oracle("sage")))


def test_a_bare_name_is_asked_for_where_the_usual_variables_say(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    entry = BenchmarkConfig(path="x", models=("gpt-5",), model=PluginSpec(kind="own"))
    (first, name, spec), (second, own, _) = entry.model_specs
    assert (first, name, second, own) == ("models[0]", "gpt-5", "model", "own")
    assert (spec.kind, spec.params["model"]) == ("openai_compatible", "gpt-5")
    assert (spec.params["base_url"], spec.params["api_key_env"]) == ("${OPENAI_BASE_URL}", "OPENAI_API_KEY")


def test_a_bare_name_is_the_project_s_client_of_that_name(project, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    project.code("clients", ORACLE + NAMED)
    result = project.experiment(metadata=compared("named")).run()
    assert [evaluation.model for evaluation in of_models(result)] == ["named"]
    tree = json.loads((Path(result.directory) / "resolved.json").read_text(encoding="utf-8"))
    assert tree["benchmarks"][0]["models"] == [{"kind": "project/named", "params": {}}]


def test_a_bare_name_that_nothing_answers_to_is_a_problem_of_the_file(project, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    project.code("clients", ORACLE + NAMED)
    with pytest.raises(ConfigError) as caught:
        project.experiment(metadata=compared("nmaed", "gpt-x"))
    first, second = caught.value.problems
    assert (first.path, first.hint) == ("$.metadata.benchmark.models[0]", "did you mean 'named'?")
    assert "no inference_client is called 'gpt-x', and OPENAI_BASE_URL" in second.message
    assert second.line is not None


def test_clients_know_the_project_that_they_are_made_in(project, monkeypatch):
    project.code(
        "clients",
        ORACLE
        + """
from evsys_runtime.data.scope import current_scope

made_in = []

@register_inference_client("placed")
class Placed(Oracle):
    def __init__(self, **fields):
        made_in.append(str(current_scope().project_root))
        super().__init__(**fields)
""",
    )
    monkeypatch.chdir("/")
    experiment = project.experiment(metadata=compared("{kind: placed}"))
    experiment.run()
    from src import clients

    assert clients.made_in[-1] == str(project.root)
