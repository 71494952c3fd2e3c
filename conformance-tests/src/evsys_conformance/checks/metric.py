"""The contract of a metric: a finite number that depends on the rewards alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from evsys.optional import declared
from evsys.types import Message, Rollout, Score, Turn, Usage
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.dialect import LETTERS
from evsys_conformance.drawing import for_each
from evsys_conformance.findings import as_number, breach, require, short_text
from evsys_conformance.places import describe_error
from evsys_conformance.subject import Subject

__all__ = ["MetricConformance"]

type Rewards = Mapping[str, Sequence[float]]
type Compute = Callable[[Rewards], float]


class MetricConformance(PluginConformance):
    """Checks of the kind `metric`, of rewards or of whole rollouts."""

    kind: ClassVar[str | None] = "metric"

    @pytest.fixture
    def samples(self, plugin: Any) -> int:
        """Enough samples of each task."""
        return max(4, int(declared(plugin, "needs_samples", 1)))

    @pytest.fixture
    def compute(self, plugin: Any) -> Compute:
        """The metric of rewards; rollouts are made where it wants them."""
        return _computer(plugin)

    @pytest.fixture
    def measure(self, compute: Compute) -> Compute:
        """The metric; skips what can't be seen of one that gives something else than numbers."""

        def measure(tasks: Rewards) -> float:
            said = compute(tasks)
            if as_number(said) is None:
                pytest.skip("after test_is_finite: it gives no number")
            return said

        return measure

    @check()
    def test_is_finite(self, compute: Compute, samples: int) -> None:
        """Any scored tasks have a finite value."""

        def measured(tasks: dict[str, list[float]]) -> None:
            said = compute(tasks)
            value = as_number(said)
            require(
                value is not None and math.isfinite(value),
                f"of {short_text(tasks)} it is not a finite number",
                seen=said,
                wanted="a finite number for tasks that all have rewards",
            )

        for_each(_tasks(samples), measured, of=("tasks", samples, 1))

    @check()
    def test_order_of_tasks_does_not_matter(self, measure: Compute, samples: int) -> None:
        """Tasks in another order give the same."""

        def measured(tasks: dict[str, list[float]]) -> None:
            forwards, backwards = measure(tasks), measure(dict(reversed(tasks.items())))
            same = forwards == backwards or math.isclose(forwards, backwards, rel_tol=1e-9, abs_tol=1e-12)
            require(
                same or (math.isnan(forwards) and math.isnan(backwards)),
                f"of the same tasks in reverse order it is another number; the tasks: {short_text(tasks)}",
                seen=backwards,
                wanted=f"{forwards}, as in the first order",
            )

        for_each(_tasks(samples, fewest=2), measured, of=("tasks", samples, 2))

    @check()
    def test_no_tasks_have_a_defined_value(self, compute: Compute, measure: Compute, samples: int) -> None:
        """Without tasks it gives a number, or NaN for "not available", and doesn't fail."""
        try:
            said = compute({})
        except Exception as exc:
            breach(f"without tasks it fails: {describe_error(exc)}", wanted="a number, or math.nan")
        if as_number(said) is None:
            measure({"t": [1.0] * samples})
            breach("without tasks it is not a number", seen=said, wanted="math.nan")

    @check()
    def test_more_than_the_samples_is_refused(
        self, subject: Subject, params: Mapping[str, Any], plugin: Any
    ) -> None:
        """A metric of k samples refuses a task that has fewer."""
        properties = subject.schema.get("properties", {}) if subject.config is not None else {}
        if "k" in properties and subject.entry is not None:
            plugin = subject.build({**params, "k": 3})
            fewest = 3
        else:
            fewest = int(declared(plugin, "needs_samples", 1))
        if fewest < 2:
            pytest.skip("one sample is enough for it")
        try:
            said = _computer(plugin)({"t": [1.0] * (fewest - 1)})
        except Exception:
            return
        breach(
            f"it needs {fewest} samples a task, and takes a task that has {fewest - 1}",
            seen=said,
            wanted="a ValueError",
        )

    @check(calls=False)
    def test_direction_is_max_or_min(self, plugin: Any) -> None:
        """The direction in which it is better is one of two words."""
        said = declared(plugin, "direction", "max")
        require(
            said in {"max", "min"},
            "its `direction` is neither max nor min",
            seen=said,
            wanted="'max' or 'min'",
        )

    @check(calls=False)
    def test_a_metric_of_rollouts_says_its_direction(self, plugin: Any) -> None:
        """Of tokens, seconds or money less is better as a rule, and what isn't declared counts as `max`."""
        if hasattr(plugin, "compute"):
            pytest.skip("looks at rewards, of which more is better unless it says otherwise")
        require(
            declared(plugin, "direction") is not None,
            "it looks at rollouts, and doesn't say in which direction it is better",
            wanted="direction = 'min' where less is better, else direction = 'max'",
        )

    @check()
    def test_stays_in_its_value_range(self, plugin: Any, measure: Compute, samples: int) -> None:
        """If it declares a `value_range`, no tasks have a value outside; "rewards" is the range of those."""
        bounds = declared(plugin, "value_range")
        if bounds is None:
            pytest.skip("declares no value_range")
        try:
            low, high = (0.0, 1.0) if bounds == "rewards" else map(float, bounds)
        except (TypeError, ValueError):
            low, high = math.nan, math.nan
        require(
            low <= high,
            "its value_range is not a range",
            seen=bounds,
            wanted="(lowest, highest), or 'rewards'",
        )

        def measured(tasks: dict[str, list[float]]) -> None:
            value = measure(tasks)
            require(
                not (value < low - 1e-9 or value > high + 1e-9),
                f"of {short_text(tasks)} it leaves its value_range",
                seen=value,
                wanted=f"from {low} to {high}, or another value_range",
            )

        for_each(_tasks(samples), measured, of=("tasks", samples, 1))

    @check()
    def test_all_passed_is_at_least_as_good_as_all_failed(
        self, plugin: Any, measure: Compute, samples: int
    ) -> None:
        """In its direction, rewards of 1 are at least as good as rewards of 0."""
        if not hasattr(plugin, "compute"):
            pytest.skip("looks at rollouts, not at rewards")
        passed, failed = (measure({"a": [value] * samples, "b": [value] * samples}) for value in (1.0, 0.0))
        down = declared(plugin, "direction", "max") == "min"
        require(
            passed <= failed if down else passed >= failed,
            f"it says that all failed is better than all passed: {failed} for all failed, and for all passed",
            seen=passed,
            wanted=f"{'at most' if down else 'at least'} {failed}, or the other `direction`",
        )


