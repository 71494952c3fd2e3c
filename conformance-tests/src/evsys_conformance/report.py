"""The results of the checks, as a document that a plugin can publish and as a table."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pytest

__all__ = ["DESELECTED", "FORMAT", "Outcome", "Report", "report_schema"]

FORMAT: Literal[1] = 1
DESELECTED = "it was deselected"
_PLUGINS_SHOWN = 3

type Word = Literal["passed", "failed", "skipped", "xfailed", "not run"]


@dataclass
class Outcome:
    """The outcome of one check of one plugin (None for an object that a subclass made), or of one distribution
    (then `kind` is None).

    `contract` is the tested requirement, `documented` the place where it is documented. `reason` is the fault of a
    failed check, or why one was skipped or is known to fail. `seconds` is the check's own time, without its
    fixtures. `behaviour` is true for a check of the kind's own that calls the plugin; others look at its import,
    params and declarations.
    """

    check: str
    kind: str | None
    plugin: str | None
    contract: str
    documented: str
    outcome: Word = "not run"
    reason: str | None = None
    seconds: float = 0.0
    behaviour: bool = False

    @property
    def label(self) -> str:
        """Whose check it is: a plugin, or the class that a subclass of the suite's is called."""
        return self.plugin or self.check.partition("::")[0]


@dataclass
class Document:
    """The whole report.

    `passed` says that every check ran, none failed, and at least one of those that look at what plugins do passed, if there
    are any such. `untried` names the plugins of which none did, with the reasons.
    """

    format: Literal[1]
    passed: bool
    python: str
    protocols: list[int]
    versions: dict[str, str | None]
    counts: dict[str, int]
    seconds: float
    untried: dict[str, list[str]] = field(default_factory=dict)
    checks: list[Outcome] = field(default_factory=list)


def report_schema() -> dict[str, Any]:
    """JSON Schema of the document that `--evsys-report` writes."""
    from evsys import schema_for_config

    return schema_for_config(Document)


class Report:
    """Collects the outcome of each check of each plugin."""

    def __init__(self) -> None:
        self._outcomes: dict[str, Outcome] = {}

    def expect(self, nodeid: str, outcome: Outcome) -> None:
        """Note that a check is about to run."""
        self._outcomes[nodeid] = outcome

    def of(self, nodeid: str) -> Outcome | None:
        """The facts about a check."""
        return self._outcomes.get(nodeid)

    def leave_out(self, nodeid: str) -> None:
        """Note that a check was deselected."""
        if nodeid in self._outcomes:
            self._outcomes[nodeid].reason = DESELECTED

    def add(self, report: pytest.TestReport, place: str | None = None) -> None:
        """Take in what one phase of a test gave, and where in the plugin; a failure in any phase is one."""
        entry = self._outcomes.get(report.nodeid)
        if entry is None or entry.outcome == "failed":
            return
        if report.when == "call":
            entry.seconds = round(report.duration, 4)
        if report.failed:
            entry.outcome, entry.reason = "failed", _reason(report, place)
        elif hasattr(report, "wasxfail"):
            entry.outcome, entry.reason = "xfailed", report.wasxfail
        elif report.skipped:
            entry.outcome, entry.reason = "skipped", _skip_reason(report)
        elif report.when == "call":
            entry.outcome = "passed"

    @property
    def outcomes(self) -> list[Outcome]:
        """One entry a check and plugin."""
        return list(self._outcomes.values())

    def counts(self) -> dict[str, int]:
        """How many checks had which outcome."""
        return dict(Counter(str(entry.outcome) for entry in self.outcomes))

    def untried(self) -> dict[str, list[str]]:
        """Plugins of which every check of what they do was skipped, though no other failed, with the reasons."""
        reasons: dict[str, list[str]] = {}
        tried = {entry.label for entry in self.outcomes if entry.outcome == "failed"}
        for entry in self.outcomes:
            if not entry.behaviour:
                continue
            if entry.outcome == "skipped":
                reasons.setdefault(entry.label, []).append(str(entry.reason))
            else:
                tried.add(entry.label)
        return {name: list(dict.fromkeys(why)) for name, why in reasons.items() if name not in tried}

    def _tries_something(self) -> bool:
        """False when there are checks of what plugins do, and all were skipped."""
        words = [entry.outcome for entry in self.outcomes if entry.behaviour]
        return not words or any(word != "skipped" for word in words)

    def document(self, distributions: list[str]) -> dict[str, Any]:
        """The whole report as JSON values."""
        from evsys.protocols import PROTOCOL_VERSIONS

        counts = self.counts()
        document = Document(
            format=FORMAT,
            passed=counts.get("passed", 0) > 0
            and not counts.keys() & {"failed", "not run"}
            and self._tries_something(),
            python=platform.python_version(),
            protocols=list(PROTOCOL_VERSIONS),
            versions={name: _version(name) for name in ("evsys-core", "evsys-conformance", *distributions)},
            counts=counts,
            seconds=round(sum(entry.seconds for entry in self.outcomes), 3),
            untried=self.untried(),
            checks=self.outcomes,
        )
        return asdict(document)

    def write(self, path: Path, distributions: list[str]) -> None:
        """Write the document."""
        text = json.dumps(self.document(distributions), ensure_ascii=False, indent=2)
        path.write_text(text + "\n", encoding="utf-8")

    def table(self) -> Iterator[str]:
        """A line a plugin, a line for each reason for which checks were skipped, and what was not tried at all."""
        plugins: dict[tuple[str, str], list[Outcome]] = {}
        for entry in self.outcomes:
            if entry.reason == DESELECTED:
                continue
            plugins.setdefault((entry.label, entry.kind or ""), []).append(entry)
        rows = [_row(name, kind, entries) for (name, kind), entries in sorted(plugins.items())]
        widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
        beside = sum(widths[1:]) + _GAP * 3
        first = max(0, min(widths[0], WIDTH - beside))
        for name, kind, said, seconds in rows:
            if len(name) > first:  # a line of its own
                yield name
                name = ""
            yield f"{name:<{first}}  {kind:<{widths[1]}}  {said:<{widths[2]}}  {seconds:>{widths[3]}}"
        yield from _reasons([entry for entry in self.outcomes if entry.outcome == "skipped"])
        yield from _nothing_tried(
            self.untried(), all_of_them=not (self._tries_something() or "failed" in self.counts())
        )


