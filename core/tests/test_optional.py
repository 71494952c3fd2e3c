"""Optional members: each is in one list that type checkers know, and one that is nearly spelt right is found."""

import re
from pathlib import Path
from typing import get_args

import pytest

from evsys import optional, protocols
from evsys.optional import SupportsCollapse, SupportsKeep, declared, members, misspelt

PAGE = Path(__file__).parents[2] / "docs/reference/optional-members.md"
PROTOCOLS = [vars(optional)[name] for name in optional.__all__ if name.startswith("Supports")]


def test_type_checkers_know_every_member_and_no_other():
    names = {name for protocol in PROTOCOLS for name in members(protocol)}
    assert list(get_args(optional.OptionalMember.__value__)) == sorted(names)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.__name__)
def test_each_protocol_describes_itself_and_has_members(protocol):
    assert protocol.__doc__
    assert members(protocol)


def test_kinds_are_those_of_plugins():
    assert set(optional.OFFERED) <= set(protocols.KINDS)


def test_a_method_is_offered_by_a_class_and_by_its_objects():
    class Search:
        def keep(self, history, n, step, score):
            return True

    assert isinstance(Search(), SupportsKeep)
    assert isinstance(Search, SupportsKeep)
    assert not isinstance(Search(), SupportsCollapse)


def test_a_declared_value_is_found_and_an_absent_one_is_the_default():
    class Proxy:
        def __getattr__(self, name):
            if name == "free":
                return True
            raise AttributeError(name)

    assert declared(Proxy(), "free", False) is True
    assert declared(Proxy(), "cacheable", True) is True
    assert declared(Proxy(), "digest") is None


class Right:
    def lora(self): ...

    def after_collapse(self, result, retreats): ...


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        ("algorithm", "after_colapse", "after_collapse"),
        ("algorithm", "row_trained", "rows_trained"),
        ("backend", "honors", "honours"),
        ("callback", "monitord", "monitored"),
        ("metric", "need_samples", "needs_samples"),
        ("rollout_engine", "check_works", "check_work"),
        ("search", "validates_space", "validate_space"),
        ("verifier", "counter_example", "counterexample"),
    ],
)
def test_a_misspelt_member_is_found_where_it_is_inherited_too(kind, name, meant):
    base = type("Base", (), {name: None})
    assert misspelt(kind, type("Plugin", (base,), {})) == {name: meant}


@pytest.mark.parametrize("name", ["compute", "config", "_row_trained", "score", "train", "lora"])
def test_other_members_are_the_plugins_own(name):
    assert misspelt("algorithm", type("Plugin", (Right,), {name: None})) == {}


def test_a_member_next_to_the_one_that_is_spelt_right_is_the_plugins_own():
    assert (
        misspelt(
            "algorithm", type("Plugin", (), {"measures": None, "measure": None, "role": None, "roles": {}})
        )
        == {}
    )


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.__name__)
def test_the_reference_page_lists_each_member_with_its_protocol(protocol):
    rows = re.findall(
        r"^\| `(?:async )?(\w+)[^`]*` \| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {member for member, name in rows if name == protocol.__name__} == members(protocol)
