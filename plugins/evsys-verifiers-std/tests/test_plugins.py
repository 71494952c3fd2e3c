"""The plugins as an experiment file names them."""

import pytest

from evsys import Registry
from evsys.errors import ConfigError

VERIFIERS = ["exact_match", "contains", "regex_match", "tool_calls_match", "numeric", "json_schema"]
METRICS = ["mean_reward", "pass_rate", "pass@1", "pass@3", "pass^2"]
ECONOMICS = ["cost_per_task", "time_per_task", "tokens_per_task"]


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


@pytest.mark.parametrize("name", VERIFIERS)
def test_a_verifier_is_built_by_name_and_its_params_are_checked(registry, name):
    assert callable(registry.build("verifier", name))
    with pytest.raises(ConfigError, match="no_such_param"):
        registry.build("verifier", name, {"no_such_param": 1})
    assert registry.schema("verifier", name)["additionalProperties"] is False
    assert all("description" in field for field in registry.schema("verifier", name)["properties"].values())


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_is_built_by_name_with_its_direction(registry, name):
    metric = registry.build("metric", name)
    assert metric.direction == "max"
    assert metric.compute([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]) == 0.5
    with pytest.raises(ConfigError):
        registry.build("metric", name, {"no_such_param": 1})


@pytest.mark.parametrize("name", ECONOMICS)
def test_a_metric_of_economics_is_built_by_name_and_takes_no_params(registry, name):
    assert registry.build("metric", name).direction == "min"
    with pytest.raises(ConfigError):
        registry.build("metric", name, {"k": 1})


def test_best_of_k_needs_its_k(registry):
    assert registry.build("metric", "best_of_k", {"k": 3}).needs_samples == 3
    with pytest.raises(ConfigError, match="k"):
        registry.build("metric", "best_of_k")


def test_a_composite_is_built_of_installed_verifiers(registry):
    parts = {
        "right": {"verifier": "contains"},
        "short": {"verifier": "format_only", "params": {"max_characters": 9}},
    }
    assert registry.build("verifier", "composite", {"parts": parts}).uses == ("contains", "format_only")


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("format_only", {}, "asks for nothing"),
        ("numeric", {"tolerance": -1}, "tolerance"),
        ("json_schema", {"timeout_seconds": 0}, "timeout_seconds"),
        ("composite", {"parts": {}}, "parts"),
        ("regex_match", {"pattern": "("}, "is not a regular expression"),
        ("regex_match", {"timeout_seconds": 0}, "timeout_seconds"),
        ("contains", {"require": "some"}, "require"),
        ("tool_calls_match", {"arguments": "roughly"}, "arguments"),
        ("exact_match", {"strip": "yes"}, "strip"),
    ],
)
def test_a_value_that_makes_no_sense_is_a_problem_of_the_configuration(registry, name, params, message):
    with pytest.raises(ConfigError, match=message):
        registry.build("verifier", name, params)


def test_pass_at_zero_is_refused(registry):
    with pytest.raises(ConfigError):
        registry.build("metric", "pass@0")
