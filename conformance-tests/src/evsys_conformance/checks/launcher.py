"""The contract of a launcher: a result for each arm, in their order, regardless of how it ended."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import breach, require, require_equal
from evsys_conformance.places import describe_error
from evsys_conformance.running import cancelled_within, run

__all__ = ["LauncherConformance"]

type Arm = dict[str, Any]


class LauncherConformance(PluginConformance):
    """Checks of the kind `launcher`. Override `arms` for configs that it can run in a second or so, `failing` and `lasting`
    for one that fails and one that runs for long.
    """

    kind: ClassVar[str | None] = "launcher"
    words: ClassVar[Mapping[str, str]] = {
        "arms": "configs of two or more different arms that it runs in a second or so",
        "failing": "the config of an arm that fails",
        "lasting": "the config of an arm that runs for longer than a second",
    }

    @pytest.fixture
    def arms(self, facts: Mapping[str, Any]) -> list[Arm]:
        """Configs of different arms that it runs in a second or so."""
        found: list[Arm] = _example(facts, "arms")
        return found

    @pytest.fixture
    def failing(self, facts: Mapping[str, Any]) -> Arm:
        """The config of an arm that fails."""
        found: Arm = _example(facts, "failing")
        return found

    @pytest.fixture
    def lasting(self, facts: Mapping[str, Any]) -> Arm:
        """The config of an arm that runs for longer than a second."""
        found: Arm = _example(facts, "lasting")
        return found

    @check()
    def test_gives_a_result_for_each_arm(self, plugin: Any, arms: list[Arm], home: Path) -> None:
        """Each arm has a result record that JSON can hold."""
        results = list(run(plugin.launch(copy.deepcopy(arms))))
        require_equal(len(results), len(arms), "the number of results isn't that of the arms")
        for result in results:
            require(
                isinstance(result, Mapping), "what it gives is not a result", seen=result, wanted="a mapping"
            )
            try:
                json.dumps(dict(result), allow_nan=False)
            except (TypeError, ValueError) as exc:
                breach(
                    f"a result can't be written as JSON: {exc}", seen=result, wanted="values that JSON has"
                )

    @check()
    def test_results_are_in_the_order_of_the_arms(self, plugin: Any, arms: list[Arm], home: Path) -> None:
        """The same arms in reverse order give the same results in reverse order. Only what distinguishes arms is compared."""

        async def both() -> tuple[list[Any], list[Any]]:
            forwards = list(await plugin.launch(copy.deepcopy(arms)))
            backwards = list(await plugin.launch(copy.deepcopy(arms[::-1])))
            return forwards, backwards[::-1]

        forwards, backwards = run(both())
        keys = _telling(forwards, backwards)
        if not keys:
            pytest.skip(
                "its results don't distinguish arms: no text is different for each, and the same each time"
            )
        for key in keys:
            require_equal(
                [result[key] for result in backwards],
                [result[key] for result in forwards],
                f"arms in reverse order don't have their results in reverse order: `{key}` of each",
            )

    @check()
    def test_arms_are_left_as_they_were(self, plugin: Any, arms: list[Arm], home: Path) -> None:
        """The configs belong to the experiment: nothing in them is changed."""
        before = copy.deepcopy(arms)
        run(plugin.launch(arms))
        require_equal(arms, before, "it changed the config of an arm")

    @check()
    def test_no_arms_have_no_results(self, plugin: Any, home: Path) -> None:
        """Without arms there is nothing to do, and no error."""
        try:
            results = list(run(plugin.launch([])))
        except Exception as exc:
            breach(f"without arms it fails: {describe_error(exc)}", wanted="no results")
        require_equal(results, [], "without arms there are results")

    @check()
    def test_a_failed_arm_is_a_result(self, plugin: Any, arms: list[Arm], failing: Arm, home: Path) -> None:
        """An arm that fails has a result that says so, and the others have theirs."""
        alone = list(run(plugin.launch(copy.deepcopy(arms))))
        try:
            results = list(run(plugin.launch(copy.deepcopy([arms[0], failing, *arms[1:]]))))
        except Exception as exc:
            breach(
                f"one arm fails, and so does it: {describe_error(exc)}",
                wanted="a result with status: failed",
            )
        require_equal(
            len(results), len(arms) + 1, "one arm fails, and the number of results isn't that of the arms"
        )
        require_equal(
            results[1].get("status"), "failed", "the result of an arm that fails doesn't say so in `status`"
        )
        others = [results[0], *results[2:]]
        require_equal(
            [result.get("status") for result in others],
            [result.get("status") for result in alone],
            "one arm fails, and the others end otherwise than without it",
        )

    @check()
    def test_cancels_within_a_second(self, plugin: Any, lasting: Arm, home: Path) -> None:
        """Cancelled while an arm runs, it ends as cancelled."""

        async def cancel() -> bool:
            launched = asyncio.create_task(plugin.launch([copy.deepcopy(lasting)]))
            await asyncio.wait([launched], timeout=0.05)
            if launched.done():
                pytest.skip("the arm ended before it could be cancelled")
            return await cancelled_within(launched, 1.0)

        require(
            run(cancel()),
            "cancelled while an arm ran, it continued for a second or hid it",
            wanted="CancelledError",
        )


def _example(facts: Mapping[str, Any], word: str) -> Any:
    found = facts.get(word) or pytest.skip(
        f"says no example: conformance = {{'{word}': ...}}, or the fixture `{word}`"
    )
    return copy.deepcopy(found)


def _telling(forwards: list[Any], backwards: list[Any]) -> list[str]:
    """Keys whose texts are different for each arm, and the same ones in both launches (unlike times and folders)."""
    results = [*forwards, *backwards]
    if len(forwards) < 2 or not all(isinstance(result, Mapping) for result in results):
        return []
    keys = [key for key in forwards[0] if all(isinstance(result.get(key), str) for result in results)]
    return [
        key
        for key in keys
        if len({result[key] for result in forwards}) == len(forwards)
        and sorted(result[key] for result in forwards) == sorted(result[key] for result in backwards)
    ]
