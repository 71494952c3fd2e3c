"""`evsys next`: what is cheapest to learn next: winners to confirm, questions to settle, runs to finish, neighbours to try."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from evsys.errors import StoreError
from evsys.types import Comparison, Settling
from evsys_record import PastExperiment
from evsys_record.history import runs_of
from evsys_record.index import Index
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.experiment.insight.arm_index import ArmsOnRecord
from evsys_runtime.experiment.insight.coming_look import coming_level, settling_at_next_look
from evsys_runtime.experiment.insight.costs import TypicalRun, per, rank
from evsys_runtime.experiment.insight.failures import BAD, failure_classes
from evsys_runtime.experiment.insight.findings import Wording, findings, winners_of
from evsys_runtime.experiment.insight.follow_up_config import Resolved
from evsys_runtime.experiment.insight.known_experiments import Known
from evsys_runtime.experiment.insight.levers import levers
from evsys_runtime.experiment.insight.open_questions import unanswered_hypotheses
from evsys_runtime.experiment.insight.raised_limits import resume_command
from evsys_runtime.experiment.insight.results import Finding, Next, NextStep
from evsys_runtime.experiment.insight.untried_values import TriedArm, untried_neighbours

__all__ = ["WORTH", "next_steps"]

WORTH: Mapping[str, float] = {
    "confirm": 1.0,
    "settle": 0.8,
    "resume": 0.8,
    "hypothesis": 0.8,
    "lever": 0.5,
    "neighbour": 0.3,
}
"""Expected information of each kind of step, in bits: whether a chosen winner holds is open, whereas a change
nearby is seldom better.
"""

MOST_WINNERS = 10
"""Winners whose neighbours are looked at, the surest first."""

type Numbers = frozenset[int]

_RUN_FILE = "evsys next --config {place} > next-{place}.yaml && evsys run next-{place}.yaml"
"""How the file of a step is written and run, by the step's place in the list."""

_GO_ON = frozenset({"crashed", "cancelled", "budget_stopped"})


def next_steps(index: Index, *, limit: int | None = None) -> Next:
    """The possible next steps, the cheapest per expected information first.

    Args:
        index: of the experiments on record, as of now.
        limit: the most to list; None lists all.
    """
    planner = _Planner.from_index(index)
    steps = [
        *planner.to_finish(),
        *planner.to_confirm(),
        *planner.to_settle(),
        *planner.to_test(),
        *planner.to_vary(),
        *planner.to_try(),
    ]
    steps.sort(key=rank)
    listed = [planner.complete(step, place) for place, step in enumerate(steps[:limit], start=1)]
    return Next(total=len(steps), steps=tuple(listed))


