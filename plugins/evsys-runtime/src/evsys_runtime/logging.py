"""The log of a run: structured events, JSON lines in its folder and text on standard error.

Nothing is configured for the whole process: each run has its own logger, so runs side by side don't meet. Values
bound with `context` (run, arm, step) follows the task that bound it. structlog is imported by the first logger.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import attrs

from evsys_record.encoding import encode_record, now
from evsys_record.jsonl import JsonlWriter
from evsys_record.secrets import Redactor
from evsys_record.text import visible
from evsys_runtime.live_lines import current_live_lines
from evsys_runtime.terminal import takes_colours

if TYPE_CHECKING:
    from evsys.protocols import Log
    from evsys_record.run_record import RunRecord

__all__ = ["LEVELS", "Console", "LogSettings", "configure", "context", "record_logger", "run_logger"]

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}

MOST_CHARACTERS = 32 << 10
"""Of one text in an event."""

_OURS = frozenset({"seq", "time", "level", "traceback"})
"""Keys that the log fills; a fact of the same name gets an underscore."""

_NUMBERS = frozenset({int, float, bool, type(None)})

type Event = MutableMapping[str, Any]


@attrs.define(eq=False)
class Console:
    """The stream for people: standard error, looked up at each line, or `stream`.

    Its reader may be gone (`2>&1 | head`, a closed terminal). A log isn't worth a run, so after the first failed
    write nothing more is written to the console.
    """

    stream: TextIO | None = None
    open: bool = True

    def show(self, line: Callable[[bool], str]) -> str | None:
        """Write the result of `line`, called with whether colours are wanted; returns the reason, once, when the
        console is lost.
        """
        output: TextIO | None = self.stream if self.stream is not None else sys.stderr
        if output is None or not self.open:
            return None
        text = visible(line(takes_colours(output)), styles=True)
        table = current_live_lines() if self.stream is None else None
        try:
            if table is not None:
                table.above(text)
                return None
            output.write(text + "\n")
            output.flush()
        except (OSError, ValueError) as exc:
            self.open = False
            return str(exc)
        return None


@attrs.frozen(kw_only=True)
class LogSettings:
    """How the logs of an experiment are written. A level of None writes nothing there.

    Standard output is never the console: that belongs to results. `told` names events that are shown to people in
    another way, so that the console leaves them out. `warned` gets each warning, as it is written.
    """

    console_level: str | None = "info"
    file_level: str | None = "debug"
    console: Console = attrs.field(factory=Console)
    told: frozenset[str] = frozenset()
    warned: Callable[[Event], object] = lambda _event: None
    redactor: Redactor = attrs.field(factory=Redactor.from_environment)


def configure(
    *,
    console_level: str | None = "info",
    file_level: str | None = "debug",
    stream: TextIO | None = None,
    told: Iterable[str] = (),
    warned: Callable[[Event], object] = lambda _event: None,
    redactor: Redactor | None = None,
) -> LogSettings:
    """Settings for the loggers of one experiment; changes nothing in the process.

    Args:
        console_level: from which level on events are shown to people; None shows none.
        file_level: the same for the file.
        stream: for people; None is standard error.
        told: events shown in another way.
        warned: gets each warning, as it is written.
        redactor: knows the secrets; by default those of the environment.

    Raises:
        ValueError: an unknown level.
    """
    for level in (console_level, file_level):
        if level is not None and level not in LEVELS:
            raise ValueError(f"unknown log level {level!r}; use one of {', '.join(LEVELS)}")
    return LogSettings(
        console_level=console_level,
        file_level=file_level,
        console=Console(stream),
        told=frozenset(told),
        warned=warned,
        redactor=redactor or Redactor.from_environment(),
    )


def run_logger(
    path: Path | None,
    settings: LogSettings | None = None,
    *,
    sequence: Callable[[], int] | None = None,
    **bound: Any,
) -> Log:
    """A logger with `bound` facts on each event.

    Args:
        path: the JSON lines file; None for the console alone.
        settings: from `configure`.
        sequence: numbers the events; with it each has `attempt`, `step` and `seq` like every record of a run.
        **bound: facts of every event, such as `run_id`.
    """
    import structlog

    settings = settings or configure()
    levels = [
        LEVELS[level] for level in (settings.console_level, settings.file_level if path else None) if level
    ]
    logger = structlog.wrap_logger(
        _Outputs(path, settings, sequence),
        processors=[structlog.contextvars.merge_contextvars, _format_event(settings.redactor, sequence)],
        wrapper_class=structlog.make_filtering_bound_logger(min(levels, default=100)),
        context_class=dict,
        cache_logger_on_first_use=False,
    )
    return cast("Log", logger.bind(**bound))


def record_logger(record: RunRecord, settings: LogSettings, **bound: Any) -> Log:
    """The log of a run on record, which numbers its events along with its other lines."""
    bound = {"attempt": record.attempt, "run_id": record.run_id, **bound}
    return run_logger(record.log_path, settings, sequence=record.next_sequence, **bound)


def context(**facts: Any) -> AbstractContextManager[None]:
    """Bind facts to every event of the current task, and of tasks that it starts, until the block ends."""
    return _context(facts)


@contextmanager
def _context(facts: dict[str, Any]) -> Iterator[None]:
    import structlog

    with structlog.contextvars.bound_contextvars(**facts):
        yield


def _format_event(redactor: Redactor, sequence: Callable[[], int] | None) -> Any:
    """The processor: place, time and level in front, the traceback as text, nothing secret."""

    def process(_logger: Any, method: str, event: Event) -> tuple[tuple[Event], dict[str, Any]]:
        error = event.pop("exc_info", None)
        dressed: Event = {}
        if sequence is not None:
            dressed = {
                "attempt": event.pop("attempt", None),
                "step": event.pop("step", None),
                "seq": sequence(),
            }
        dressed.update(time=now(), level=method, event=event.pop("event", ""))
        for key, value in event.items():
            plain = value if type(value) in _NUMBERS else _bounded(redactor.tree(value, key))
            dressed[f"{key}_" if key in _OURS else key] = plain
        if error:
            dressed["traceback"] = _bounded(redactor.text(_traceback(error)))
        return (dressed,), {}

    return process


def _bounded(value: Any) -> Any:
    """A fact, its beginning and its end if it is a longer text: what a service or a row says must not fill the disk."""
    if not isinstance(value, str) or len(value) <= MOST_CHARACTERS:
        return value
    half = MOST_CHARACTERS // 2
    return f"{value[:half]}... ({len(value) - 2 * half} characters left out) ...{value[-half:]}"


def _traceback(error: Any) -> str:
    if isinstance(error, BaseException):
        return "".join(traceback.format_exception(error))
    kind, value, trace = error if isinstance(error, tuple) else sys.exc_info()
    return "".join(traceback.format_exception(kind, value, trace)) if value is not None else ""


class _Outputs:
    """The outputs of a formatted event. structlog calls the method named like the level."""

    def __init__(self, path: Path | None, settings: LogSettings, sequence: Callable[[], int] | None) -> None:
        self._settings = settings
        self._sequence = sequence
        self._console_at = LEVELS[settings.console_level] if settings.console_level else 100
        self._file_at = LEVELS[settings.file_level] if settings.file_level else 100
        self._writer = JsonlWriter(path, scrub=settings.redactor.text) if path is not None else None

    def _write(self, event: Event) -> None:
        level = LEVELS[event["level"]]
        if self._writer is not None and level >= self._file_at:
            self._writer.write(event)
        if event["level"] == "warning":
            self._settings.warned(event)
        if level >= self._console_at and event["event"] not in self._settings.told:
            filed = self._writer is not None
            lost = self._settings.console.show(
                lambda colours: self._settings.redactor.text(_line(event, colours=colours, filed=filed))
            )
            if lost is not None and self._writer is not None:
                self._writer.write(self._note("console.lost", reason=lost, like=event))

    def _note(self, name: str, *, reason: str, like: Event) -> Event:
        """An event of the log itself, at the place of another."""
        place = {key: like[key] for key in ("attempt", "step") if key in like}
        if self._sequence is not None:
            place["seq"] = self._sequence()
        return {**place, "time": now(), "level": "warning", "event": name, "reason": reason}

    debug = info = warning = error = critical = _write


_COLOURS = {"debug": "2", "info": "36", "warning": "33", "error": "31", "critical": "31"}


def _line(event: Event, *, colours: bool, filed: bool) -> str:
    """One event for people: time, level, event, facts. A traceback follows below, unless it is on file."""
    level, name = event["level"], event["event"]
    facts = " ".join(
        f"{key}={_short(value)}"
        for key, value in event.items()
        if key not in {"attempt", "seq", "time", "level", "event", "traceback"} and value is not None
    )
    mark = f"\x1b[{_COLOURS[level]}m{level:<7}\x1b[0m" if colours else f"{level:<7}"
    text = f"{event['time'][11:19]} {mark} {name} {facts}".rstrip()
    trace = event.get("traceback")
    return f"{text}\n{trace.rstrip()}" if trace and not filed else text


def _short(value: Any) -> str:
    if isinstance(value, str):
        return value if value and value.isprintable() and " " not in value else encode_record(value)
    return f"{value:.6g}" if isinstance(value, float) else encode_record(value)
