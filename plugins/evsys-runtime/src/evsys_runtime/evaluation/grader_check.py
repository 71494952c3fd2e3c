"""Grades the graders: before a model is asked, each benchmark is scored with answers made without one.

A grader is a verifier on the tasks of a benchmark that name it. One that gives full marks to any answer, or none to
the right answer, would make every number of the experiment worthless, so it is a fault.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import attrs

from evsys.errors import PLUGIN_FAILURES, EvsysError
from evsys.types import HarborTask, NoScore, Score, VerifierSpec, reaches
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.made_answers import (
    CONSTANT,
    Oracle,
    counterexample_of,
    echo_of,
    made_rollout,
    oracle_of,
)
from evsys_runtime.evaluation.metrics import BoundMetric
from evsys_runtime.evaluation.verify import (
    BoundVerifier,
    VerifierKey,
    bind_verifier,
    make_verify,
    verifier_key,
)

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.types import Verify

__all__ = ["MOST_TASKS", "SECONDS", "GraderCheck", "GraderFault", "VerifierCheck", "check_grader"]

MOST_TASKS = 32
"""Number of tasks of a benchmark to try, drawn by the seed, some of each verifier."""

SECONDS = 10.0
"""Longest time for one benchmark."""

MOST_LABELS = 12
"""Up to so many different right answers of a verifier's tasks, fewer than tasks, are taken for labels."""

Answer = Literal["oracle", "empty", "constant", "echo", "labels", "shuffled", "counterexample"]

WORTHLESS: tuple[Answer, ...] = ("empty", "constant", "echo")
WRONG: tuple[Answer, ...] = ("shuffled", "counterexample")
"""Answers that are wrong by more than their looks: the right one of another task, and what the verifier calls wrong."""

_NAMES: Mapping[Answer, str] = {
    "empty": "an empty answer",
    "constant": f"the answer {CONSTANT!r}",
    "echo": "the echoed prompt",
    "labels": "an answer that lists all labels",
}
_LONGEST_REASON = 200


@attrs.frozen(kw_only=True)
class GraderFault:
    """A grader that can't distinguish answers: which tasks show it, and what is wrong."""

    benchmark: str
    verifier: str
    tasks: tuple[str, ...]
    message: str


@attrs.frozen(kw_only=True)
class VerifierCheck:
    """How one verifier judged the answers.

    `judged` and `full_marks` count, for each kind of answer, the tasks where it got a score, and where it got the highest.
    """

    verifier: str
    tasks: int
    oracle: Literal["declared", "expected", "unknown"]
    judged: Mapping[str, int]
    full_marks: Mapping[str, int]


@attrs.frozen(kw_only=True)
class GraderCheck:
    """The check of one benchmark. `unchecked` says of how many of its tasks nothing is known, and why."""

    benchmark: str
    tasks: int
    checked: int
    seed: int
    seconds: float
    verifiers: tuple[VerifierCheck, ...] = ()
    unchecked: Mapping[str, int] = attrs.field(factory=dict)
    warnings: tuple[str, ...] = ()
    faults: tuple[GraderFault, ...] = ()


@attrs.define(kw_only=True, eq=False)
class _Tried:
    """One task: the answers made for it, and what its verifier said of each."""

    task: HarborTask
    spec: VerifierSpec
    lower_is_better: bool = False
    oracle: Oracle | None = None
    answers: dict[Answer, str] = attrs.field(factory=dict)
    said: dict[Answer, Score | NoScore] = attrs.field(factory=dict)

    def merit(self, answer: Answer) -> float | None:
        """The reward, negated if lower rewards are better, so that a higher merit always is; None without a score."""
        said = self.said.get(answer)
        if not isinstance(said, Score):
            return None
        return -said.value if self.lower_is_better else said.value

    def reason(self, answer: Answer) -> str:
        said = self.said[answer]
        return f"{said.value:g}" if isinstance(said, Score) else said.reason[:_LONGEST_REASON]


async def check_grader(
    benchmark: BoundBenchmark,
    registry: Registry,
    *,
    seed: int = 0,
    most_tasks: int = MOST_TASKS,
    seconds: float = SECONDS,
) -> GraderCheck:
    """Have a benchmark's verifiers judge answers made without a model. No model is called, and nothing raises for a fault.

    Args:
        benchmark: what is checked.
        registry: where its verifiers are looked up.
        seed: draws the tasks where there are more than `most_tasks`.
        most_tasks: how many tasks are tried.
        seconds: no task is begun after this time, and what is under way is left.
    """
    return await _Check(
        benchmark=benchmark, registry=registry, seed=seed, most_tasks=most_tasks, seconds=seconds
    ).run()


