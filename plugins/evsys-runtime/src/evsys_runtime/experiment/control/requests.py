"""The effect of requests on an experiment, all of it in its event loop: two requests at once are carried out one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import attrs

from evsys.errors import ConfigError, EvsysError
from evsys_record.encoding import now
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.experiment.budget.project_budget import share_of
from evsys_runtime.experiment.control.listening import Peer
from evsys_runtime.experiment.control.server import Reply, refusal
from evsys_runtime.experiment.state.session import Session, run_id_of
from evsys_runtime.experiment.state.steering import reason_of

__all__ = ["Requests"]

MOST_CHARACTERS = 2000
"""Of who asks, and of a reason."""

EXTENDS = {"steps": "steps", "seconds": "wall_seconds", "money": "usd", "tokens": "tokens"}
"""Names of the amounts of `extend`, and of the limits they raise."""

MOST_ARMS = 1024
"""The most arms that may run at once by a request."""

AFFECTING = ("stop", "extend", "set")
"""Requests that the conclusion names; a pause changes no result."""


class _RefusedError(EvsysError):
    """A request that isn't carried out."""


class Requests:
    """The requests that an experiment carries out.

    Each is an event, with who asked and why. Those named by the conclusion are in `experiment.json` before they take
    effect, so an experiment killed afterwards keeps to them.

    Args:
        session: the experiment.
        changed: called after each request with an effect.
    """

    def __init__(self, session: Session, *, changed: Callable[[], None] = lambda: None) -> None:
        self._session = session
        self._changed = changed
        self._known: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "pause": self._pause,
            "unpause": self._unpause,
            "stop": self._stop,
            "extend": self._extend,
            "set": self._set,
        }

    def carry_out(self, request: Mapping[str, Any], peer: Peer) -> Reply:
        """Carry out a request, or refuse it."""
        name = request.get("request")
        if not isinstance(name, str) or name not in self._known:
            return refusal(f"unknown request {name!r}", f"known: status, {', '.join(self._known)}")
        try:
            asked = _texts(request)
            effect = self._known[name]({**request, **asked})
        except _RefusedError as error:
            return refusal(error.message, error.hint)
        facts = {"request": name, **asked, "pid": peer.pid, "uid": peer.uid, **effect}
        self._session.record.events.append("control.requested", **facts)
        self._session.log.info("control.requested", **facts)
        self._changed()
        return {"ok": True, **effect}

    # --- each request: checks it, carries it out, and returns its effect ----------------------------------------------

    def _pause(self, request: Mapping[str, Any]) -> dict[str, Any]:
        arms, now = self._arms(request), request.get("now", False)
        if not isinstance(now, bool):
            _refuse(f"invalid now {now!r}", "expected true or false")
        runs = None if arms is None else self._going(arms)
        self._session.steering.pause(runs, at_once=now)
        return {"runs": runs, "now": now}

    def _unpause(self, request: Mapping[str, Any]) -> dict[str, Any]:
        arms = self._arms(request)
        steering = self._session.steering
        runs = None if arms is None else [run_id_of(arm) for arm in arms]
        if runs is not None and steering.paused:
            _refuse("all runs hold, so one alone can't continue", "unpause the experiment, without an arm")
        if not (steering.paused or steering.paused_runs.intersection(runs or steering.paused_runs)):
            _refuse("nothing is paused")
        steering.unpause(runs)
        return {"runs": runs}

    def _stop(self, request: Mapping[str, Any]) -> dict[str, Any]:
        arms = self._arms(request)
        runs = None if arms is None else self._going(arms)
        if runs is None and self._session.steering.stop is not None:
            _refuse("the experiment is ending already")
        asked = {"runs": runs, "by": request["by"], "reason": request["reason"]}
        self._keep("stop", asked)
        self._session.steering.end_early(reason_of(asked), runs)
        if runs is None:
            self._session.steering.unpause()
        return {"runs": runs}

    def _extend(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Raise limits of the budget by amounts."""
        raised = {limit: request[name] for name, limit in EXTENDS.items() if request.get(name) is not None}
        budget = self._session.budget
        if not raised:
            _refuse("nothing to extend", f"name an amount: {', '.join(EXTENDS)}")
        if budget is None:
            _refuse("the experiment has no budget, so nothing limits it")
        for name, amount in raised.items():
            number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not number or not math.isfinite(amount) or amount <= 0:
                _refuse(f"invalid amount {amount!r} for budget.{name}", "amounts to add are above 0")
            if name in ("steps", "tokens") and amount != int(amount):
                _refuse(f"invalid amount {amount!r} for budget.{name}", "it is a whole number")
            if getattr(budget.limits, name) is None:
                _refuse(f"budget.{name} has no limit", "only a limit of the file can be extended")
        whole = {name: int(raised[name]) for name in ("steps", "tokens") if name in raised}
        limits = {name: getattr(budget.limits, name) + amount for name, amount in (raised | whole).items()}
        self._check_project(limits)
        self._keep(
            "extend",
            {"limits": limits, "by": request["by"], "reason": request["reason"]},
            [f"budget.{name}={limit}" for name, limit in limits.items()],
        )
        for name, amount in (raised | whole).items():
            budget.extend(name, amount)
        self._session.steering.notify()
        return {"limits": limits}

    def _check_project(self, limits: Mapping[str, Any]) -> None:
        """Refuse limits beyond what the budget of the project leaves."""
        plan, budget = self._session.plan, self._session.budget
        assert budget is not None
        asked = attrs.evolve(budget.limits, **limits)
        experiment = attrs.evolve(plan.experiment, budget=asked)
        try:
            share_of(attrs.evolve(plan, experiment=experiment), self._session.record.experiment_id)
        except ConfigError as error:
            _refuse(error.message, error.hint)

    def _set(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Change a setting in flight."""
        values = request.get("values")
        if not isinstance(values, Mapping) or not values:
            _refuse("nothing to set", "pass values, such as max_concurrent_arms=2")
        for name in values:
            if name != "max_concurrent_arms":
                _refuse(
                    f"{name!s} can't be changed while the experiment runs",
                    "its results would come of two experiments; only max_concurrent_arms can be set",
                )
        arms = values["max_concurrent_arms"]
        if not isinstance(arms, int) or isinstance(arms, bool) or not 1 <= arms <= MOST_ARMS:
            _refuse(f"invalid max_concurrent_arms {arms!r}", f"expected a whole number from 1 to {MOST_ARMS}")
        asked = {"values": dict(values), "by": request["by"], "reason": request["reason"]}
        self._keep("set", asked, [f"max_concurrent_arms={arms}"])
        self._session.steering.concurrent_arms = arms
        self._session.steering.notify()
        return {"values": dict(values)}

    # --- what they have in common ---------------------------------------------------------------------------------

    def _arms(self, request: Mapping[str, Any]) -> list[ArmConfig] | None:
        """The runs that a request names, by the name of an arm or the id of a run; None for all."""
        name = request.get("arm")
        if name is None:
            return None
        arms = self._session.plan.arms
        found = [arm for arm in arms if name in (arm.name, run_id_of(arm))]
        if not found:
            known = ", ".join(dict.fromkeys(arm.name for arm in arms))
            _refuse(f"there is no arm {name!r}", f"arms: {known}")
        return found

    def _going(self, arms: Sequence[ArmConfig]) -> list[str]:
        """Those of the runs that haven't ended."""
        runs = [run_id_of(arm) for arm in arms if run_id_of(arm) not in self._session.results]
        if not runs:
            _refuse(f"{arms[0].name} has ended")
        return runs

    def _keep(self, name: str, asked: Mapping[str, Any], adjusted: Sequence[str] = ()) -> None:
        """Put a request on record for the conclusion, with the settings for a resume."""
        record = self._session.record
        facts = record.facts
        kept = {"request": name, "at": now(), **asked}
        more = {"adjusted": [*facts.get("adjusted", ()), *adjusted]} if adjusted else {}
        record.note(requests=[*facts.get("requests", ()), kept], **more)


def _texts(request: Mapping[str, Any]) -> dict[str, Any]:
    """Who asks, and why."""
    found = {}
    for name, otherwise in (("by", "unknown"), ("reason", None)):
        value = request.get(name)
        if value is not None and not isinstance(value, str):
            _refuse(f"{name} is not a string")
        found[name] = value[:MOST_CHARACTERS] if value else otherwise
    return found


def _refuse(error: str, hint: str | None = None) -> NoReturn:
    raise _RefusedError(error, hint=hint)
