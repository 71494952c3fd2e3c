"""The knowledge before an experiment ended: the noise between equal runs, earlier evaluations of its test tasks,
earlier questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from evsys.types import ArmResult, Conclusion, LookSeries, NoiseFloor, RunDeviation
from evsys_record.evaluations import evaluations_beside
from evsys_record.look_ledger import LedgerLine
from evsys_record.marks import series_marks
from evsys_record.text import list_names
from evsys_runtime.config.plan import ALPHA
from evsys_runtime.experiment.lineage.experiments import count_looks, open_on_demand
from evsys_runtime.experiment.lineage.preregistration import CHANGED
from evsys_runtime.experiment.prior.final_tests import entry_of, final_test_warnings
from evsys_runtime.experiment.prior.looks import look_series
from evsys_runtime.experiment.prior.noise_floor import known_noise
from evsys_runtime.experiment.prior.run_deviation import known_deviation
from evsys_runtime.experiment.verdict.question import Question
from evsys_stats.alpha_spending import level_of_look

if TYPE_CHECKING:
    from evsys_runtime.experiment.state.session import Session

__all__ = ["PriorEvidence", "collect_prior"]


@attrs.frozen(kw_only=True)
class PriorEvidence:
    """`noise` is the noise floor, `deviation` how far runs of similar recipes differ, `looks` are earlier scorings of the tasks of `test` entries, with the `reads` of their rows from a data store besides the one that brought them here, `changed` says in lines what was
    asked otherwise in the experiment `changed_since`. `series` has the looks at the question by the benchmark entry that it is asked on, `reserved` is the look that the ledger keeps for this conclusion, `spent_tests` warns of
    `val` entries that have the tasks of a final test.
    """

    noise: NoiseFloor | None = None
    deviation: RunDeviation | None = None
    looks: Mapping[str, int] = attrs.field(factory=dict)
    reads: Mapping[str, int] = attrs.field(factory=dict)
    changed_since: str | None = None
    changed: tuple[str, ...] = ()
    series: Mapping[str, LookSeries] = attrs.field(factory=dict)
    reserved: LedgerLine | None = None
    spent_tests: tuple[str, ...] = ()

    def adjust_level(self, question: Question) -> Question:
        """The question at the level that earlier looks at it leave."""
        series = self.series.get(question.benchmark)
        if series is None:
            return question
        coming = level_of_look(series.number + 1, ALPHA)
        return attrs.evolve(question, level=series.level, next_level=coming)

    def add_warnings(self, conclusion: Conclusion) -> Conclusion:
        """The conclusion with what weakens it of that."""
        looks = {name: count for name, count in self.looks.items() if name in conclusion.test_looks}
        return attrs.evolve(
            conclusion,
            test_looks_before=looks,
            question_changed=self.changed,
            warnings=(*conclusion.warnings, *self._warnings(looks), *_fell_back(conclusion)),
        )

    def _warnings(self, looks: Mapping[str, int]) -> Iterator[str]:
        for name, count in looks.items():
            reads = self.reads.get(name, 0)
            if scored := count - reads:
                yield (
                    f"the test tasks of {name} were scored {_times(scored)} by earlier experiments and evaluations: what was chosen by those scores has seen them"
                )
            if reads:
                yield f"the rows of {name} were read {_times(reads)} from the data store besides: who read them has seen the test"
        yield from self.spent_tests
        yield from dict.fromkeys(mark.says for each in self.series.values() for mark in series_marks(each))
        if self.changed:
            yield (
                f"the question was changed after the results of {self.changed_since} were there: {'; '.join(self.changed)}"
            )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _reads_of_tests(session: Session) -> dict[str, int]:
    """By `test` entry, how often the rows of a sealed version were read, besides the pull that brought them here."""
    found = {}
    for entry in session.plan.experiment.metadata.benchmarks:
        ref = entry.id or (entry.name if entry.path is None else None)
        pin = None if ref is None else session.workspace.pins.get("benchmarks", ref)
        reads = None if pin is None or entry.split != "test" else pin.get("reads")
        if reads is not None and reads > 1:
            found[entry.label] = int(reads) - 1
    return found


def _fell_back(conclusion: Conclusion) -> Iterator[str]:
    """That the claim was supported before and isn't now."""
    series = conclusion.looks
    if series is None or not series.tested or conclusion.verdict == "SUPPORTED":
        return
    held = [look.experiment_id for look in series.earlier if look.verdict == "SUPPORTED"]
    if held:
        yield f"{list_names(held)} was SUPPORTED on this question, and this look is {conclusion.verdict}: read both together"


def collect_prior(
    session: Session, questions: Sequence[Question], results: Sequence[ArmResult], *, concludes: bool = False
) -> PriorEvidence:
    """Collect the knowledge besides the results. Blocking; failed look-ups are listed in the session's warnings.

    Args:
        session: of the experiment.
        questions: its question, and that of a winner on another entry.
        results: its arms.
        concludes: this is to conclude the experiment by the last of the questions, so its look is put into the
            ledger.
    """
    record = session.record
    changed = record.facts.get(CHANGED) or {}
    known = PriorEvidence(
        changed_since=changed.get("experiment_id"), changed=tuple(changed.get("changes", ()))
    )
    entries = [] if session.options.dry else [entry_of(bound) for bound in session.benchmarks]
    tests = [entry for entry in entries if entry.split == "test"]
    tell = session.warnings.append
    with open_on_demand(record.directory.parent, record.experiment_id, tell) as earlier:
        if questions:
            found = {
                question.benchmark: look_series(
                    session,
                    question.benchmark,
                    results,
                    earlier,
                    reserve=concludes and question is questions[-1],
                )
                for question in questions
            }
            last = found[questions[-1].benchmark]
            known = attrs.evolve(
                known,
                noise=known_noise(session, questions[0], results, earlier),
                deviation=known_deviation(session, questions[0], earlier),
                series={entry: one.series for entry, one in found.items() if one is not None},
                reserved=None if last is None else last.reserved,
            )
        beside = evaluations_beside(record.directory.parent)
        looks = count_looks(earlier, record.experiment_id, tests, tell, evaluations=beside)
        reads = _reads_of_tests(session)
        looks = {name: looks.get(name, 0) + reads.get(name, 0) for name in {**looks, **reads}}
        spent = final_test_warnings(entries, earlier() if questions else None, tell)
        return attrs.evolve(known, looks=looks, reads=reads, spent_tests=tuple(spent))