@attrs.define(kw_only=True, eq=False)
class _Check:
    benchmark: BoundBenchmark
    registry: Registry
    seed: int
    most_tasks: int
    seconds: float
    unchecked: dict[str, int] = attrs.field(factory=dict)
    warnings: list[str] = attrs.field(factory=list)
    bound: dict[VerifierKey, BoundVerifier] = attrs.field(factory=dict)
    untold: dict[tuple[str, str], list[str]] = attrs.field(factory=dict)
    lower_is_better: bool = False

    async def run(self) -> GraderCheck:
        started = time.monotonic()
        self.lower_is_better = any(map(_prefers_lower, self.benchmark.metrics))
        chosen = self._choose_tasks()
        ready = [tried for tried in chosen if await self._make_answers(tried, started)]
        for (name, why), tasks in self.untold.items():
            more = f" and {len(tasks) - 1} more" if len(tasks) > 1 else ""
            self.warnings.append(
                f"verifier {name!r} doesn't know the right answer for task {tasks[0]!r}{more} of {self.benchmark.name!r}: {why}"
            )
        _shuffle(ready)
        _list_labels(ready)
        verify = make_verify(self.registry, timeout_seconds=self.seconds)
        done: list[_Tried] = []
        for tried in ready:
            left = self._seconds_left(started)
            if left <= 0 or not await _judge(tried, verify, left):
                break
            done.append(tried)
        if len(done) < len(chosen):
            self._leave_out(f"out of time after {self.seconds:g} s", len(chosen) - len(done))
        if chosen and not done:
            names = ", ".join(dict.fromkeys(repr(tried.spec.name) for tried in chosen))
            self.warnings.append(
                f"nothing is known of the graders of {self.benchmark.name!r}: {names} judged no answer within "
                f"{self.seconds:g} s"
            )
        faults: list[GraderFault] = []
        checks = []
        for name in dict.fromkeys(tried.spec.name for tried in done):
            own = [tried for tried in done if tried.spec.name == name]
            high = self._highest(own)
            checks.append(_count_answers(name, own, high))
            faults += _faults(self.benchmark.name, name, own, high)
            self.warnings += _warnings(self.benchmark.name, name, own, high)
        return GraderCheck(
            benchmark=self.benchmark.name,
            tasks=len(self.benchmark.tasks),
            checked=len(done),
            seed=self.seed,
            seconds=time.monotonic() - started,
            verifiers=tuple(checks),
            unchecked=self.unchecked,
            warnings=tuple(dict.fromkeys(self.warnings)),
            faults=tuple(faults),
        )

    def _seconds_left(self, started: float) -> float:
        return self.seconds - (time.monotonic() - started)

    def _leave_out(self, why: str, count: int = 1) -> None:
        self.unchecked[why] = self.unchecked.get(why, 0) + count

    def _choose_tasks(self) -> list[_Tried]:
        """Tasks that can be tried: all, or as many as are allowed, drawn so that each verifier has its share."""
        groups: dict[str, list[_Tried]] = {}
        for task in self.benchmark.tasks:
            if task.verifier is None:
                self._leave_out("its folder brings its own tests")
            elif not self._verifier(task.verifier).is_free(self.registry):
                self._leave_out(f"verifier {task.verifier.name!r} costs money")
            else:
                groups.setdefault(task.verifier.name, []).append(
                    _Tried(task=task, spec=task.verifier, lower_is_better=self.lower_is_better)
                )
        total = sum(map(len, groups.values()))
        if total <= self.most_tasks:
            return [tried for group in groups.values() for tried in group]
        draw = random.Random(self.seed)
        for group in groups.values():
            draw.shuffle(group)
        rounds = (group[place] for place in range(total) for group in groups.values() if place < len(group))
        chosen = [tried for tried, _ in zip(rounds, range(self.most_tasks), strict=False)]
        self._leave_out(f"not among the {self.most_tasks} drawn", total - len(chosen))
        return chosen

    def _verifier(self, spec: VerifierSpec) -> BoundVerifier:
        key = verifier_key(spec)
        if key not in self.bound:
            self.bound[key] = bind_verifier(spec, self.registry)
        return self.bound[key]

    async def _make_answers(self, tried: _Tried, started: float) -> bool:
        """False where the verifier takes too long to show what is right."""
        tried.answers = {"empty": "", "constant": CONSTANT, "echo": echo_of(tried.task)}
        verifier, expected = self._verifier(tried.spec), tried.spec.expected
        deadline = asyncio.timeout(self._seconds_left(started))
        try:
            async with deadline:
                tried.oracle = await oracle_of(verifier, expected)
                wrong = await counterexample_of(verifier, expected)
        except PLUGIN_FAILURES as exc:
            if deadline.expired():
                return False
            said = (tried.spec.name, f"{type(exc).__name__}: {exc}")
            self.untold.setdefault(said, []).append(tried.task.task_id)
            return True
        if tried.oracle is not None:
            tried.answers["oracle"] = tried.oracle.text
        if wrong is not None:
            tried.answers["counterexample"] = wrong
        return True

    def _highest(self, tried: Sequence[_Tried]) -> float:
        """The merit that counts as full marks: what the verifiers declare, else the most that any answer got."""
        ranges = [self._verifier(one.spec).reward_range for one in tried]
        known = [
            -reward_range[0] if self.lower_is_better else reward_range[1]
            for reward_range in ranges
            if reward_range is not None
        ]
        if known and len(known) == len(ranges):
            return max(known)
        got = [merit for one in tried for answer in one.said if (merit := one.merit(answer)) is not None]
        return max([0.0 if self.lower_is_better else 1.0, *got])