def _tasks(samples: int, fewest: int = 1) -> st.SearchStrategy[dict[str, list[float]]]:
    reward = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
    rewards = st.lists(reward, min_size=samples, max_size=samples + 2)
    return st.dictionaries(st.text(LETTERS, min_size=1, max_size=4), rewards, min_size=fewest, max_size=5)


def _computer(plugin: Any) -> Compute:
    if hasattr(plugin, "compute"):
        return lambda tasks: plugin.compute([list(rewards) for rewards in tasks.values()])

    def of_rollouts(tasks: Rewards) -> float:
        rollouts = {
            task: [_rollout(task, i, reward) for i, reward in enumerate(rewards)]
            for task, rewards in tasks.items()
        }
        said: float = plugin.compute_rollouts(rollouts)
        return said

    return of_rollouts


def _rollout(task: str, index: int, reward: float) -> Rollout:
    answer = Message(role="assistant", content=f"answer {index}")
    return Rollout(
        task_id=task,
        sample_index=index,
        messages=(Message(role="user", content=task), answer),
        turns=(Turn(message=answer, prompt_tokens=[1, 2], tokens=[3], logprobs=[-0.5]),),
        output=answer.content,
        score=Score(value=reward),
        usage=Usage(prompt_tokens=2, completion_tokens=1 + index, seconds=0.5 + reward, cost_usd=0.01),
    )
