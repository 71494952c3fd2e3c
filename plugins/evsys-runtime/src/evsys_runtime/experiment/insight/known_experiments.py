"""Every experiment on record, and which arms and questions of them are the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from evsys_record import PastExperiment, Question, ask
from evsys_record.history import find_experiments
from evsys_record.index import Index
from evsys_record.looks import Ledger
from evsys_runtime.experiment.insight.arm_index import ArmsOnRecord

__all__ = ["Known"]

_MOST_LOOKS = 6


type Numbers = frozenset[int]


@attrs.frozen(kw_only=True, eq=False)
class Known:
    """Every experiment on record, the newest first, the config of each of their arms, and all looks at their questions."""

    experiments: tuple[PastExperiment, ...]
    configs: Mapping[tuple[str, str], Numbers]
    ledger: Ledger

    @classmethod
    def of(cls, index: Index, on_record: ArmsOnRecord | None = None) -> Known:
        """The experiments of the index, without dry runs."""
        on_record = on_record or ArmsOnRecord.from_index(index)
        folders = dict(find_experiments(index, Question()))
        configs = {
            (folders[experiment], arm): numbers
            for experiment, arm, numbers in on_record.arms
            if experiment in folders
        }
        experiments = ask(index, Question()).experiments
        return cls(experiments=experiments, configs=configs, ledger=Ledger.of(index))

    def recipe(self, past: PastExperiment, arm: str) -> object:
        """A key that arms of the same config share if judged alike; an arm of unknown config has its own."""
        return self.configs.get((past.experiment_id, arm), (past.experiment_id, arm)), past.metric

    def arm_question(self, past: PastExperiment, arm: str) -> object:
        """A key that experiments share if they ask the same about an arm: recipe, metric, claim, and recipe of the
        baseline.
        """
        baseline = self.configs.get((past.experiment_id, past.baseline or ""), past.baseline)
        return self.recipe(past, arm), baseline, past.claim or "better"

    def question(self, past: PastExperiment) -> object:
        """A key that experiments share if they ask the same about all their arms."""
        return frozenset(self.arm_question(past, each.arm) for each in past.comparisons)

    def series(self, past: PastExperiment) -> Iterator[str]:
        """The results of all looks at the question of an experiment, the oldest first, if there are several."""
        if past.look is not None and past.look.of > 1:
            looks = self.ledger.series_of(past.experiment_id)
            left = len(looks) - _MOST_LOOKS
            before = [f"{left} more"] if left > 0 else []
            told = (f"{look.verdict} {look.effect or 0.0:+.2g}" for look in looks[-_MOST_LOOKS:])
            yield f"all looks: {', '.join([*before, *told])}"