def _prefers_lower(metric: BoundMetric) -> bool:
    """Whether a metric calls a task better if its rewards are lower, such as one with `direction = "min"` that averages errors."""
    samples = max(1, metric.needs_samples)
    try:
        low, high = (metric.task_value([reward] * samples) for reward in (0.0, 1.0))
    except EvsysError:  # it fails on these rewards; its scoring reports how it does on real ones
        return False
    if low is None or high is None or low == high:
        return False
    return (high < low) == (metric.direction == "max")


def _shuffle(chosen: Sequence[_Tried]) -> None:
    """Give each task the right answer of the next one whose answer is another, of one that contains its own if there is any: a
    grader that searches the text takes that for right.
    """
    known = [tried for tried in chosen if tried.oracle is not None]
    for place, tried in enumerate(known):
        following = (*known[place + 1 :], *known[:place])
        own = tried.answers["oracle"].strip().casefold()
        others = [
            text
            for other in following
            if other.spec.name == tried.spec.name
            and (text := other.answers["oracle"]).strip().casefold() != own
        ]
        containing = (text for text in others if own in text.casefold())
        other = next(containing, others[0] if others else None)
        if other is not None:
            tried.answers["shuffled"] = other


def _list_labels(chosen: Sequence[_Tried]) -> None:
    """Give each task whose right answer is one of a few labels an answer that lists them all: a grader that searches the text for
    one of them takes that for right on every task.
    """
    for name in {tried.spec.name for tried in chosen}:
        known = [tried for tried in chosen if tried.spec.name == name and tried.oracle is not None]
        labels = dict.fromkeys(tried.answers["oracle"].strip() for tried in known)
        if 1 < len(labels) <= MOST_LABELS and len(labels) < len(known):
            for tried in known:
                tried.answers["labels"] = ", ".join(labels)


async def _judge(tried: _Tried, verify: Verify, seconds: float) -> bool:
    """Have every answer of a task judged; False where that takes too long."""
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            for name, text in tried.answers.items():
                tried.said[name] = await verify(tried.task, made_rollout(tried.task, text))
            await asyncio.sleep(0)  # plain verifiers never give the loop a turn
    except TimeoutError:
        return False
    return not deadline.expired()  # `verify` makes a missing score even of being cancelled


def _full(tried: _Tried, answer: Answer, high: float) -> bool:
    merit = tried.merit(answer)
    return merit is not None and reaches(merit, high)


def _count_answers(name: str, tried: Sequence[_Tried], high: float) -> VerifierCheck:
    answers: tuple[Answer, ...] = ("oracle", *WORTHLESS, "labels", *WRONG)
    known = [
        one for one in tried if one.oracle is not None and (one.oracle.declared or _full(one, "oracle", high))
    ]
    declared = any(one.oracle is not None and one.oracle.declared for one in known)
    return VerifierCheck(
        verifier=name,
        tasks=len(tried),
        oracle="declared" if declared else "expected" if known else "unknown",
        judged={answer: sum(one.merit(answer) is not None for one in tried) for answer in answers},
        full_marks={answer: sum(_full(one, answer, high) for one in tried) for answer in answers},
    )


