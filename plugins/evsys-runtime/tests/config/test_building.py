"""Plugins built thousands of times: the quick way finds exactly what the ordinary way finds."""

from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evsys import Registry, option
from evsys_runtime.config import building
from evsys_runtime.config.building import Plugins


@attrs.frozen(kw_only=True)
class Params:
    rate: float = option(1e-3, "Rate.", gt=0)
    steps: int | None = option(None, "Steps.", ge=1)
    epochs: float | None = option(None, "Epochs.", gt=0)
    names: tuple[str, ...] = attrs.field(factory=tuple)
    size: int = attrs.field()

    @size.validator
    def _fits(self, attribute: Any, value: int) -> None:
        if value > 3 and self.rate > 1:
            raise ValueError("a large size needs a small rate")

    def __attrs_post_init__(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("keep one of steps and epochs")


class Keeping:
    """Keeps its Config, as the toolkit's algorithms do."""

    Config = Params
    made = 0

    def __init__(self, **fields: Any) -> None:
        self.config = Params(**fields)
        type(self).made += 1
        if self.config.size == 7:
            raise ValueError("seven is refused by the plugin")

    async def train(self, ctx):
        raise NotImplementedError


class Taking(Keeping):
    """Doesn't make its Config anew, so its params are read as a whole each time."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields


VALUES = {
    "rate": [1e-3, 2, 0, "fast", 0.5],
    "steps": [1, 0, None, 2.5],
    "epochs": [1.0, None, -1],
    "names": [["a"], "a", [1]],
    "size": [1, 4, 7, True],
}


def registry_of(plugin: type) -> Registry:
    registry = Registry(entry_points=())
    registry.register("algorithm", "it", plugin)
    return registry


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in VALUES.items()}),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([Keeping, Taking]),
)
def test_params_are_judged_the_same_after_thousands_as_alone(several: list[dict[str, Any]], plugin: type):
    one = Plugins(registry_of(plugin))
    for params in several:
        alone = Plugins(registry_of(plugin)).build("algorithm", "it", params, "$.algorithm")
        built = one.build("algorithm", "it", params, "$.algorithm")
        assert built.problems == alone.problems
        assert (built.plugin is None) == (alone.plugin is None)
        if plugin is Keeping and built.plugin is not None:
            assert built.plugin.config == alone.plugin.config


@pytest.mark.parametrize(("plugin", "reads"), [(Keeping, 10), (Taking, 100)])
def test_a_grid_of_params_is_read_once_for_each_value_where_the_plugin_allows_it(
    plugin: type, reads: int, monkeypatch: pytest.MonkeyPatch
):
    registry = registry_of(plugin)
    read = []
    original = Registry.build

    def count(self, kind, name, params=None, *, path="$"):
        read.append(params)
        return original(self, kind, name, params, path=path)

    monkeypatch.setattr(Registry, "build", count)
    plugins = Plugins(registry)
    rates, sizes = [n / 10 for n in range(1, 11)], [1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    before = Keeping.made
    for rate, size in zip(rates, sizes, strict=True):
        plugins.build("algorithm", "it", {"rate": rate, "size": size}, "$.algorithm")
    for rate in rates:
        for size in sizes:
            built = plugins.build("algorithm", "it", {"rate": rate, "size": size}, "$.algorithm")
            assert built.problems == ()
    assert len(read) == 10 + (0 if reads == 10 else 100)
    assert (
        plugin is Taking or Keeping.made - before == 110
    )  # each one went through the plugin's own constructor


def test_defaults_that_are_made_anew_are_not_shared(monkeypatch: pytest.MonkeyPatch):
    @attrs.frozen(kw_only=True)
    class Config:
        a: int
        bag: list[int] = attrs.field(factory=list)

    class Bagging(Keeping):
        def __init__(self, **fields: Any) -> None:
            self.config = Config(**fields)

    Bagging.Config = Config
    plugins = Plugins(registry_of(Bagging))
    made = [plugins.build("algorithm", "it", {"a": 1}, "$").plugin for _ in range(3)]
    assert len({id(plugin.config.bag) for plugin in made}) == 3
    assert building.Template.of(plugins.registry, "algorithm", "it", made[0]) is not None
