"""The list of checks, which documentation is made from."""

import inspect

import pytest

import evsys_conformance
from evsys.hookspecs import HOOKS
from evsys.protocols import KINDS, PROTOCOL_VERSIONS
from evsys_conformance import catalogue, suite
from evsys_conformance.checks.callback import arguments_of_all_hooks
from evsys_conformance.declare import check_of

each_kind = pytest.mark.parametrize("kind", KINDS)


def test_every_kind_has_a_class():
    assert list(catalogue.KINDS) == sorted(KINDS, key=list(catalogue.KINDS).index)


@each_kind
def test_a_class_is_public_and_the_suite_runs_it(kind):
    cls = catalogue.class_of(kind)
    assert cls.kind == kind
    assert getattr(evsys_conformance, cls.__name__) is cls
    assert cls.__name__ in evsys_conformance.__all__
    (run,) = [own for own in vars(suite).values() if inspect.isclass(own) and cls in own.__bases__]
    assert run.__name__.startswith("Test")


@each_kind
def test_every_kind_has_checks_of_its_own(kind):
    own = {check.name for check in catalogue.checks_of(kind, inherited=False)}
    assert own
    assert own < {check.name for check in catalogue.checks_of(kind)}


@each_kind
def test_every_test_method_is_a_check_with_a_contract_in_a_sentence(kind):
    for check in catalogue.checks_of(kind):
        assert check.description.endswith("."), check
        assert check.since_protocol in PROTOCOL_VERSIONS
    cls = catalogue.class_of(kind)
    for name in dir(cls):
        assert not name.startswith("test") or check_of(getattr(cls, name)) is not None, name


@each_kind
def test_what_may_be_overridden_and_said_has_its_meaning(kind):
    fixtures = catalogue.fixtures_of(kind)
    assert {"plugin", "params", "make"} <= {fixture.name for fixture in fixtures}
    assert all(fixture.description.endswith(".") for fixture in fixtures)
    words = catalogue.words_of(kind)
    assert {"params", "files", "service"} <= {word.name for word in words}
    assert all(word.description for word in words)


def test_checks_behind_a_capability_say_which():
    by_name = {check.name: check for check in catalogue.checks_of("backend")}
    assert by_name["test_restores_what_it_saved"].capability == "resume"
    assert by_name["test_loss_falls_on_the_toy_task"].capability is None


def test_a_kind_that_is_none_has_no_checks():
    with pytest.raises(KeyError):
        catalogue.checks_of("teleporter")


def test_listeners_are_told_of_every_hook_with_every_argument(tmp_path):
    told = arguments_of_all_hooks(tmp_path)
    wanted = {hook: set(inspect.signature(spec).parameters) for hook, spec in HOOKS.items()}
    assert {hook: set(arguments) for hook, arguments in told.items()} == wanted
