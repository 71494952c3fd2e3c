"""The budget of an experiment: reserved by each arm before it starts, counted while it runs, settled at its end.

A reservation keeps arms that start from being cut short by concurrent ones; in the end only real usage counts.
Every charge is counted at once, so a limit is exceeded at most by the work in progress: a step, or concurrent
rollouts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from evsys.errors import BudgetExceeded
from evsys.types import ArmResult, EvaluationResult, RunContext, Usage
from evsys_record.encoding import now
from evsys_runtime.accounting.clock import Clock, SystemClock
from evsys_runtime.config.model import BudgetConfig

__all__ = ["COUNTED", "WAIT", "Account", "ArmBudget", "ExperimentBudget", "amount_words", "amounts_of_usage"]

WARN_AT = 0.8
"""The part of a limit from which on it is warned of."""

KEEP_SECONDS = 5.0
"""After so long what was spent meanwhile continues record; a killed process forgets no more than that."""

WAIT: Final = object()
"""An arm may start once others have settled what they reserved."""

COUNTED = ("usd", "tokens", "steps")
"""Amounts that arms use up; time passes for all of them."""

_LEAST_PART = 1e-3
"""The least part of a limit that is lent at once, where that much is left."""

type Amounts = dict[str, float]


@attrs.define(kw_only=True)
class Account:
    """The usage of one run over all its attempts, and the amounts that this attempt `wanted` and reserved, in
    addition to the usage `before` it. `lent` is the usage up to which a process of its own may go without asking.

    The wanted amount may exceed the amount left to reserve. `again` is the usage of interrupted work repeated.
    """

    used: Amounts = attrs.field(factory=lambda: dict.fromkeys(COUNTED, 0.0))
    again: Amounts = attrs.field(factory=lambda: dict.fromkeys(COUNTED, 0.0))
    ended: str | None = None
    before: Amounts = attrs.field(factory=dict)
    reserved: Amounts = attrs.field(factory=dict)
    wanted: Amounts = attrs.field(factory=dict)
    lent: Amounts = attrs.field(factory=dict)

    def usage_without_rework(self, name: str) -> float:
        """The usage without the repetition of interrupted work."""
        return max(0.0, self.used[name] - self.again[name])

    def unused_reservation(self, name: str) -> float:
        """The amount reserved and not used yet, while the run continues."""
        lent = self.lent.get(name, 0.0) - self.used[name]
        return max(lent, self._excess(self.reserved.get(name, 0.0), name))

    def to_come(self, name: str) -> float | None:
        """The expected further usage, if known."""
        return self._excess(self.wanted[name], name) if name in self.wanted else None

    def _excess(self, amount: float, name: str) -> float:
        return max(0.0, amount - (self.used[name] - self.before.get(name, 0.0)))


class ExperimentBudget:
    """The budget of one experiment.

    Args:
        limits: of the experiment file.
        known: the recorded spending of an earlier launch (see `spent`); its experiment continues with the rest.
        keep: records the spending.
        tell: gets messages for the user.
        note: puts an event on record.
        clock: seconds.
    """

    def __init__(
        self,
        limits: BudgetConfig,
        *,
        known: Mapping[str, Any] | None = None,
        keep: Callable[[Mapping[str, Any]], None] = lambda _facts: None,
        tell: Callable[[str], None] = lambda _text: None,
        note: Callable[..., object] = lambda _event, **_facts: None,
        clock: Clock | None = None,
    ) -> None:
        self.limits = limits
        self._keep = keep
        self._tell = tell
        self._note = note
        self._clock = clock or SystemClock()
        self._began = self._kept = self._clock.now()
        self._paused: float | None = None
        known = known or {}
        self._earlier = float(known.get("spent", {}).get("wall_seconds", 0.0))
        self._accounts = {
            run_id: Account(used={name: float(found[name]) for name in COUNTED}, ended=found["ended"])
            for run_id, found in known.get("runs", {}).items()
        }
        # Kept alongside the accounts, since each step and each rollout asks for them.
        self._spent = {name: sum(one.used[name] for one in self._accounts.values()) for name in COUNTED}
        self._open: dict[str, Account] = {}
        self._warned: set[str] = set()
        self._scoring: dict[str, float] = {}

    # --- what is there --------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Seconds that the experiment has run, earlier launches included, without those in which all of it held."""
        now = self._clock.now() if self._paused is None else self._paused
        return self._earlier + now - self._began

    def pause(self) -> None:
        """Time doesn't count from now on."""
        if self._paused is None:
            self._paused = self._clock.now()
            self.keep()

    def unpause(self) -> None:
        """Time counts again."""
        if self._paused is not None:
            self._began += self._clock.now() - self._paused
            self._paused = None
            self.keep()

    @property
    def limited(self) -> tuple[str, ...]:
        """The amounts that have a limit."""
        return tuple(name for name, limit in attrs.asdict(self.limits).items() if limit is not None)

    def spending(self, name: str) -> float:
        """The spent part of an amount."""
        if name == "wall_seconds":
            return self.seconds
        if name == "arms":
            return float(len(self._accounts))
        return self._spent[name]

    def remainder(self, name: str, run_id: str | None = None) -> float:
        """The amount left that isn't reserved by others; `run_id` has its own reservation besides. Infinite without
        a limit.
        """
        limit = getattr(self.limits, name)
        if limit is None:
            return float("inf")
        if name not in COUNTED:
            return float(limit) - self.spending(name)
        others = (account for key, account in self._open.items() if key != run_id)
        return (
            float(limit) - self.spending(name) - sum(account.unused_reservation(name) for account in others)
        )

    @property
    def kept_for_scoring(self) -> float:
        """Seconds that no training gets, since scoring takes as long: a run without its score is paid for in vain."""
        return sum(self._scoring.values())

    def add_scoring(self, entry: str, seconds: float) -> None:
        """Learn how long the scoring of an entry takes; the longest counts."""
        self._scoring[entry] = max(seconds, self._scoring.get(entry, 0.0))

    def facts(self) -> Mapping[str, Any]:
        """It as JSON values, as it continues record."""
        names = attrs.fields_dict(BudgetConfig)
        return {
            "kept": now(),
            "limits": attrs.asdict(self.limits),
            "spent": {name: self.spending(name) for name in names},
            "runs": {
                run_id: {**account.used, "ended": account.ended} for run_id, account in self._accounts.items()
            },
        }

    # --- arms -----------------------------------------------------------------------------------------------------

    def admit(self, run_id: str, *, steps: int | None = None) -> ArmBudget | str | object:
        """Let a run start, with what it may need reserved; or say why it can't, or that it has to `WAIT`.

        What it needs: `steps`, where that is known, and of all else what the completed runs of this experiment
        used, step by step. The first run starts regardless of its needs, and goes as far as the budget goes, also
        where it was cut off before and nothing but itself has used any of it.

        Args:
            run_id: the run.
            steps: optimiser steps still to be made, where known before the data is.
        """
        account = self._accounts.get(run_id)
        need = self._need(account, steps)
        lacking = self._lacking(run_id, need, is_new=account is None)
        if lacking is not None:
            return WAIT if self._open else lacking
        account = self._accounts.setdefault(run_id, Account())
        account.reserved = {name: max(0.0, min(need[name], self.remainder(name, run_id))) for name in need}
        account.wanted, account.before, account.ended = dict(need), dict(account.used), None
        account.lent = {}
        self._open[run_id] = account
        self.keep()
        self._note("budget.reserved", run=run_id, **account.reserved)
        return ArmBudget(self, run_id)

    def lend(self, run_id: str) -> None:
        """Lend a run that is under way in a process of its own what it reserved, or else a part of what is free.

        The part halves with what is left and with the number of runs, so that none of them keeps the rest to itself.
        """
        account = self._accounts[run_id]
        for name in COUNTED:
            limit = getattr(self.limits, name)
            if limit is None:
                continue
            lent = account.unused_reservation(name)
            if not lent:
                free = max(0.0, self.remainder(name, run_id))
                part = max(free / (2 * len(self._open)), limit * _LEAST_PART)
                lent = min(free, math.ceil(part) if name == "steps" else part)
            account.lent[name] = account.used[name] + lent

    def used(self, run_id: str) -> Amounts:
        """The usage of a run over all its attempts."""
        return dict(self._accounts[run_id].used)

    def reserved_elsewhere(self, name: str, run_id: str) -> float:
        """The part of a counted amount that is not lent to a run; 0 without a limit."""
        if getattr(self.limits, name) is None:
            return 0.0
        left = float(getattr(self.limits, name)) - self.spending(name)
        return max(0.0, left - self._accounts[run_id].unused_reservation(name))

    def take_usage(self, run_id: str, used: Mapping[str, float]) -> None:
        """A process says what its run has used by now; less than before is old news."""
        account = self._accounts[run_id]
        for name in COUNTED:
            more = max(0.0, float(used[name]) - account.used[name])
            account.used[name] += more
            self._spent[name] += more
        self._warn_near_limits()
        if self._clock.now() - self._kept >= KEEP_SECONDS:
            self.keep()

    def pays_for(self, runs: int, steps: int | None, *, scored: int = 0) -> bool:
        """Whether so many further runs would be paid for that take so many steps each, and so many `scored` alone,
        alongside those under way.

        What was cut off and made again doesn't count here, so that an experiment that was killed decides as if it
        hadn't been. It counts where a run is to start: then what is spent is spent.
        """
        if self.remainder("wall_seconds") <= 0 or self.remainder("arms") < runs + scored:
            return False
        need = self._need(None, steps)
        again = {name: sum(account.again[name] for account in self._accounts.values()) for name in COUNTED}
        left = {name: self.remainder(name) + again[name] for name in COUNTED}
        return all(left[name] > 0 and need.get(name, 0.0) * runs <= left[name] for name in COUNTED)

    def add_rework(self, run_id: str, amounts: Mapping[str, float]) -> None:
        """Of what a run used so much was for work cut off with its process, and is made again."""
        if (account := self._accounts.get(run_id)) is not None:
            account.again.update(amounts)

    def _need(self, account: Account | None, steps: int | None) -> Amounts:
        done = [other for other in self._accounts.values() if other.ended == "completed"]
        used = (
            dict.fromkeys(COUNTED, 0.0)
            if account is None
            else {n: account.usage_without_rework(n) for n in COUNTED}
        )
        need: Amounts = {} if steps is None else {"steps": float(steps)}
        for name in COUNTED:
            if name in need or not done:
                continue
            if steps is not None and all(other.usage_without_rework("steps") for other in done):
                need[name] = steps * max(
                    other.usage_without_rework(name) / other.usage_without_rework("steps") for other in done
                )
            else:
                need[name] = max(0.0, max(other.usage_without_rework(name) for other in done) - used[name])
        return need

    def _lacking(self, run_id: str, need: Amounts, *, is_new: bool) -> str | None:
        """Why a run can't start; None where it can."""
        for name in ("wall_seconds", *(("arms",) if is_new else ()), *COUNTED):
            if self.remainder(name, run_id) <= 0:
                return self._refusal(name, 1.0 if name == "arms" else need.get(name))
        if self.remainder("wall_seconds") <= self.kept_for_scoring:
            return self._refusal("wall_seconds", self.kept_for_scoring)
        others = [account for key, account in self._accounts.items() if key != run_id]
        if not self._open and not any(account.used[name] for account in others for name in COUNTED):
            return None  # the first run, which may have been cut off before
        for name, wanted in need.items():
            if wanted > self.remainder(name, run_id):
                return f"{self._refusal(name, wanted)}, and it would need about {amount_words(name, wanted)}"
        return None

    def _refusal(self, name: str, wanted: float | None) -> str:
        if not self._open:  # else it has to wait, and may be paid for yet
            self._suggest(name, None if wanted is None else self.spending(name) + wanted)
        return self.words(name)

    def expect(self, run_id: str, steps: int) -> None:
        """It is known now how many steps a run is still going to make."""
        account = self._accounts[run_id]
        account.before["steps"] = account.used["steps"]
        account.wanted["steps"] = float(steps)
        account.reserved["steps"] = max(0.0, min(float(steps), self.remainder("steps", run_id)))

    def settle(self, run_id: str, status: str) -> None:
        """A run has ended; what it reserved and didn't use is free again."""
        self._accounts[run_id].ended = status
        self._open.pop(run_id, None)
        self.keep()
        self.note_spent(run_id)

    def note_spent(self, run_id: str) -> None:
        """Put an event on record with the experiment's spending of each limited amount."""
        spent = {name: self.spending(name) for name in self.limited}
        limits = {name: getattr(self.limits, name) for name in self.limited}
        self._note("budget.spent", run=run_id, spent=spent, limits=limits)

    def withdraw(self, run_id: str) -> None:
        """Remove the account of a run that was reused: it used nothing and doesn't count as started."""
        self._open.pop(run_id, None)
        if not any(self._accounts[run_id].used.values()):
            del self._accounts[run_id]
        self.keep()

    def keep(self) -> None:
        """Put on record what is spent by now."""
        self._kept = self._clock.now()
        self._keep(self.facts())

    # --- spending -------------------------------------------------------------------------------------------------

    def charge(self, run_id: str, usage: Usage, *, steps: int = 0) -> None:
        """Count what a run used.

        Raises:
            BudgetExceeded: nothing is left for it. Steps end only who makes steps: scores cost none.
        """
        for name, amount in (("tokens", usage.tokens), ("usd", usage.cost_usd or 0.0), ("steps", steps)):
            self._accounts[run_id].used[name] += amount
            self._spent[name] += amount
        if self._clock.now() - self._kept >= KEEP_SECONDS:
            self.keep()
        if usage.without_price and self.limits.usd is not None:
            self._warn(
                "unpriced",
                f"budget.usd can't count all that {run_id} uses: a price isn't known, so more is spent than is counted; "
                "limit budget.tokens too, or give the price",
            )
        self._warn_near_limits()
        for name in ("wall_seconds", "usd", "tokens", *(("steps",) if steps else ())):
            kept = self.kept_for_scoring if steps and name == "wall_seconds" else 0.0
            if self.remainder(name, run_id) <= kept:
                self.renew()
            if self.remainder(name, run_id) <= kept:
                raise BudgetExceeded(
                    self.words(name), hint=_hint(name, self._required_limit(name)), limit=name
                )

    def _warn_near_limits(self) -> None:
        for name in ("wall_seconds", "usd", "tokens", "steps"):
            limit = getattr(self.limits, name)
            if limit is not None and self.spending(name) >= WARN_AT * limit:
                self._warn(name, f"{WARN_AT:.0%} of the budget is reached: {self.words(name)}")

    def renew(self) -> None:
        """Look again at what is left, where that may have changed elsewhere."""

    def words(self, name: str) -> str:
        """The state of an amount, in words."""
        limit = getattr(self.limits, name)
        text = (
            f"budget.{name}: {amount_words(name, self.spending(name))} of {amount_words(name, limit)} spent"
        )
        reserved = (
            sum(account.unused_reservation(name) for account in self._open.values())
            if name in COUNTED
            else self.kept_for_scoring
            if name == "wall_seconds" and self.remainder(name) > 0
            else 0.0
        )
        return f"{text}, {amount_words(name, reserved)} reserved" if reserved else text

    def suggest(self, name: str) -> None:
        """Report, once, how to continue after a limit ended something."""
        self._suggest(name, self._required_limit(name))

    def _suggest(self, name: str, needed: float | None) -> None:
        self._warn(f"spent/{name}", f"budget.{name} doesn't cover the plan; {_hint(name, needed)}")

    def _required_limit(self, name: str) -> float | None:
        """The limit that pays for the runs under way; None where no one knows."""
        to_come = [account.to_come(name) for account in self._open.values()] if name in COUNTED else [None]
        known = [amount for amount in to_come if amount is not None]
        return self.spending(name) + sum(known) if len(known) == len(to_come) and any(known) else None

    def extend(self, name: str, amount: float) -> float:
        """Raise a limit that there is by an amount; the new one."""
        limit = getattr(self.limits, name) + amount
        self.limits = attrs.evolve(self.limits, **{name: limit})
        self._warned -= {name, f"spent/{name}"}
        self.keep()
        return float(limit)

    def limits_below_spending(self, before: Mapping[str, Any]) -> list[str]:
        """The limits set again, against those `before`, to less than is spent already."""
        limits = attrs.asdict(self.limits)
        return [
            name
            for name, limit in limits.items()
            if limit is not None and limit != before.get(name) and limit < self.spending(name)
        ]

    def _warn(self, about: str, text: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            self._tell(text)


class ArmBudget:
    """A core `Budget`: what one run may spend. As a listener it learns how many steps there are going to be."""

    def __init__(self, whole: ExperimentBudget, run_id: str) -> None:
        self._whole = whole
        self._run_id = run_id
        self.stopped: str | None = None
        self._limit: str | None = None
        self._ended = False

    def charge(self, usage: Usage, *, steps: int = 0) -> None:
        """Count usage.

        Raises:
            BudgetExceeded: nothing is left; `stopped` says of what. Or the run has ended, and something of it still spends.
        """
        try:
            self._whole.charge(self._run_id, usage, steps=steps)
        except BudgetExceeded as error:
            self.stopped, self._limit = error.message, error.facts["limit"]
            raise
        if self._ended:  # what was spent is counted, but there is nothing that it could be spent for
            raise BudgetExceeded(f"{self._run_id} has ended, and spends nothing more")

    def close(self, result: ArmResult | None, *, went_back: bool) -> None:
        """The run has ended with a result, or without one.

        Its work cut off and made again is known now, unless it went back behind a collapse: what that cost belongs to it.
        """
        if result is not None and not went_back:
            self._whole.add_rework(self._run_id, amounts_of_usage(result.cut_off))
        if result is not None and result.reused is not None:
            self._ended = True
            self._whole.withdraw(self._run_id)
            return
        self.settle("failed" if result is None else result.status)

    def settle(self, status: str) -> None:
        """The run has ended."""
        self._ended = True
        if status == "budget_stopped" and self._limit is not None:
            self._whole.suggest(self._limit)
        self._whole.settle(self._run_id, status)

    def evsys_run_started(self, ctx: RunContext, total_steps: int | None) -> None:
        """A hook: reserve the coming steps."""
        if total_steps is not None:
            restored = ctx.checkpoints.restored
            self._whole.expect(self._run_id, total_steps - (restored.step if restored is not None else 0))

    def evsys_checkpoint_saved(self) -> None:
        """A hook: who resumes from here has to know what was spent until here."""
        self._whole.keep()
        self._whole.note_spent(self._run_id)

    def evsys_evaluation_finished(self, evaluation: EvaluationResult) -> None:
        """A hook: a scoring is seldom cheap, and the next one of the entry takes as long."""
        if evaluation.model is None and evaluation.status == "completed":
            self._whole.add_scoring(evaluation.benchmark, evaluation.seconds)
        self._whole.keep()
        self._whole.note_spent(self._run_id)


def amounts_of_usage(usage: Usage) -> Amounts:
    """The amounts of a usage that count, besides steps."""
    return {"tokens": float(usage.tokens), "usd": usage.cost_usd or 0.0}


def _hint(name: str, needed: float | None) -> str:
    """How to continue; `needed` is the least limit that helps, where it is known."""
    if needed is None:
        return f"to continue, raise it: evsys resume --set budget.{name}=..."
    value = f"{math.ceil(needed * 100) / 100:.2f}" if name == "usd" else f"{math.ceil(needed)}"
    return f"to continue, raise it to {value} or more: evsys resume --set budget.{name}={value}"


def amount_words(name: str, value: float) -> str:
    """An amount of a limit, with its unit."""
    if name == "usd":
        return f"${value:,.4f}" if value < 1 else f"${value:,.2f}"
    return f"{value:,.0f} s" if name == "wall_seconds" else f"{value:,.0f}"
