"""Aliases of keys and params: canonical names from the moment a file is read."""

import json
from typing import Any

import attrs
import pytest

from evsys import option, schema_for_config
from evsys.errors import ConfigError
from evsys_runtime.config.resolver import Resolver


@attrs.frozen(kw_only=True)
class Inner:
    size: int = option(1, "How large.", aliases=("width",))


class Named:
    """An algorithm with aliases."""

    @attrs.frozen(kw_only=True)
    class Config:
        steps: int | None = option(None, "How long.", ge=1, aliases=("max_steps",))
        learning_rate: float = option(1e-4, "Rate.", gt=0, aliases={"lr": "0.4", "rate": None})
        speed: float | None = option(None, "Use `learning_rate`.", deprecated="0.5")
        inner: Inner = option(Inner(), "Nested.")
        phrase: str | None = option(None, "Opens the service.", secret=True, aliases=("words",))

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    async def train(self, ctx):
        raise NotImplementedError


class Other(Named):
    """Another one, which has a field of its own by a name that is an alias elsewhere."""

    @attrs.frozen(kw_only=True)
    class Config:
        max_steps: int = option(1, "How long.")
        learning_rate: float = option(1e-4, "Rate.", gt=0, aliases=("rate",))


@pytest.fixture
def registry(registry):
    registry.register("algorithm", "named", Named)
    registry.register("algorithm", "other", Other)
    return registry


def with_algorithm(params: str, kind: str = "named") -> str:
    return f"""
name: aliases
run:
  data: {{path: data/train.jsonl}}
  model: {{name: evsys/tiny}}
  algorithm: {{kind: {kind}, params: {params}}}
  backend: {{kind: mock}}
"""


def with_matrix(axes: str, params: str = "{}", more: str = "") -> str:
    return f"""
name: aliases
base_run:
  data: {{path: data/train.jsonl}}
  model: {{name: evsys/tiny}}
  algorithm: {{kind: named, params: {params}}}
  backend: {{kind: mock}}
matrix:
  axes: {axes}
  {more}
"""


def params_of(plan: Any) -> list[dict[str, Any]]:
    return [dict(arm.tree["algorithm"]["params"]) for arm in plan.arms]


def test_an_alias_is_recorded_under_the_canonical_name_and_makes_the_same_run(load):
    plain, aliased = load(with_algorithm("{steps: 5}")), load(with_algorithm("{max_steps: 5}"))
    assert aliased.arms[0].digest == plain.arms[0].digest
    assert aliased.arms[0].run == plain.arms[0].run
    assert params_of(aliased) == [{"steps": 5}]
    resolved = Resolver(aliased.registry).fields(aliased.arms[0].run)
    assert "max_steps" not in json.dumps(resolved)
    assert aliased.warnings == plain.warnings == ()


def test_two_names_of_one_param_are_a_problem_at_the_second(problems):
    (found,) = problems(with_algorithm("{steps: 5, max_steps: 5}"))
    assert found == (
        "exp.yaml:6:47: $.run.algorithm.params.max_steps: means the same as 'steps'; keep one of them"
    )


def test_a_problem_of_an_aliased_param_is_placed_at_the_name_in_the_file(problems):
    (found,) = problems(with_algorithm("{rate: 0, max_steps: 0}"))[1:]
    assert found.startswith("exp.yaml:6:46: $.run.algorithm.params.steps: ")


def test_nested_classes_have_aliases_too(load):
    assert params_of(load(with_algorithm("{inner: {width: 3}}"))) == [{"inner": {"size": 3}}]


def test_a_deprecated_alias_is_a_warning_with_its_version(load):
    (warning,) = load(with_algorithm("{lr: 0.1}")).warnings
    assert warning.endswith(
        "$.run.algorithm.params.lr: 'lr' is deprecated since project 0.4; use 'learning_rate'"
    )
    assert "exp.yaml:6:37:" in warning


def test_a_deprecated_field_is_a_warning_with_its_version_and_its_help(load):
    (warning,) = load(with_algorithm("{speed: 0.1}")).warnings
    assert warning.endswith("'speed' is deprecated since project 0.5; Use `learning_rate`.")


def test_an_axis_by_an_alias_is_the_axis_of_the_param(load):
    plan = load(
        with_matrix(
            "{algorithm.params.max_steps: [1, 2], run.algorithm.params.rate: {values: [0.1], when: {algorithm.params.max_steps: 2}}}",
            "{steps: 9}",
            'name_template: "a-{algorithm.params.max_steps}"',
        )
    )
    assert [arm.name for arm in plan.arms] == ["a-1", "a-2"]
    assert params_of(plan) == [{"steps": 1}, {"steps": 2, "learning_rate": 0.1}]


