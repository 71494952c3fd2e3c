"""The requirements of the suite for each kind, as data: for documentation, and to look them up before a run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import pytest

from evsys_conformance.declare import OF_ALL

if TYPE_CHECKING:
    from evsys_conformance.checks.entry import EntryConformance

__all__ = [
    "KINDS",
    "CheckInfo",
    "FixtureInfo",
    "WordInfo",
    "checks_of",
    "class_of",
    "fixtures_of",
    "words_of",
]

_CLASSES = {
    "algorithm": "checks.algorithm:AlgorithmConformance",
    "backend": "checks.backend:BackendConformance",
    "loss": "checks.loss:LossConformance",
    "transform": "checks.transform:TransformConformance",
    "verifier": "checks.verifier:VerifierConformance",
    "metric": "checks.metric:MetricConformance",
    "data_store": "checks.data_store:DataStoreConformance",
    "log_store": "checks.log_store:LogStoreConformance",
    "inference_client": "checks.inference_client:InferenceClientConformance",
    "rollout_engine": "checks.rollout_engine:RolloutEngineConformance",
    "environment": "checks.environment:EnvironmentConformance",
    "agent": "checks.agent:AgentConformance",
    "renderer": "checks.renderer:RendererConformance",
    "callback": "checks.callback:CallbackConformance",
    "deployer": "checks.deployer:DeployerConformance",
    "search": "checks.search:SearchConformance",
    "launcher": "checks.launcher:LauncherConformance",
    "researcher": "checks.researcher:ResearcherConformance",
    "plugin": "checks.callback:AmbientConformance",
    "command": "checks.command:CommandConformance",
}

_FOR_SUBCLASSES = {"plugin", "params", "make"}
"""Of the fixtures that all classes have, those made to be overridden."""

KINDS = tuple(_CLASSES)
"""Every kind that has a conformance class."""


class CheckInfo(NamedTuple):
    """One check.

    `description` is its contract in one line, `since_protocol` the first protocol version whose plugins it measures,
    `capability` what a plugin must declare to be measured by it, or None where every plugin of the kind is.
    """

    name: str
    description: str
    since_protocol: int
    capability: str | None


class FixtureInfo(NamedTuple):
    """A fixture that a subclass may override: its name, and in one line what it gives."""

    name: str
    description: str


class WordInfo(NamedTuple):
    """A word that a plugin may say in its attribute `conformance`, and what it means."""

    name: str
    description: str


def class_of(kind: str) -> type[EntryConformance]:
    """The conformance class of a kind, to subclass.

    Raises:
        KeyError: there is no such kind.
    """
    module, _, name = _CLASSES[kind].partition(":")
    found: type[EntryConformance] = getattr(import_module(f"evsys_conformance.{module}"), name)
    return found


def checks_of(kind: str, *, inherited: bool = True) -> list[CheckInfo]:
    """The checks of a kind, in the order in which they are written.

    Args:
        kind: one of `KINDS`.
        inherited: also those that every plugin keeps, which come first; without them only the kind's own.

    Raises:
        KeyError: there is no such kind.
    """
    from evsys_conformance.declare import check_of, first_paragraph

    found: dict[str, CheckInfo] = {}
    for base in reversed(class_of(kind).__mro__):
        if not inherited and base.__module__ in OF_ALL:
            continue
        for name, value in vars(base).items():
            said = check_of(value)
            if said is not None:
                found[name] = CheckInfo(name, first_paragraph(value), said.since_protocol, said.needs)
    return list(found.values())


def fixtures_of(kind: str) -> list[FixtureInfo]:
    """The fixtures that a subclass of the kind's class may override, those of every plugin first.

    Raises:
        KeyError: there is no such kind.
    """
    from evsys_conformance.declare import first_paragraph

    found: dict[str, FixtureInfo] = {}
    for base in reversed(class_of(kind).__mro__):
        for name, value in vars(base).items():
            wanted = name in _FOR_SUBCLASSES if base.__module__ in OF_ALL else True
            if wanted and isinstance(value, type(_a_fixture)):
                found[name] = FixtureInfo(name, first_paragraph(value))
    return list(found.values())


def words_of(kind: str) -> list[WordInfo]:
    """The keys that a plugin of a kind may have in its attribute `conformance`, those of every plugin first.

    Raises:
        KeyError: there is no such kind.
    """
    from evsys_conformance.declare import words_of as words

    return [WordInfo(name, meaning) for name, meaning in words(class_of(kind)).items()]


@pytest.fixture
def _a_fixture() -> None:
    """Made only for its type, to which pytest gives no public name."""
