import functools

import attrs
import pytest

import evsys
from evsys import Registry, protocols, use_registry

KINDS = sorted(set(protocols.KINDS) - {"plugin", "command"})


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_decorator_that_returns_what_it_decorates(kind):
    with use_registry(Registry(entry_points=())) as registry:

        @getattr(evsys, f"register_{kind}")("thing")
        class Thing:
            pass

    assert isinstance(Thing, type)
    [entry] = registry.entries()
    assert (entry.kind, entry.name, entry.local) == (kind, "thing", True)
    assert entry.value.endswith("Thing")


@pytest.mark.parametrize(
    ("alias", "kind"), [("register_inference", "inference_client"), ("register_verifier_fn", "verifier")]
)
def test_short_names_are_the_same_decorator(alias, kind):
    assert getattr(evsys, alias) is getattr(evsys, f"register_{kind}")


def test_the_name_may_come_from_the_plugin():
    with use_registry(Registry(entry_points=())) as registry:

        @evsys.register_metric()
        class Mine:
            name = "pass@2"

            def compute(self, task_rewards):
                return 0.0

        @evsys.register_verifier()
        def same(model_output, expected, params):
            return 1.0

    assert registry.get("metric", "pass@2") is Mine
    assert registry.get("verifier", "same") is same


def test_a_decorator_registers_only_in_the_registry_in_use():
    with use_registry(Registry(entry_points=())) as first:
        evsys.register_metric("only_here")(type("M", (), {"compute": None}))
    assert [entry.name for entry in first.entries()] == ["only_here"]
    assert Registry(entry_points=()).entries() == []


def test_forgetting_the_brackets_is_told():
    with use_registry(Registry(entry_points=())), pytest.raises(TypeError, match=r"@register_metric\(\)"):

        @evsys.register_metric
        class Mine: ...


@pytest.mark.parametrize("plugin", [functools.partial(print, 1), lambda rows: rows, 5])
def test_what_has_no_name_of_its_own_needs_one(plugin):
    with use_registry(Registry(entry_points=())) as registry:
        with pytest.raises(TypeError, match=r"has no name of its own; write register_transform\(NAME\)"):
            evsys.register_transform()(plugin)
        evsys.register_transform("thing")(plugin)
    assert [entry.name for entry in registry.entries()] == ["thing"]


def test_a_field_called_name_is_not_taken_for_the_name():
    with use_registry(Registry(entry_points=())) as registry:

        @evsys.register_transform()
        @attrs.define(kw_only=True)
        class Thing:
            name: str = "column"

            def __call__(self, rows):
                return rows

    assert [entry.name for entry in registry.entries()] == ["Thing"]
    assert registry.build("transform", "Thing", {"name": "text"}).name == "text"
