import asyncio
import inspect
from dataclasses import dataclass
from typing import ClassVar

import attrs
import pydantic
import pytest

import evsys
from evsys import Registry
from evsys.errors import ConfigError, PluginContractError


@attrs.frozen(kw_only=True)
class AttrsConfig:
    field: str = "x"
    limit: int = evsys.option(3, "How many.", ge=1, aliases=("max",))
    _private: float = 0.5


@dataclass
class DataclassConfig:
    field: str = "x"
    limit: int = 3
    private: float = 0.5


class PydanticConfig(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    field: str = "x"
    limit: int = pydantic.Field(3, ge=1)
    private: float = 0.5


def transform_with(config: type | None) -> type:
    class Thing:
        name = "thing"

        def __init__(self, **kw):
            self.kw = kw

        def __call__(self, rows):
            return rows

    if config:
        Thing.Config = config
    return Thing


def problems(registry: Registry, kind: str, params: dict, path: str = "$", name: str = "thing") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        registry.build(kind, name, params, path=path)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("config", [AttrsConfig, DataclassConfig, PydanticConfig])
def test_a_plugin_gets_all_fields_of_its_config_by_keyword_defaults_included(registry, config):
    registry.register("transform", "thing", transform_with(config))
    built = registry.build("transform", "thing", {"field": "y"})
    assert built.kw == {"field": "y", "limit": 3, "private": 0.5}
    assert registry.build("transform", "thing").kw["field"] == "x"


@pytest.mark.parametrize("config", [AttrsConfig, DataclassConfig, PydanticConfig])
def test_all_problems_come_at_once_under_the_path(registry, config):
    registry.register("transform", "thing", transform_with(config))
    found = problems(registry, "transform", {"feild": "y", "limit": "no"}, "$.run.data.transforms[0].params")
    assert len(found) == 2
    assert any(each.startswith("$.run.data.transforms[0].params.feild: ") for each in found)
    assert any("did you mean 'field'?" in each for each in found)
    assert any(each.startswith("$.run.data.transforms[0].params.limit: ") for each in found)


def test_fields_are_built_from_structured_values_under_their_alias(registry):
    registry.register("transform", "thing", transform_with(AttrsConfig))
    built = registry.build("transform", "thing", {"private": 1, "max": 7})
    assert built.kw == {"field": "x", "limit": 7, "private": 1.0}
    assert isinstance(built.kw["private"], float)


def test_a_pydantic_model_that_allows_more_keys_hands_them_on(registry):
    class Open(pydantic.BaseModel, extra="allow"):
        field: str = "x"

    registry.register("transform", "thing", transform_with(Open))
    assert registry.build("transform", "thing", {"other": 1}).kw == {"field": "x", "other": 1}


def test_a_validator_that_raises_anything_is_a_problem_of_the_value(registry):
    class Careless(pydantic.BaseModel, extra="forbid"):
        mode: str = "x"

        @pydantic.field_validator("mode")
        @classmethod
        def known(cls, value: str) -> str:
            return {"x": "y"}[value]

    registry.register("transform", "thing", transform_with(Careless))
    with pytest.raises(ConfigError, match=r"KeyError: 'z'"):
        registry.build("transform", "thing", {"mode": "z"})


def test_a_default_list_is_made_anew_for_each_object(registry):
    @attrs.define
    class Config:
        words: list[str] = []  # noqa: RUF008 - what a careless author writes

    registry.register("transform", "thing", transform_with(Config))
    first, second = (registry.build("transform", "thing") for _ in range(2))
    first.kw["words"].append("x")
    assert second.kw["words"] == []


def test_a_constructor_that_exits_breaks_the_contract(registry):
    class Exits:
        def __init__(self, **kw):
            raise SystemExit(0)

        def __call__(self, rows):
            return rows

    registry.register("transform", "thing", Exits)
    with pytest.raises(PluginContractError, match="can't be made from nothing: SystemExit: 0"):
        registry.build("transform", "thing")


def test_a_plugin_without_config_takes_nothing(registry):
    registry.register("transform", "thing", transform_with(None))
    assert registry.build("transform", "thing").kw == {}
    assert problems(registry, "transform", {"a": 1}, "$.p") == ["$.p: transform 'thing' takes no params"]


def test_a_plugin_that_is_an_attrs_class_is_its_own_config(registry):
    @attrs.define(kw_only=True)
    class Own:
        name: ClassVar[str] = "own"
        limit: int = 3

        def __call__(self, rows):
            return rows

    registry.register("transform", "thing", Own)
    assert registry.build("transform", "thing", {"limit": 5}) == Own(limit=5)
    assert registry.config_of("transform", "thing") is Own


@dataclass(kw_only=True)
class OwnDataclass:
    limit: int = 3

    def __call__(self, rows):
        return rows


class OwnModel(pydantic.BaseModel):
    limit: int = 3

    def __call__(self, rows):
        return rows


@pytest.mark.parametrize("own", [OwnDataclass, OwnModel])
def test_a_plugin_that_is_a_dataclass_or_a_model_is_its_own_config_too(registry, own):
    registry.register("transform", "thing", own)
    assert registry.build("transform", "thing", {"limit": 5}) == own(limit=5)
    assert registry.schema("transform", "thing")["properties"]["limit"]["default"] == 3
    assert len(problems(registry, "transform", {"limit": "x", "more": 1})) == 2


def test_a_config_that_is_nothing_of_the_kind_is_named(registry):
    class Settings:
        pass

    registry.register("transform", "thing", transform_with(Settings))
    with pytest.raises(
        PluginContractError, match=r"Thing\.Config is not an attrs class, dataclass or pydantic model"
    ):
        registry.build("transform", "thing")


def test_a_constructor_that_refuses_the_values_is_a_problem_of_the_params(registry):
    class Thing(transform_with(AttrsConfig)):
        def __init__(self, **kw):
            raise ValueError("field and limit exclude each other")

    registry.register("transform", "thing", Thing)
    assert problems(registry, "transform", {}, "$.p") == [
        "$.p: transform 'thing': field and limit exclude each other"
    ]


def test_a_constructor_with_other_arguments_breaks_the_contract(registry):
    class Thing(transform_with(AttrsConfig)):
        def __init__(self, field): ...

    registry.register("transform", "thing", Thing)
    with pytest.raises(PluginContractError, match=r"from field, limit, private: TypeError: .*by keyword"):
        registry.build("transform", "thing")


# --- functions --------------------------------------------------------------------------------------------------


def test_a_function_comes_back_as_it_is(registry):
    def loss(data, logprobs): ...

    registry.register("loss", "thing", loss)
    assert registry.build("loss", "thing") is loss
    assert problems(registry, "loss", {"beta": 1}) == ["$: loss 'thing' takes no params"]


def test_a_function_with_a_config_gets_its_params_bound(registry):
    @attrs.frozen(kw_only=True)
    class Config:
        beta: float = 0.1

    def loss(data, logprobs, *, beta):
        return beta

    loss.Config = Config
    registry.register("loss", "thing", loss)
    assert registry.build("loss", "thing", {"beta": 2})(None, None) == 2.0
    assert registry.build("loss", "thing")(None, None) == 0.1
    assert problems(registry, "loss", {"beta": "x"}, "$.l") == ["$.l.beta: expected a finite number, got 'x'"]


def test_a_verifier_function_takes_any_params_since_it_gets_them_when_called(registry):
    def judge(model_output, expected, params):
        return params["weight"]

    registry.register("verifier", "thing", judge)
    assert registry.build("verifier", "thing", {"weight": 2}) is judge
    assert registry.schema("verifier", "thing")["additionalProperties"] is True


@pytest.mark.parametrize("config", [AttrsConfig, DataclassConfig])
def test_a_verifier_function_with_a_config_gets_all_its_fields_with_each_call(registry, config):
    def judge(model_output, expected, params, rollout=None):
        return params, rollout

    judge.Config = config
    judge.reward_range = (0.0, 1.0)
    registry.register("verifier", "thing", judge)
    given = {"limit": 4.0}
    built = registry.build("verifier", "thing", given)
    assert built("a", "b", given, rollout="r") == ({"field": "x", "limit": 4, "private": 0.5}, "r")
    assert registry.build("verifier", "thing")("a", "b", params={})[0]["limit"] == 3
    assert built.reward_range == (0.0, 1.0)
    assert "rollout" in inspect.signature(built).parameters


def test_a_verifier_function_gets_a_field_under_one_name_whichever_is_written(registry):
    def judge(model_output, expected, params):
        return params

    judge.Config = AttrsConfig
    registry.register("verifier", "thing", judge)
    built = registry.build("verifier", "thing", {"max": 2})
    assert built("a", "b", {"max": 2}) == {"field": "x", "limit": 2, "private": 0.5}


def test_a_verifier_that_is_an_instance_keeps_what_it_declares_when_it_has_a_config(registry):
    class Judge:
        Config = AttrsConfig
        reward_range = (0.0, 1.0)

        def __call__(self, model_output, expected, params):
            return params["limit"]

        def check(self, expected):
            raise ValueError(expected)

    registry.register("verifier", "thing", Judge())
    built = registry.build("verifier", "thing")
    assert built("a", "b", {}) == 3
    assert built.reward_range == (0.0, 1.0)
    with pytest.raises(ValueError, match="this"):
        built.check("this")


def test_a_verifier_function_of_a_family_gets_the_number_of_its_name(registry):
    def judge(model_output, expected, params):
        return params

    registry.register("verifier", "near@k", judge)
    assert registry.build("verifier", "near@3", {"weight": 2})("a", "b", {"weight": 2}) == {
        "weight": 2,
        "k": 3,
    }


def test_an_async_verifier_with_a_config_stays_one_that_is_awaited(registry, monkeypatch):
    weight = attrs.make_class("Config", {"weight": attrs.field(type=float, default=0.25)})
    monkeypatch.setattr(judge_later, "Config", weight, False)
    registry.register("verifier", "thing", judge_later)
    assert asyncio.run(registry.build("verifier", "thing")("a", "a", {})) == 0.25


def test_an_instance_comes_back_as_it_is(registry):
    thing = transform_with(None)()
    registry.register("transform", "thing", thing)
    assert registry.build("transform", "thing") is thing


async def judge_later(model_output, expected, params):
    return params.get("weight", 1.0)


async def act(task, model, tools, ctx, *, times=1):
    return "said" * times


@pytest.mark.parametrize(("kind", "plugin"), [("verifier", judge_later), ("agent", act)])
def test_async_functions_are_plugins_of_the_kinds_that_may_be_async(registry, kind, plugin):
    registry.register(kind, "thing", plugin)
    assert registry.build(kind, "thing") is plugin


def test_an_async_function_gets_its_params_bound_and_stays_async(registry, monkeypatch):
    monkeypatch.setattr(
        act, "Config", attrs.make_class("Config", {"times": attrs.field(type=int, default=1)}), False
    )
    registry.register("agent", "thing", act)
    built = registry.build("agent", "thing", {"times": 2})
    assert inspect.iscoroutinefunction(built)
    assert asyncio.run(built(None, None, (), None)) == "saidsaid"


def test_an_async_verifier_gets_its_params_when_it_is_called(registry):
    registry.register("verifier", "thing", judge_later)
    built = registry.build("verifier", "thing", {"weight": 2})
    assert asyncio.run(built("a", "a", {"weight": 2})) == 2


def test_a_class_may_take_its_config_from_the_class_that_it_inherits_from(registry):
    class Mine(transform_with(AttrsConfig)):
        name = "mine"

    registry.register("transform", "thing", Mine)
    assert registry.build("transform", "thing", {"max": 4}).kw["limit"] == 4


# --- families ---------------------------------------------------------------------------------------------------


@pytest.fixture
def family(registry):
    @attrs.frozen(kw_only=True)
    class PassAtK:
        k: int = evsys.option(..., "Samples.", ge=1)
        threshold: float = 1.0

        def compute(self, task_rewards):
            return 0.0

    registry.register("metric", "pass@k", PassAtK)
    return registry


def test_a_member_of_a_family_is_built_with_its_number(family):
    built = family.build("metric", "pass@3", {"threshold": 2})
    assert (built.k, built.threshold) == (3, 2.0)
    assert family.build("metric", "pass@k", {"k": 4}).k == 4


def test_the_number_in_the_name_obeys_the_config(family):
    assert problems(family, "metric", {}, "$.metrics[0]", "pass@0") == ["$.metrics[0].k: 'k' must be >= 1: 0"]


def test_the_number_in_the_name_can_not_be_given_again(family):
    assert problems(family, "metric", {"k": 3}, "$.m", "pass@3") == [
        "$.m.k: the name 'project/pass@3' has it already; leave it out"
    ]


def test_the_schema_of_a_member_leaves_the_number_out(family):
    assert set(family.schema("metric", "pass@3")["properties"]) == {"threshold"}
    assert "k" not in family.schema("metric", "pass@3").get("required", [])
    assert family.schema("metric", "pass@k")["required"] == ["k"]