@attrs.frozen(kw_only=True, eq=False)
class _Planner:
    index: Index
    known: Known
    by_id: Mapping[str, PastExperiment]
    candidates: Sequence[Wording[Finding]]
    supported: Sequence[Wording[Finding]]
    refuted: Sequence[Wording[Finding]]
    open: Sequence[Wording[Finding]]
    undecided: Mapping[str, Sequence[Comparison]]
    on_record: ArmsOnRecord

    @classmethod
    def from_index(cls, index: Index) -> _Planner:
        """From what is on record."""
        on_record = ArmsOnRecord.from_index(index)
        known = Known.of(index, on_record)
        found = findings(known, usual=None)
        return cls(
            index=index,
            known=known,
            by_id={past.experiment_id: past for past in known.experiments},
            candidates=found.candidates,
            supported=found.supported,
            refuted=found.refuted,
            open=found.open,
            undecided=found.undecided,
            on_record=on_record,
        )

    def complete(self, step: NextStep, place: int) -> NextStep:
        """With its command by its place in the list, its information per cost, the marks of its experiment, and the
        selected checkpoint of its arm by the first run that has one.
        """
        past = self.by_id[step.experiment]
        step = attrs.evolve(
            step,
            subject=past.subject,
            marks=past.marks,
            bits_per_usd=per(step.worth, step.cost_usd, 1.0),
            bits_per_hour=per(step.worth, step.seconds, 3600.0),
            command=step.command and step.command.format(place=place),
        )
        runs = () if step.arm is None else runs_of(self.index, step.experiment)
        for run in runs:
            if run.arm == step.arm and run.selected_checkpoint is not None and run.reused_from is None:
                return attrs.evolve(step, checkpoint=f"runs/{run.folder}/{run.selected_checkpoint}")
        return step

    def to_finish(self) -> Iterator[NextStep]:
        """Experiments that ended before they were through."""
        for past in self.known.experiments:
            left = past.runs - past.runs_completed
            if past.retracted is None and _is_unfinished(past):
                yield NextStep(
                    kind="resume",
                    experiment=past.experiment_id,
                    arm=None,
                    learns=f"what it was begun for: {past.hypothesis or past.name or 'no output'}",
                    needs=f"{left} of its {past.runs} runs (it is {past.status})",
                    worth=WORTH["resume"],
                    runs=left,
                    command=self._resume(past),
                    **self._run(past).times(left),
                )

    def _resume(self, past: PastExperiment) -> str:
        directory = self.index.experiments / past.experiment_id
        return resume_command(directory, past, runs_of(self.index, past.experiment_id))

    def to_test(self) -> Iterator[NextStep]:
        """Hypotheses that nothing on record answers, since what was to test them failed."""
        for each in unanswered_hypotheses(self.known.experiments, partial(runs_of, self.index)):
            past = each.past
            yield NextStep(
                kind="hypothesis",
                experiment=past.experiment_id,
                arm=None,
                learns=f"whether it holds: {past.hypothesis}",
                needs=f"{_runs(each.runs, 'again')}, which may pass now: {each.why}"
                if each.runs
                else f"another try without what stopped it: {each.why}",
                worth=WORTH["hypothesis"],
                runs=each.runs,
                command=self._resume(past) if each.passing else None,
                **self._run(past).times(each.runs or past.runs),
            )

    def to_vary(self) -> Iterator[NextStep]:
        """Levers of the best recipe that nothing on record has moved; of the best refuted one where none is better."""
        better = [*self.supported, *self.candidates, *self.open]
        for past, arm in list(self._name_arms(self.supported or ([] if better else self.refuted)))[:1]:
            numbers = self.known.configs.get((past.experiment_id, arm))
            resolved = self._load_resolved(past)
            if numbers is None or resolved is None or arm not in resolved.runs:
                continue
            others = [
                self.on_record.config(other)
                for (folder, _), other in self.known.configs.items()
                if folder in self.by_id and self.by_id[folder].metric == past.metric and other != numbers
            ]
            rows = next((run.rows for run in runs_of(self.index, past.experiment_id) if run.arm == arm), None)
            for lever in levers(resolved.runs[arm], self.on_record.config(numbers), others, rows):
                step = NextStep(
                    kind="lever",
                    experiment=past.experiment_id,
                    arm=arm,
                    learns=lever.learns,
                    needs=lever.needs,
                    worth=WORTH["lever"],
                    **self._run(past).times(2),
                )
                if lever.values:
                    needs = f"{_runs(1, f'of {arm} with {lever.needs}')}, and one of it as it was"
                    step = attrs.evolve(step, needs=needs, runs=2)
                    step = self._with_file(past, step, repeats=1, values=lever.values, name=lever.arm)
                yield step

    def to_confirm(self) -> Iterator[NextStep]:
        """Winners chosen among several."""
        for past, arm in self._name_arms(self.candidates):
            best = winners_of(past)[0]
            if _left_open(past):
                continue  # it was tried; more of the same is what settles it
            if best is past.confirmed and _is_unfinished(past):
                continue  # it is being tried, and continues with a resume
            repeats = max(1, best.n_seeds)
            sides = 1 if past.baseline in (None, BASE_MODEL) else 2
            yield self._with_file(
                past,
                NextStep(
                    kind="confirm",
                    experiment=past.experiment_id,
                    arm=arm,
                    learns=f"whether {arm} beats {past.baseline or BASE_MODEL} when it isn't chosen among {len(past.comparisons)}",
                    needs=_runs(repeats * sides, "with fresh seeds"),
                    worth=WORTH["confirm"],
                    runs=repeats * sides,
                    **self._run(past).times(repeats * sides),
                ),
                repeats=repeats,
            )

    def to_settle(self) -> Iterator[NextStep]:
        """Questions whose answer more tasks, or more runs, would show."""
        tried = [each for each in self._name_arms(self.candidates) if _left_open(each[0])]
        seen: set[object] = set()
        for past, best in [*self._name_arms(self.open), *tried]:
            settling = past.settling
            if settling is not None and self._is_decided(past, settling.arm):
                settling = None
            arm = best if settling is None else settling.arm
            question = self.known.arm_question(past, arm)
            if question not in seen:  # else it was asked again since, alongside other arms
                seen.add(question)
                yield self._settling_step(past, arm, settling)

    def _settling_step(self, past: PastExperiment, arm: str, settling: Settling | None) -> NextStep:
        """The step that settles whether an arm differs; `settling` has its cost, None if unknown."""
        again = past.confirmed
        if again is not None and again.arm == arm and again.outcome == "inconclusive":
            asked = again
        else:
            asked = next(each for each in past.comparisons if each.arm == arm)
        if settling is not None:
            settling = settling_at_next_look(settling, past)
        step = NextStep(
            kind="settle",
            experiment=past.experiment_id,
            arm=arm,
            learns=f"whether {arm} differs from {past.baseline or BASE_MODEL}: {_observed_effect(asked)}",
            needs=_settling_text(past, settling, asked),
            worth=WORTH["settle"],
            curve=() if settling is not None or self._is_decided(past, arm) else past.settling_curve,
        )
        if settling is None:
            return step
        tasks, repeats = settling.tasks, settling.runs or max(1, asked.n_seeds)
        runs = repeats * (1 if past.baseline in (None, BASE_MODEL) else 2)
        larger = tasks / asked.n_tasks if tasks and asked.n_tasks else 1.0
        step = attrs.evolve(step, runs=runs, **self._run(past).times(runs * max(1.0, larger)))
        step = self._with_file(past, step, repeats=repeats, limit=tasks)
        return step if tasks is None else _with_tasks(step, past)

    def _is_decided(self, past: PastExperiment, arm: str) -> bool:
        """Whether a later experiment decided an arm that an inconclusive one left open."""
        left = self.undecided.get(past.experiment_id)
        return left is not None and arm not in {each.arm for each in left}

    def to_try(self) -> Iterator[NextStep]:
        """Values next to those of a winner that no one tried."""
        regions = [
            each.region
            for each in failure_classes(self.index, self.on_record)
            if each.region is not None and each.region.known_bad
        ]
        failed = self._failed_configs()
        offered: set[object] = set()
        for past, arm in list(self._name_arms([*self.supported, *self.candidates]))[:MOST_WINNERS]:
            numbers = self.known.configs.get((past.experiment_id, arm))
            if numbers is None:
                continue
            own = self.on_record.config(numbers)
            beside = {
                config for (folder, _), config in self.known.configs.items() if folder == past.experiment_id
            }
            tried = [
                TriedArm(config=self.on_record.config(other), failed=other in failed, beside=other in beside)
                for other in dict.fromkeys(self.known.configs.values())
                if len(other) == len(numbers) and (len(other - numbers) == 1 or other in beside)
            ]
            for near in untried_neighbours(own, tried, regions):
                changed = frozenset({**own, near.path: f"{near.value:g}"}.items())
                if changed in offered:  # next to a winner of another experiment as well
                    continue
                offered.add(changed)
                yield self._with_file(
                    past,
                    NextStep(
                        kind="neighbour",
                        experiment=past.experiment_id,
                        arm=arm,
                        learns=f"whether {near.path} of {near.value:g} is better than {own[near.path]}: {near.why}",
                        needs=f"{_runs(1, f'of {arm} with {near.path} = {near.value:g}')}, and one of it as it was",
                        worth=WORTH["neighbour"],
                        runs=2,
                        **self._run(past).times(2),
                    ),
                    repeats=1,
                    values={near.path: near.value},
                )

    def _failed_configs(self) -> set[Numbers]:
        """The configs with which runs ended badly and none completed."""
        query = (
            "SELECT r.experiment, r.arm, MAX(r.state = 'completed' AND NOT r.diverged), "  # noqa: S608
            f"MAX(r.diverged OR r.state IN ({', '.join('?' * len(BAD))})) FROM run r "
            "JOIN experiment e ON e.id = r.experiment WHERE NOT e.dry GROUP BY r.experiment, r.arm"
        )
        configs = {(experiment, arm): numbers for experiment, arm, numbers in self.on_record.arms}
        well: set[Numbers] = set()
        badly: set[Numbers] = set()
        for experiment, arm, completed, bad in self.index.rows(query, BAD):
            numbers = configs.get((experiment, arm))
            if numbers is not None and (completed or bad):
                (well if completed else badly).add(numbers)
        return badly - well

    def _name_arms(self, found: Sequence[Wording[Finding]]) -> Iterator[tuple[PastExperiment, str]]:
        """The experiment and the arm of each, without those that rest on what was retracted."""
        for each in found:
            experiment, _, arm = each.brief.name.partition("/")
            past = self.by_id[experiment]
            if not past.rests_on and arm:
                yield past, arm

    def _run(self, past: PastExperiment) -> TypicalRun:
        return TypicalRun.from_runs(runs_of(self.index, past.experiment_id))

    def _with_file(
        self,
        past: PastExperiment,
        step: NextStep,
        *,
        repeats: int,
        values: Mapping[str, Any] | None = None,
        name: str | None = None,
        limit: int | None = None,
    ) -> NextStep:
        """With the file of the experiment to run, where one can be made of the record."""
        resolved = self._load_resolved(past)
        if resolved is None or step.arm is None or step.arm not in resolved.runs:
            return step
        hypothesis = f"To learn {step.learns}."
        config = resolved.file(
            step.arm, hypothesis=hypothesis, repeats=repeats, values=values, name=name, limit=limit
        )
        return attrs.evolve(step, config=config, command=_RUN_FILE)

    def _load_resolved(self, past: PastExperiment) -> Resolved | None:
        try:
            return Resolved(self.index.experiments / past.experiment_id)
        except StoreError:
            return None


