"""The contract of a search: its proposals depend only on the trials so far, and lie in the space."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from evsys.optional import SupportsKeep
from evsys.types import SearchAxis
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import breach, require, require_equal, short_text
from evsys_conformance.places import describe_error

__all__ = ["SearchConformance"]

type Space = tuple[SearchAxis, ...]

_ROUNDS = 6
_MOST_ROUNDS = 50


class SearchConformance(PluginConformance):
    """Checks of the kind `search`. Override `space` for one that searches other spaces only."""

    kind: ClassVar[str | None] = "search"

    @pytest.fixture
    def space(self) -> Space:
        """Axes of each sort, one of which applies to some arms only."""
        return (
            SearchAxis(path="algorithm.kind", choices=("sft", "rl")),
            SearchAxis(path="algorithm.params.learning_rate", low=1e-5, high=1e-2, log=True),
            SearchAxis(path="algorithm.params.batch_size", low=2, high=64, type="int"),
            SearchAxis(path="algorithm.params.kl_coef", low=0.0, high=0.5, when={"algorithm.kind": ("rl",)}),
        )

    @pytest.fixture
    def few(self) -> Space:
        """A space of four arms."""
        return (
            SearchAxis(path="algorithm.params.lora_rank", choices=(8, 32)),
            SearchAxis(path="seed", choices=(1, 2)),
        )

    @check()
    def test_proposes_arms(self, plugin: Any, space: Space) -> None:
        """An arm is a mapping of dotted path to a value that JSON has; there is at least one to begin with."""
        arms, _ = _search(plugin, space)
        require(
            arms,
            "without anything tried it proposes nothing",
            seen=arms,
            wanted="[{'algorithm.params.learning_rate': 0.001}, ...]",
        )
        for arm in arms:
            if problem := _no_arm(arm):
                breach(
                    problem,
                    seen=arm,
                    wanted="{'algorithm.params.learning_rate': 0.001}: an axis's path to a value that JSON has",
                )

    @check()
    def test_stays_in_the_space(self, plugin: Any, space: Space) -> None:
        """An arm has a value on each axis that applies to it, from its choices or its range, and no other."""
        arms, _ = _search(plugin, space)
        if any(map(_no_arm, arms)):
            pytest.skip("after test_proposes_arms: what it proposes is not an arm")
        for arm in arms:
            require(
                arm.keys() <= {axis.path for axis in space},
                "an arm has a value that the space has no axis for",
                seen=arm,
                wanted=f"paths from {', '.join(axis.path for axis in space)}",
            )
            for axis in space:
                _on(axis, arm)

    @check()
    def test_same_history_same_arms(self, plugin: Any, make: Callable[[], Any], space: Space) -> None:
        """Asked again, or by another object made alike, the same history gives the same arms: so a search resumes."""
        _, history = _search(plugin, space, rounds=2)
        first = _list_arms(make().ask(copy.deepcopy(history), space))
        asked_before = make()
        asked_before.ask([], space)
        for when, search in (("an object that was asked before", asked_before), ("another object", make())):
            require_equal(
                _list_arms(search.ask(copy.deepcopy(history), space)),
                first,
                f"with the same history {when} proposes other arms",
            )

    @check()
    def test_asks_for_no_arm_twice(self, plugin: Any, space: Space) -> None:
        """It doesn't propose a tried arm."""
        arms, _ = _search(plugin, space)
        for number, arm in enumerate(arms):
            require(
                arm not in arms[:number],
                "it proposes an arm that it has proposed before",
                seen=arm,
                wanted="another arm, or none where all were tried",
            )

    @check()
    def test_ends(self, plugin: Any, few: Space) -> None:
        """It proposes nothing once everything was tried."""
        arms, history = _search(plugin, few, rounds=_MOST_ROUNDS)
        require(
            not _list_arms(plugin.ask(history, few)),
            f"in a space of 4 arms it continues after {len(arms)}",
            seen=arms[-1:],
            wanted="[] when it is done",
        )

    @check()
    def test_history_is_left_as_it_was(self, plugin: Any, space: Space) -> None:
        """The history is the experiment's record: it is read, never changed."""
        _, history = _search(plugin, space, rounds=2)
        before = copy.deepcopy(history)
        plugin.ask(history, space)
        require_equal(history, before, "it changed the history that it was given")

    @check()
    def test_failed_arms_are_results(self, plugin: Any, space: Space) -> None:
        """Arms that failed, still run, or whose score isn't a number, are tried arms like others; the search continues."""
        arms = _list_arms(plugin.ask([], space))
        for status, score in (
            ("failed", None),
            ("completed", None),
            ("completed", math.nan),
            ("running", None),
        ):
            history = [_entry(n, arm, score, status) for n, arm in enumerate(arms)]
            try:
                _list_arms(plugin.ask(history, space))
            except Exception as exc:
                breach(
                    f"with arms in its history that have no score it fails: {describe_error(exc)}",
                    seen=history[:1],
                    wanted="the next arms; a failed arm is the worst one",
                )

    @check()
    def test_keeps_by_the_history_alone(self, plugin: Any, make: Callable[[], Any], space: Space) -> None:
        """If it stops arms: yes or no, the same for the same history, and asking changes nothing."""
        if not isinstance(plugin, SupportsKeep):
            pytest.skip("stops no arm")
        _, history = _search(plugin, space, rounds=3)
        for entry in history:
            for step, score in ((8, 0.1 * entry["n"]), (16, math.nan)):
                entry["scores"].append([step, score])
                before = copy.deepcopy(history)
                said = [one.keep(history, entry["n"], step, score) for one in (plugin, plugin, make())]
                require(
                    all(isinstance(one, bool) for one in said) and len(set(said)) == 1,
                    f"asked three times whether arm {entry['n']} goes on, it doesn't give one answer",
                    seen=said,
                    wanted="True or False, by what it is given alone",
                )
                require(
                    repr(history) == repr(before), "it changed the history that it was given", seen=history
                )


