"""What a metric keeps: a finite number of the rewards alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.types import Message, Rollout, Score, Turn, Usage
from evsys_conformance.checks.plugin import PROFILE, PluginConformance
from evsys_conformance.declare import check
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
        return max(4, int(getattr(plugin, "needs_samples", 1)))

    @pytest.fixture
    def compute(self, plugin: Any) -> Compute:
        """The metric of rewards; rollouts are made where it wants them."""
        return _computer(plugin)

    @check()
    def test_is_finite(self, compute: Compute, samples: int) -> None:
        """Any scored tasks have a finite value."""

        @PROFILE
        @given(_tasks(samples))
        def draw(tasks: dict[str, list[float]]) -> None:
            assert math.isfinite(compute(tasks)), f"of {tasks}"

        draw()

    @check()
    def test_order_of_tasks_does_not_matter(self, compute: Compute, samples: int) -> None:
        """Tasks in another order give the same."""

        @PROFILE
        @given(_tasks(samples, fewest=2))
        def draw(tasks: dict[str, list[float]]) -> None:
            backwards = dict(reversed(tasks.items()))
            assert math.isclose(compute(tasks), compute(backwards), rel_tol=1e-9, abs_tol=1e-12)

        draw()

    @check()
    def test_no_tasks_have_a_defined_value(self, compute: Compute) -> None:
        """Without tasks it gives a number, or NaN for "not available", and doesn't fail."""
        assert isinstance(compute({}), int | float)

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
            fewest = int(getattr(plugin, "needs_samples", 1))
        if fewest < 2:
            pytest.skip("one sample is enough for it")
        with pytest.raises(Exception):  # noqa: B017 - a metric may refuse in its own words
            _computer(plugin)({"t": [1.0] * (fewest - 1)})

    @check()
    def test_direction_is_max_or_min(self, plugin: Any) -> None:
        """The direction in which it is better is one of two words."""
        assert getattr(plugin, "direction", "max") in {"max", "min"}

    @check()
    def test_all_passed_is_at_least_as_good_as_all_failed(
        self, plugin: Any, compute: Compute, samples: int
    ) -> None:
        """In its direction, rewards of 1 are no worse than rewards of 0."""
        if not hasattr(plugin, "compute"):
            pytest.skip("looks at rollouts, not at rewards")
        passed, failed = ({"a": [value] * samples, "b": [value] * samples} for value in (1.0, 0.0))
        sign = -1 if getattr(plugin, "direction", "max") == "min" else 1
        assert sign * compute(passed) >= sign * compute(failed)


def _tasks(samples: int, fewest: int = 1) -> st.SearchStrategy[dict[str, list[float]]]:
    reward = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
    rewards = st.lists(reward, min_size=samples, max_size=samples + 2)
    return st.dictionaries(st.text(min_size=1, max_size=4), rewards, min_size=fewest, max_size=5)


def _computer(plugin: Any) -> Compute:
    if hasattr(plugin, "compute"):
        compute: Compute = plugin.compute
        return compute

    def of_rollouts(tasks: Rewards) -> float:
        rollouts = {
            task: [_rollout(task, i, reward) for i, reward in enumerate(rewards)]
            for task, rewards in tasks.items()
        }
        return float(plugin.compute_rollouts(rollouts))

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