WIDTH = 80
_GAP = 2
_COLUMNS = ("passed", "failed", "skipped", "xfailed", "not run")


def _row(name: str, kind: str, entries: list[Outcome]) -> tuple[str, str, str, str]:
    counts = Counter(str(entry.outcome) for entry in entries)
    said = ", ".join(f"{counts[word]} {word}" for word in _COLUMNS if counts[word])
    return name, kind, said, f"{sum(entry.seconds for entry in entries):.2f} s"


def _reasons(skipped: list[Outcome]) -> Iterator[str]:
    by_reason: dict[str, list[Outcome]] = {}
    for entry in skipped:
        by_reason.setdefault(str(entry.reason), []).append(entry)
    if by_reason:
        yield f"checks that were skipped, with the reason of each: {len(skipped)}"
    for reason, entries in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        names = list(dict.fromkeys(entry.label for entry in entries))
        more = f" and {len(names) - _PLUGINS_SHOWN} more" if len(names) > _PLUGINS_SHOWN else ""
        text = f"{reason} [{', '.join(names[:_PLUGINS_SHOWN])}{more}]"
        yield from _wrap(f"  {len(entries):>4}  ", text)


def _nothing_tried(untried: dict[str, list[str]], *, all_of_them: bool) -> Iterator[str]:
    for name, reasons in untried.items():
        yield from _wrap("", f"NOTHING TRIED of what {name} does: {'; '.join(reasons)}")
    if all_of_them:
        text = (
            "NOT PASSED: no check saw a plugin do anything. Give the suite what it needs: --evsys-live where there is a "
            "service, or in the plugin's class what the reasons above name, as conformance = {'params': {...}, ...}, or a "
            "subclass of the suite's class with fixtures (docs/reference/conformance.md)."
        )
        yield from _wrap("", text)


def _wrap(first: str, text: str) -> list[str]:
    return wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * max(len(first), 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _reason(report: pytest.TestReport, place: str | None) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return str(report.longrepr)
    message = str(crash.message)
    if message.startswith("Failed: "):
        return message.removeprefix("Failed: ")
    return f"{message} ({place or f'{crash.path}:{crash.lineno}'})"


def _skip_reason(report: pytest.TestReport) -> str:
    place = report.longrepr
    return str(place[2] if isinstance(place, tuple) else place).removeprefix("Skipped: ")


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