def _search(search: Any, space: Space, rounds: int = _ROUNDS) -> tuple[list[Any], list[dict[str, Any]]]:
    """All arms of a few rounds, and the history that they make."""
    arms: list[Any] = []
    history: list[dict[str, Any]] = []
    for _ in range(rounds):
        proposed = _list_arms(search.ask(copy.deepcopy(history), space))
        if not proposed:
            break
        history += [
            _entry(len(history) + i, arm, 0.5 + 0.01 * (len(history) + i)) for i, arm in enumerate(proposed)
        ]
        arms += proposed
    return arms, history


def _entry(n: int, arm: Any, score: float | None, status: str = "completed") -> dict[str, Any]:
    reason = None if score is not None else "it has no score"
    return {
        "n": n,
        "values": copy.deepcopy(arm),
        "status": status,
        "score": score,
        "steps": 32,
        "reason": reason,
        "scores": [],
    }


def _list_arms(arms: Sequence[Any]) -> list[Any]:
    return [dict(arm) if isinstance(arm, Mapping) else arm for arm in arms]


def _no_arm(arm: Any) -> str | None:
    """Why something is not an arm; None where it is one."""
    if not (isinstance(arm, Mapping) and arm and all(isinstance(path, str) and path for path in arm)):
        return "what it proposes is not an arm"
    try:
        json.dumps(dict(arm), allow_nan=False)
    except (TypeError, ValueError) as exc:
        return f"an arm can't be written as JSON: {exc}"
    return None


def _on(axis: SearchAxis, arm: Mapping[str, Any]) -> None:
    """Refuse an arm whose value of an axis isn't one."""
    if not axis.applies(arm):
        require(
            axis.path not in arm,
            f"an arm has a value of {axis.path}, which doesn't apply to it (when {short_text(axis.when)})",
            seen=arm,
            wanted="no value of it",
        )
        return
    require(
        axis.path in arm,
        f"an arm has no value of {axis.path}",
        seen=arm,
        wanted="one for each axis that applies",
    )
    value = arm[axis.path]
    if axis.choices:
        require(
            any(type(value) is type(one) and value == one for one in axis.choices),
            f"a value of {axis.path} is none of its choices",
            seen=value,
            wanted=short_text(axis.choices),
        )
        return
    kinds = (int,) if axis.type == "int" else (int, float)
    require(
        isinstance(value, kinds) and not isinstance(value, bool) and axis.low <= value <= axis.high,
        f"a value of {axis.path} isn't in its range",
        seen=value,
        wanted=f"{'an integer' if axis.type == 'int' else 'a number'} from {axis.low:g} to {axis.high:g}",
    )
