"""What a search keeps: the arms that it proposes are a function of what was tried, and of nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import breach, require, require_equal
from evsys_conformance.places import told_of

__all__ = ["SearchConformance"]

type Tried = Callable[[Any, float | None], dict[str, Any]]

_ROUNDS = 3


class SearchConformance(PluginConformance):
    """Checks of the kind `search`. Override `tried` for what its history says of an arm."""

    kind: ClassVar[str | None] = "search"

    @pytest.fixture
    def tried(self) -> Tried:
        """A function of an arm and its value (None for one that failed) that gives the record in the history."""

        def record(arm: Any, value: float | None) -> dict[str, Any]:
            status = "completed" if value is not None else "failed"
            return {"arm": dict(arm), "status": status, "value": value, "steps": 10}

        return record

    @check()
    def test_proposes_arms(self, plugin: Any, tried: Tried) -> None:
        """An arm is a mapping of dotted path to a value that JSON has; there is at least one to begin with."""
        arms, _ = _search(plugin, tried)
        require(
            arms, "without anything tried it proposes nothing", seen=arms, wanted="[{'run.seed': 1}, ...]"
        )
        for arm in arms:
            require(
                isinstance(arm, Mapping) and arm and all(isinstance(path, str) and path for path in arm),
                "what it proposes is no arm",
                seen=arm,
                wanted="{'run.algorithm.params.learning_rate': 0.001}: dotted path to value",
            )
            try:
                json.dumps(dict(arm), allow_nan=False)
            except (TypeError, ValueError) as exc:
                breach(f"an arm can't be written as JSON: {exc}", seen=arm, wanted="values that JSON has")

    @check()
    def test_same_history_same_arms(self, plugin: Any, make: Callable[[], Any], tried: Tried) -> None:
        """Asked again, or by another object made alike, the same history gives the same arms: so a search resumes."""
        _, history = _search(plugin, tried)
        first = _listed(make().ask(copy.deepcopy(history)))
        asked_before = make()
        asked_before.ask([])
        for when, search in (("an object that was asked before", asked_before), ("another object", make())):
            require_equal(
                _listed(search.ask(copy.deepcopy(history))),
                first,
                f"with the same history {when} proposes other arms",
            )

    @check()
    def test_history_is_left_as_it_was(self, plugin: Any, tried: Tried) -> None:
        """The history is the experiment's record: it is read, never changed."""
        _, history = _search(plugin, tried)
        before = copy.deepcopy(history)
        plugin.ask(history)
        require_equal(history, before, "it changed the history that it was given")

    @check()
    def test_failed_arms_are_results(self, plugin: Any, tried: Tried) -> None:
        """Arms that failed, or whose value isn't a number, are tried arms like others; the search goes on."""
        arms = _listed(plugin.ask([]))
        for value in (None, float("nan")):
            history = [tried(arm, value) for arm in arms]
            try:
                _listed(plugin.ask(history))
            except Exception as exc:
                breach(
                    f"with failed arms in its history it fails: {told_of(exc)}",
                    seen=history[:1],
                    wanted="the next arms; a failed arm is the worst one",
                )


def _search(search: Any, tried: Tried) -> tuple[list[Any], list[dict[str, Any]]]:
    """All arms of a few rounds, and what the history says of them."""
    arms: list[Any] = []
    history: list[dict[str, Any]] = []
    for _ in range(_ROUNDS):
        proposed = _listed(search.ask(copy.deepcopy(history)))
        history += [tried(arm, 0.5 + 0.01 * (len(history) + i)) for i, arm in enumerate(proposed)]
        arms += proposed
    return arms, history


def _listed(arms: Sequence[Any]) -> list[Any]:
    return [dict(arm) if isinstance(arm, Mapping) else arm for arm in arms]
