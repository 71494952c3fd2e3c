"""One check: new traces are weighed, and the decision is written with its evidence before the state that it came from."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import attrs

from evsys.errors import ConfigError
from evsys_record import make_directory
from evsys_record.files import write_json
from evsys_traces.trigger.config import Trigger, digest_of
from evsys_traces.trigger.features import observed_traces
from evsys_traces.trigger.monitor import Monitor

__all__ = ["Decision", "check", "state_of"]

type Outcome = Literal["quiet", "held", "fired"]

_HOUR = 3600.0


@attrs.frozen(kw_only=True)
class Decision:
    """The outcome of a check.

    Attributes:
        trigger: its name.
        outcome: `fired`; `held`, if the evidence suffices and a limit holds it back; else `quiet`.
        why: the reason in words.
        time: of the latest trace, which is the trigger's clock; None if it has seen none.
        e_value: the evidence of all series together.
        threshold: the e-value from which on it fires, 1 / `false_alarm_rate`.
        evidence: the series, the strongest first.
        new: traces since it fired last.
        left_out: traces not weighed, by reason.
        digests: SHA-256 of the trigger's values, the reference, the traces, and the state before.
    """

    trigger: str
    outcome: Outcome
    why: str
    time: str | None
    e_value: float
    threshold: float
    evidence: tuple[dict[str, Any], ...]
    new: int
    left_out: dict[str, int]
    digests: dict[str, str]


def state_of(trigger: Trigger) -> Monitor:
    """The state on disk, or a new one.

    Raises:
        ConfigError: the trigger file or the reference isn't that of the state.
        StoreError: it is damaged.
    """
    path = trigger.folder / "state.json"
    if not path.exists():
        return Monitor.arm(trigger)
    monitor = Monitor.read(path)
    changed = [name for name, digest in trigger.digests.items() if monitor.digests.get(name) != digest]
    if changed:
        what = " and ".join(
            {"config": "the trigger file", "reference": "the reference"}[name] for name in changed
        )
        raise ConfigError(
            f"{what} changed since trigger {trigger.config.name!r} was armed, so its evidence is about something else",
            hint="begin again with `evsys trigger reset`",
        )
    return monitor


def check(trigger: Trigger, traces: Path) -> Decision:
    """Weigh the traces that are later than those of the last check, and write the decision.

    The same state and the same traces give the same decision, byte for byte: killed between the two files, it is repeated.

    Raises:
        ConfigError: see `state_of`.
        DataError: the traces can't be read.
    """
    config, monitor = trigger.config, state_of(trigger)
    before = hashlib.sha256(json.dumps(monitor.tree(), sort_keys=True).encode()).hexdigest()
    left_out = monitor.observe(observed_traces(traces, config.slices, config.good))
    threshold = 1 / config.false_alarm_rate
    outcome, why = _outcome(trigger, monitor, threshold)
    decision = Decision(
        trigger=config.name,
        outcome=outcome,
        why=why,
        time=None if monitor.until is None else _iso(monitor.until),
        e_value=round(monitor.e_value, 6),
        threshold=threshold,
        evidence=tuple(
            sorted((each.evidence() for each in monitor.series), key=lambda each: -float(each["e_value"]))
        ),
        new=monitor.new,
        left_out=dict(sorted(left_out.items())),
        digests={
            **trigger.digests,
            "traces": f"sha256:{digest_of(traces)}",
            "state_before": f"sha256:{before}",
        },
    )
    if outcome == "fired":
        assert monitor.until is not None
        monitor.fired.append(monitor.until)
        monitor.new = 0
    make_directory(trigger.folder)
    write_json(trigger.folder / "decision.json", decision)
    if outcome == "fired":
        write_json(trigger.folder / f"fired-{len(monitor.fired)}.json", decision)
    write_json(trigger.folder / "state.json", monitor.tree())
    return decision


def _outcome(trigger: Trigger, monitor: Monitor, threshold: float) -> tuple[Outcome, str]:
    config, now = trigger.config, monitor.until
    if now is None:
        return "quiet", "no traces yet"
    if monitor.e_value < threshold:
        return "quiet", f"e-value {monitor.e_value:.3g} of {threshold:g}"
    strongest = max(monitor.series, key=lambda each: each.martingale.capital)
    found = f"{strongest.name} changed (e-value {monitor.e_value:.3g} of {threshold:g})"
    if monitor.new < config.min_examples:
        return "held", f"{found}; {monitor.new} of {config.min_examples} new traces"
    if monitor.fired and now - monitor.fired[-1] < config.cooldown_hours * _HOUR:
        until = _iso(monitor.fired[-1] + config.cooldown_hours * _HOUR)
        return "held", f"{found}; it fired on {_iso(monitor.fired[-1])} and cools down until {until}"
    this_month = Counter(_iso(time)[:7] for time in monitor.fired)[_iso(now)[:7]]
    if this_month >= config.max_per_month:
        return "held", f"{found}; it fired {this_month} times in {_iso(now)[:7]}, as often as it may"
    return "fired", found


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