def _is_unfinished(past: PastExperiment) -> bool:
    return past.status in _GO_ON and past.runs > past.runs_completed


def _left_open(past: PastExperiment) -> bool:
    """Whether the best winner was tried again without a decision."""
    again = past.confirmed
    return again is not None and again.outcome == "inconclusive" and again in winners_of(past)[:1]


def _runs(count: int, which: str) -> str:
    return f"{count} training run{'s' * (count != 1)} {which}"


def _settling_text(past: PastExperiment, settling: Settling | None, asked: Comparison) -> str:
    """The runs and tasks that would settle a question at its next look; else what its conclusion says would."""
    if settling is None:
        return past.settle or "more tasks or runs; how many isn't known"
    tasks = "" if settling.tasks is None else f"about {settling.tasks} tasks ({asked.n_tasks} were scored)"
    runs = "" if settling.runs is None else _runs(settling.runs, f"of each side ({asked.n_seeds} so far)")
    level = f", at level {coming_level(past):.2g} of look {past.look.of + 1}" if past.look is not None else ""
    return " and ".join(filter(None, (tasks, runs))) + level


def _with_tasks(step: NextStep, past: PastExperiment) -> NextStep:
    """Without a command where its file alone doesn't make more tasks, since the entry has no limit that could be raised."""
    entries = () if step.config is None else step.config["metadata"]["benchmark"]
    name = (past.metric or "").rpartition(".")[0]
    whole = any(entry.get("name") == name and entry.get("limit") is None for entry in entries)
    return (
        attrs.evolve(step, needs=f"{step.needs}; add them to {name} first", command=None) if whole else step
    )


def _observed_effect(each: Comparison) -> str:
    if each.effect is None or each.low is None or each.high is None:
        return "it has no interval"
    return f"{each.effect:+.2g} [{each.low:.2g}, {each.high:.2g}] so far"