def test_zipped_axes_may_be_named_by_aliases(load):
    plan = load(
        with_matrix(
            "{algorithm.params.steps: [1, 2], algorithm.params.rate: [0.1, 0.2]}",
            more="zip: [[algorithm.params.max_steps, algorithm.params.learning_rate]]",
        )
    )
    assert params_of(plan) == [{"steps": 1, "learning_rate": 0.1}, {"steps": 2, "learning_rate": 0.2}]


def test_one_axis_by_two_names_is_a_problem(problems):
    (found, *_) = problems(with_matrix("{algorithm.params.steps: [1], algorithm.params.max_steps: [1]}"))
    assert "means the same as" in found


def test_where_an_axis_chooses_the_plugin_its_candidates_have_to_agree(load):
    plan = load(
        with_matrix(
            "{algorithm.kind: [named, other], algorithm.params.rate: [0.1]}",
        )
    )
    assert params_of(plan) == [{"learning_rate": 0.1}, {"learning_rate": 0.1}]
    plan = load(with_matrix("{algorithm.kind: [named, other], algorithm.params.max_steps: [3]}"))
    assert params_of(plan) == [{"max_steps": 3}, {"max_steps": 3}]
    assert [arm.run.algorithm.kind for arm in plan.arms] == ["named", "other"]


@pytest.mark.parametrize("written", ["steps", "max_steps"])
@pytest.mark.parametrize("overridden", ["steps", "max_steps"])
def test_an_override_sets_a_param_by_any_of_its_names(load, written, overridden):
    plan = load(with_algorithm(f"{{{written}: 5}}"), f"run.algorithm.params.{overridden}=7")
    assert params_of(plan) == [{"steps": 7}]


def test_an_override_replaces_an_axis_by_any_of_its_names(load):
    plan = load(
        with_matrix("{algorithm.params.steps: [1, 2]}"),
        "matrix.axes.algorithm.params.max_steps=[4]",
    )
    assert params_of(plan) == [{"steps": 4}]


def test_params_of_an_unknown_plugin_stay_as_they_are(problems):
    (found, *_) = problems(with_algorithm("{max_steps: 5}", kind="nobody"))
    assert "nobody" in found


def test_a_metric_by_another_name_is_recorded_by_its_own(load, registry):
    class Cost:
        direction = "min"

        def compute(self, task_rewards):
            return 0.0

    registry.register("metric", "cost_per_task", Cost)
    text = (
        with_algorithm("{}")
        + "metadata: {success_metric: val.cost, benchmark: {path: data/val.jsonl, metrics: [pass_rate, %s]}}"
    )
    for written in ("cost", "{kind: cost}", "cost_per_task"):
        plan = load(text % written)
        assert plan.experiment.metadata.benchmarks[0].metric_names == ("pass_rate", "cost_per_task")
        assert str(plan.success) == "val.cost_per_task"


@pytest.mark.parametrize("name", ["phrase", "words"])
def test_a_secret_that_a_file_spells_out_is_refused_without_its_value(load, name):
    with pytest.raises(ConfigError) as caught:
        load(with_algorithm(f"{{{name}: sesame}}"))
    (problem,) = caught.value.problems
    assert problem.path.endswith(f"params.{name}")
    assert problem.line is not None
    assert "'phrase' is a secret" in str(problem)
    assert "write ${PHRASE} and export PHRASE" in str(problem)
    assert "sesame" not in str(problem)


def test_a_secret_that_an_override_or_an_axis_spells_out_is_refused(load):
    with pytest.raises(ConfigError, match="'phrase' is a secret"):
        load(with_algorithm("{}"), "run.algorithm.params.phrase=sesame")
    matrix = with_algorithm("{}").replace("run:", "matrix:\n  base_run:").replace("\n  ", "\n    ")
    matrix = matrix.replace("    base_run", "  base_run")
    axes = "  axes:\n    algorithm.params.words: [sesame, mellon]\n"
    with pytest.raises(ConfigError, match=r"axes.*'phrase' is a secret"):
        load(matrix.rstrip("\n") + "\n" + axes)


def test_a_secret_by_the_name_of_a_variable_is_accepted(load, monkeypatch):
    monkeypatch.setenv("PHRASE", "open-sesame-2")
    plan = load(with_algorithm('{phrase: "${PHRASE}"}'))
    assert "open-sesame-2" not in str(plan)
    load(with_algorithm("{phrase: null}"))


def test_a_secret_is_hidden_and_write_only():
    assert "sesame" not in repr(Named.Config(phrase="sesame"))
    properties = schema_for_config(Named.Config)["properties"]
    assert [name for name in properties if properties[name].get("writeOnly")] == ["phrase", "words"]
