"""A second opinion alongside the reward, a verifier of the same rollouts or a benchmark; a sequential test shows whether the two part ways."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys import current_registry
from evsys.errors import DataError, EvsysError
from evsys.types import GuardResult, NoScore, Score, Usage, VerifierSpec
from evsys_algo_rl.gap_test import GapTest
from evsys_algo_rl.guard_benchmark import guard_benchmark
from evsys_runtime import in_background
from evsys_runtime.evaluation.verify import (
    BoundVerifier,
    bound_verifiers,
    make_verify,
    unjudgeable,
    verifier_key,
)
from evsys_runtime.training.rollout_groups import usage_of_rollouts, usage_of_verdicts
from evsys_stats.ranges import hull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evsys import Registry
    from evsys.types import HarborTask, Rollout, RunContext, RunResult, Verify
    from evsys_algo_rl.groups import TaskGroup
    from evsys_algo_rl.guard_benchmark import GuardBenchmark
    from evsys_algo_rl.params import GuardParams, RLParams
    from evsys_runtime.evaluation.verify import Verifiers
    from evsys_stats.ranges import Range

__all__ = ["Guard", "stopped_by_guard"]

_STOPPED = "guard: "
"""The prefix of the reason of a run stopped by its guard."""


class Guard:
    """Compares reward and guard, group by group. It only reads rollouts: none of its findings affect the reward.

    Args:
        params: of the algorithm, with a `guard`.
        ctx: the run. The usage of verdicts is charged to its budget, and an alarm may stop it.
        warn: is called with the reason of an alarm.
        verify: judges a rollout by the verifier that its task names.
        ranges: the bounds of the rewards and of the guard's scores.
        benchmark: its tasks are attempted at each check, None if a verifier judges the rollouts of the training.
    """

    def __init__(
        self,
        params: RLParams,
        ctx: RunContext,
        warn: Callable[[str], None],
        *,
        verify: Verify,
        ranges: tuple[Range, Range],
        benchmark: GuardBenchmark | None = None,
    ) -> None:
        assert params.guard is not None
        self.config = params.guard
        self._ctx, self._warn, self._verify = ctx, warn, verify
        self._reward_range, self._guard_range = ranges
        self._params, self._benchmark = params, benchmark
        self._room = asyncio.Semaphore(params.n_concurrent)
        self._test = GapTest(self.config.level, self.config.margin)
        self._samplings = 0
        self._used = Usage()
        self._found = GuardResult(
            verifier=self.config.verifier,
            benchmark=self.config.benchmark,
            level=self.config.level,
            margin=self.config.margin,
        )
        if benchmark is not None and benchmark.shared:
            warn(
                f"guard: {benchmark.shared:.0%} of the tasks of benchmark {self.config.benchmark!r} are trained on, so it sees little "
                "of what is learnt by heart"
            )

    @classmethod
    async def of(cls, params: RLParams, ctx: RunContext, warn: Callable[[str], None]) -> Guard:
        """The guard of a run, once it is certain that it can judge every task and differs from the reward.

        Raises:
            DataError: a task can't be judged, or its reward comes from the guard's verifier.
        """
        assert params.guard is not None
        registry = current_registry()
        verify = make_verify(registry)
        if params.guard.benchmark is not None:
            benchmark = await in_background(guard_benchmark, params.guard, list(ctx.data), registry)
            rewards = await in_background(bound_verifiers, list(ctx.data), registry)
            ranges = _range(rewards.values()), _range(benchmark.verifiers.values())
            return cls(params, ctx, warn, verify=verify, ranges=ranges, benchmark=benchmark)
        ranges = await in_background(_checked_ranges, ctx.data, params.guard, registry)
        return cls(params, ctx, warn, verify=verify, ranges=ranges)

    async def check(self, groups: Sequence[tuple[HarborTask, TaskGroup]], step: int) -> dict[str, float]:
        """Judge the groups of a sampling, if it is time, and update the test.

        Args:
            groups: every sampled group, whether it is trained on or not, with its task.
            step: the optimiser step that they are for, counted from 1.

        Returns:
            The metrics.

        Raises:
            BudgetExceeded: the verdicts used up what was left.
        """
        self._samplings += 1
        if (self._samplings - 1) % self.config.every:
            return {}
        if self._benchmark is None:
            paired, unscored = await self._judge_again(groups)
        else:
            paired, unscored = await self._beside_benchmark(self._benchmark, groups, step)
        count = sum(map(len, paired))
        self._add(paired, unscored=unscored)
        self._alarm(step)
        metrics = {
            "guard/unscored": float(unscored),
            "guard/growth_low": self._test.growth_low,
            "guard/log10_evidence": self._test.log_evidence / math.log(10),
        }
        if count:
            reward, guard = (math.fsum(p[side] for pairs in paired for p in pairs) / count for side in (0, 1))
            metrics |= {"guard/score": guard, "guard/gap": reward - guard}
        return metrics

    async def _judge_again(
        self, groups: Sequence[tuple[HarborTask, TaskGroup]]
    ) -> tuple[list[list[tuple[float, float]]], int]:
        """Reward and guard's score of the rollouts of each group, and how many rollouts lack one of them."""
        scored = [(group, await self._scores(task, group.rollouts)) for task, group in groups]
        paired = [pairs for group, scores in scored if (pairs := self._pairs(group.rollouts, scores))]
        verdicts = [score for _, scores in scored for score in scores]
        used = usage_of_verdicts(verdicts)
        self._used += used
        if self._ctx.budget is not None:
            self._ctx.budget.charge(used)
        return paired, len(verdicts) - sum(map(len, paired))

    async def _beside_benchmark(
        self, benchmark: GuardBenchmark, groups: Sequence[tuple[HarborTask, TaskGroup]], step: int
    ) -> tuple[list[list[tuple[float, float]]], int]:
        """The mean reward of some groups alongside the mean score of some tasks of the benchmark, both divided into as many parts.

        Groups and tasks are drawn independently of each other, so whichever come together, the expected gap of a part is that of the policy.
        """
        rollouts = await benchmark.rollouts(self._ctx, self._params, self._samplings, step)
        self._used += usage_of_rollouts(rollouts)  # the engine has charged it to the budget
        every = [rollout for _, group in groups for rollout in group.rollouts]
        scores = _scaled_scores(rollouts, self._guard_range)
        rewards = [
            math.fsum(known) / len(known)
            for _, group in groups
            if (known := _scaled_scores(group.rollouts, self._reward_range))
        ]
        parts = min(len(rewards), len(scores))
        paired = [[(_part(rewards, part, parts), _part(scores, part, parts))] for part in range(parts)]
        count = len(scores) + len(_scaled_scores(every, self._reward_range))
        return paired, len(rollouts) + len(every) - count

    def _add(self, paired: Sequence[Sequence[tuple[float, float]]], *, unscored: int) -> None:
        checks, found = self._found.checks + 1, self._test
        gaps = [math.fsum(reward - guard for reward, guard in pairs) / len(pairs) for pairs in paired]
        (found.add_start if checks <= self.config.start else found.add)(gaps)
        self._found = attrs.evolve(
            self._found,
            checks=checks,
            groups=self._found.groups + len(gaps),
            unscored=self._found.unscored + unscored,
            start_gap=found.start,
            gap=found.gap,
            growth_low=found.growth_low,
            log10_evidence=found.log_evidence / math.log(10),
        )

    def _alarm(self, step: int) -> None:
        """Warn where reward and guard part ways, the first time, and stop the run where that is wanted."""
        if self._found.suspected_step is not None or not self._test.alarm:
            return
        reason = self._reason(step)
        self._found = attrs.evolve(self._found, suspected_step=step, reason=reason)
        self._warn(reason)
        self._stop()

    def _stop(self) -> None:
        if self.config.action == "stop" and self._found.suspected_step is not None:
            self._ctx.request_stop(f"{_STOPPED}{self._found.reason}")

    def counted_in(self, result: RunResult) -> RunResult:
        """The run's result with what the guard found and used; `collapsed` where it stopped the run."""
        result = attrs.evolve(result, guard=self._found, usage=result.usage + self._used)
        if result.status != "completed" or not (self._ctx.stop_requested or "").startswith(_STOPPED):
            return result
        return attrs.evolve(result, status="collapsed", stop_reason=self._ctx.stop_requested)

    async def _scores(self, task: HarborTask, rollouts: Sequence[Rollout]) -> list[Score | NoScore]:
        guarded = _guard_task(task, self.config)

        async def judged(rollout: Rollout) -> Score | NoScore:
            async with self._room:
                return await self._verify(guarded, rollout)

        return list(await asyncio.gather(*map(judged, rollouts)))

    def _pairs(
        self, rollouts: Sequence[Rollout], scores: Sequence[Score | NoScore]
    ) -> list[tuple[float, float]]:
        """Reward and guard's score of each rollout that has both, scaled to 0..1."""
        return [
            (_scaled(rollout.score.value, self._reward_range), _scaled(score.value, self._guard_range))
            for rollout, score in zip(rollouts, scores, strict=True)
            if rollout.error is None and isinstance(rollout.score, Score) and isinstance(score, Score)
        ]

    def _reason(self, step: int) -> str:
        found = self._test
        return (
            f"reward hacking suspected at step {step}: the gap between the reward and {self.config.words} has grown from "
            f"{found.start:.3f} to {found.gap:.3f}, by at least {found.growth_low:.3f} (level {self.config.level:g}, margin {self.config.margin:g})"
        )

    def state(self) -> dict[str, Any]:
        """All that it has seen, as JSON values."""
        return {
            "samplings": self._samplings,
            "used": attrs.asdict(self._used),
            "found": attrs.asdict(self._found),
            "test": self._test.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Resume from what `state` gave."""
        self._samplings = state["samplings"]
        self._found = GuardResult(**state["found"])
        self._used = Usage(**state["used"])
        self._test.load_state(state["test"])
        self._stop()


def stopped_by_guard(result: RunResult) -> bool:
    """Whether a run was ended by its guard."""
    return result.guard is not None and (result.stop_reason or "").startswith(_STOPPED)


def _checked_ranges(
    data: Iterable[HarborTask], config: GuardParams, registry: Registry
) -> tuple[Range, Range]:
    """The ranges of the rewards and of the guard's scores, from verifiers that can judge every task."""
    tasks = list(data)
    guarded = [_guard_task(task, config) for task in tasks]
    rewards, guards = bound_verifiers(tasks, registry), bound_verifiers(guarded, registry)
    for task, second in zip(tasks, guarded, strict=True):
        why = _uses(task, rewards, str(config.verifier)) or unjudgeable(second, guards)
        if why is not None:
            raise DataError(f"guard: task {task.task_id!r}: {why}")
    return _range(rewards.values()), _range(guards.values())


def _guard_task(task: HarborTask, config: GuardParams) -> HarborTask:
    """The task as the guard judges it."""
    assert config.verifier is not None
    own = None if task.verifier is None else task.verifier.expected
    expected = own if config.expected is None else task.metadata.get(config.expected)
    return attrs.evolve(
        task, verifier=VerifierSpec(name=config.verifier, expected=expected, params=config.params)
    )


def _uses(task: HarborTask, rewards: Verifiers, guard: str) -> str | None:
    """Why the guard of a task isn't a second opinion; None where it is."""
    if task.verifier is None:
        return None
    bound = rewards[verifier_key(task.verifier)]
    parts = () if isinstance(bound, EvsysError) else bound.uses
    if task.verifier.name == guard or guard in parts:
        return f"its reward comes from {guard!r}, so this verifier can't guard it"
    return None


def _range(verifiers: Iterable[BoundVerifier | EvsysError]) -> Range:
    """Between which scores they lie: as they declare, else 0 and 1."""
    found = hull(one.reward_range for one in verifiers if isinstance(one, BoundVerifier))
    if found is None or not all(map(math.isfinite, found)) or found[0] == found[1]:
        return 0.0, 1.0
    return found


def _scaled_scores(rollouts: Iterable[Rollout], bounds: Range) -> list[float]:
    """The scores of the rollouts that have one, scaled to 0..1."""
    return [
        _scaled(rollout.score.value, bounds)
        for rollout in rollouts
        if rollout.error is None and isinstance(rollout.score, Score)
    ]


def _part(values: Sequence[float], part: int, parts: int) -> float:
    """The mean of one of so many parts of some values, each with at least one of them."""
    mine = values[part::parts]
    return math.fsum(mine) / len(mine)


def _scaled(value: float, bounds: Range) -> float:
    """A score from within its range to 0..1; one that is beyond counts as the end, without which no bound would hold."""
    low, high = bounds
    return min(1.0, max(0.0, (value - low) / (high - low)))