def _faults(benchmark: str, name: str, tried: Sequence[_Tried], high: float) -> Iterator[GraderFault]:
    """Tasks on which everything passes, and tasks on which the right answer doesn't."""

    def fault(tasks: Sequence[_Tried], what: str) -> GraderFault:
        ids = tuple(one.task.task_id for one in tasks)
        shown = f"task {ids[0]!r}{f' and {len(ids) - 1} more' if len(ids) > 1 else ''}"
        return GraderFault(
            benchmark=benchmark, verifier=name, tasks=ids, message=f"benchmark {benchmark!r}, {shown}: {what}"
        )

    blind = _blind(tried, high)
    if blind:
        yield fault(
            blind,
            f"verifier {name!r} gives full marks to every answer, an empty one and the echoed prompt too",
        )
    failing = [one for one in tried if one.oracle and one.oracle.declared and not _full(one, "oracle", high)]
    if failing:
        first = failing[0]
        yield fault(
            failing,
            f"verifier {name!r} gives the right answer {first.answers['oracle'][:80]!r} no full marks: "
            f"{first.reason('oracle')}",
        )


def _blind(tried: Sequence[_Tried], high: float) -> list[_Tried]:
    """The tasks on which everything passes. If no answer is known to be wrong, that counts only if it is so on every task."""
    passing = [one for one in tried if _passes_everything(one, high)]
    sure = [one for one in passing if any(answer in one.answers for answer in WRONG)]
    return passing if len(passing) == len(tried) else sure


def _passes_everything(tried: _Tried, high: float) -> bool:
    given: list[Answer] = [answer for answer in (*WORTHLESS, *WRONG) if answer in tried.answers]
    return all(_full(tried, answer, high) for answer in given)


def _warnings(benchmark: str, name: str, tried: Sequence[_Tried], high: float) -> Iterator[str]:
    """Warnings about odd results that may be intended."""
    yield from _passed_without_model(benchmark, name, tried, high)
    yield from _failed_oracles(benchmark, name, tried, high)
    yield from _same_verdict(benchmark, name, tried, high)


def _passed_without_model(benchmark: str, name: str, tried: Sequence[_Tried], high: float) -> Iterator[str]:
    where = f"of {benchmark!r}"
    blind = _blind(tried, high)
    for answer in _NAMES:
        passed = [one for one in tried if one not in blind and _full(one, answer, high)]
        if passed:
            yield (
                f"{_NAMES[answer]} gets full marks from {name!r} on {len(passed)} of {len(tried)} checked tasks "
                f"{where}, first {passed[0].task.task_id!r}"
            )
    confused = [one for one in tried if one not in blind and _full(one, "shuffled", high)]
    if confused:
        first = confused[0]
        yield (
            f"the right answer of another task gets full marks from {name!r} on {len(confused)} of {len(tried)} checked tasks "
            f"{where}, first {first.task.task_id!r} ({first.answers['shuffled'][:80]!r}): a model that always gives one answer may pass"
        )


def _failed_oracles(benchmark: str, name: str, tried: Sequence[_Tried], high: float) -> Iterator[str]:
    """Warns that the expected answer, given as a text, fails on some tasks; if it fails on all, it isn't meant as an answer."""
    tried_as_text = [one for one in tried if one.oracle is not None and not one.oracle.declared]
    failed = [one for one in tried_as_text if not _full(one, "oracle", high)]
    if failed and len(failed) < len(tried_as_text):
        yield (
            f"what is expected gets no full marks from {name!r} as an answer on {len(failed)} of {len(tried_as_text)} "
            f"checked tasks of {benchmark!r}, first {failed[0].task.task_id!r} ({failed[0].reason('oracle')})"
        )


def _same_verdict(benchmark: str, name: str, tried: Sequence[_Tried], high: float) -> Iterator[str]:
    """Warns that all answers are judged alike, or none is."""
    where = f"of {benchmark!r}"
    given = {merit for one in tried for answer in one.said if (merit := one.merit(answer)) is not None}
    if len(given) == 1 and max(given) < high and not any(one.oracle and one.oracle.declared for one in tried):
        yield (
            f"{name!r} gives {tried[0].reason(next(iter(tried[0].said)))} to every answer that was made without a model, on {len(tried)} checked tasks "
            f"{where}, first {tried[0].task.task_id!r}: none of those shows that an answer can pass"
        )
    if all(isinstance(said, NoScore) for one in tried for said in one.said.values()):
        first = tried[0]
        yield (
            f"{name!r} judged no answer that was made without a model {where}; of task {first.task.task_id!r} it says: "
            f"{first.reason('empty')}"
        )
