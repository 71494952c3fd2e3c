"""The budget of an arm in a process of its own: a part that its experiment lends it, and more on request.

What is lent is reserved in the experiment's budget, so all parts together stay within the limits, even where a process
dies or the experiment does: a limit is exceeded at most by the work in progress, as in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from evsys_runtime.config.model import BudgetConfig
from evsys_runtime.experiment.budget.budget import COUNTED, Account, ArmBudget, ExperimentBudget

__all__ = ["LeasedBudget", "lease_facts"]

ELSEWHERE = "other runs"


class LeasedBudget(ExperimentBudget):
    """A part of an experiment's budget, for one run.

    Args:
        run_id: the run.
        lease: from `ExperimentBudget.lend`.
        used: what the run has used in its earlier attempts.
        ask: asks the experiment for a new lease, and reports the usage of the run; blocks. None if no one answers.
        report: gets what the run has used by now.
        suggest: gets the limit that ended the run.
        tell: gets messages for the user.
        note: puts an event on record.
    """

    def __init__(
        self,
        run_id: str,
        lease: Mapping[str, Any],
        *,
        used: Mapping[str, float],
        ask: Callable[[Mapping[str, float]], Mapping[str, Any] | None],
        report: Callable[[Mapping[str, float]], None],
        suggest: Callable[[str], None],
        tell: Callable[[str], None],
        note: Callable[..., object],
    ) -> None:
        super().__init__(
            BudgetConfig(**lease["limits"]),
            known={"spent": {"wall_seconds": lease["seconds"] + time.time() - lease["at"]}},
            keep=lambda _facts: report(self._own.used),
            tell=tell,
            note=note,
        )
        self._ask, self._ended_by = ask, suggest
        self._own = self._accounts[run_id] = self._open[run_id] = Account(used=dict(used), before=dict(used))
        self._spent = dict(used)
        self._take(lease)

    def admit(self, run_id: str, *, steps: int | None = None) -> ArmBudget:
        """The budget of the run, which the experiment has admitted."""
        del steps
        return ArmBudget(self, run_id)

    def renew(self) -> None:
        """Ask for more: what is left may be reserved by others meanwhile, or be free again."""
        lease = self._ask(dict(self._own.used))
        if lease is not None:
            self._earlier = lease["seconds"] + time.time() - lease["at"]
            self._began = self._clock.now()
            self._take(lease)

    def _take(self, lease: Mapping[str, Any]) -> None:
        self.limits = BudgetConfig(**lease["limits"])
        before = self._accounts.get(ELSEWHERE)
        spent = {name: float(lease["spent"][name]) for name in COUNTED}
        others = Account(used=spent, before=dict(spent), reserved=dict(lease["reserved"]))
        for name in COUNTED:
            self._spent[name] += spent[name] - (0.0 if before is None else before.used[name])
        self._accounts[ELSEWHERE] = self._open[ELSEWHERE] = others

    def suggest(self, name: str) -> None:
        """The experiment reports how to continue: it knows what other runs still need."""
        self._ended_by(name)

    def _warn(self, about: str, text: str) -> None:
        if about == "unpriced":  # of all else the experiment warns once
            super()._warn(about, text)


def lease_facts(budget: ExperimentBudget, run_id: str) -> dict[str, Any]:
    """The facts of the budget for a process of a run, as JSON values."""
    return {
        "limits": attrs.asdict(budget.limits),
        "seconds": budget.seconds,
        "at": time.time(),
        "spent": {name: budget.spending(name) - budget.used(run_id)[name] for name in COUNTED},
        "reserved": {name: budget.reserved_elsewhere(name, run_id) for name in COUNTED},
    }
