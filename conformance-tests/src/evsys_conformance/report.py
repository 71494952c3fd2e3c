"""What the checks said, as a document that a plugin can publish, and as a table."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
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
    """What one check said of one plugin (None for an object that a subclass made), or of one distribution (then `kind` is
    None).

    `contract` is what the check asks for, `documented` where that is written down. `reason` is what is wrong for a failed
    check, and why for one that was skipped or is known to fail. `seconds` is the check's own time, without its fixtures.
    """

    check: str
    kind: str | None
    plugin: str | None
    contract: str
    documented: str
    outcome: Word = "not run"
    reason: str | None = None
    seconds: float = 0.0

    @property
    def label(self) -> str:
        """Whose check it is: a plugin, or the class that a subclass of the suite's is called."""
        return self.plugin or self.check.partition("::")[0]


@dataclass
class Document:
    """The whole report. `passed` says that every check ran, none failed, and at least one passed."""

    format: Literal[1]
    passed: bool
    python: str
    protocols: list[int]
    versions: dict[str, str | None]
    counts: dict[str, int]
    seconds: float
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
        """What is known of a check."""
        return self._outcomes.get(nodeid)

    def leave_out(self, nodeid: str) -> None:
        """Note that a check was deselected."""
        if nodeid in self._outcomes:
            self._outcomes[nodeid].reason = DESELECTED

    def add(self, report: pytest.TestReport) -> None:
        """Take in what one phase of a test gave; a failure in any phase is one."""
        entry = self._outcomes.get(report.nodeid)
        if entry is None or entry.outcome == "failed":
            return
        if report.when == "call":
            entry.seconds = round(report.duration, 4)
        if report.failed:
            entry.outcome, entry.reason = "failed", _why(report)
        elif hasattr(report, "wasxfail"):
            entry.outcome, entry.reason = "xfailed", report.wasxfail
        elif report.skipped:
            entry.outcome, entry.reason = "skipped", _skipped(report)
        elif report.when == "call":
            entry.outcome = "passed"

    @property
    def outcomes(self) -> list[Outcome]:
        """One entry a check and plugin."""
        return list(self._outcomes.values())

    def counts(self) -> dict[str, int]:
        """How many checks had which outcome."""
        return dict(Counter(str(entry.outcome) for entry in self.outcomes))

    def document(self, distributions: list[str]) -> dict[str, Any]:
        """The whole report as JSON values."""
        from evsys.protocols import PROTOCOL_VERSIONS

        counts = self.counts()
        document = Document(
            format=FORMAT,
            passed=counts.get("passed", 0) > 0 and not counts.keys() & {"failed", "not run"},
            python=platform.python_version(),
            protocols=list(PROTOCOL_VERSIONS),
            versions={name: _version(name) for name in ("evsys-core", "evsys-conformance", *distributions)},
            counts=counts,
            seconds=round(sum(entry.seconds for entry in self.outcomes), 3),
            checks=self.outcomes,
        )
        return asdict(document)

    def write(self, path: Path, distributions: list[str]) -> None:
        """Write the document."""
        text = json.dumps(self.document(distributions), ensure_ascii=False, indent=2)
        path.write_text(text + "\n", encoding="utf-8")

    def table(self) -> Iterator[str]:
        """A line a plugin, and a line for each reason for which checks were skipped."""
        plugins: dict[tuple[str, str], list[Outcome]] = {}
        for entry in self.outcomes:
            if entry.reason == DESELECTED:
                continue
            plugins.setdefault((entry.label, entry.kind or ""), []).append(entry)
        width = max((len(name) for name, _ in plugins), default=0)
        for (name, kind), entries in sorted(plugins.items()):
            counts = Counter(str(entry.outcome) for entry in entries)
            said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
            yield f"{name:<{width}}  {kind:<16}  {said}  ({sum(entry.seconds for entry in entries):.2f} s)"
        yield from _reasons([entry for entry in self.outcomes if entry.outcome == "skipped"])


def _reasons(skipped: list[Outcome]) -> Iterator[str]:
    by_reason: dict[str, list[Outcome]] = {}
    for entry in skipped:
        by_reason.setdefault(str(entry.reason), []).append(entry)
    if by_reason:
        yield f"checks that were skipped, with the reason of each: {len(skipped)}"
    for reason, entries in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        names = list(dict.fromkeys(entry.label for entry in entries))
        more = f" and {len(names) - _PLUGINS_SHOWN} more" if len(names) > _PLUGINS_SHOWN else ""
        yield f"  {len(entries):>4}  {reason} [{', '.join(names[:_PLUGINS_SHOWN])}{more}]"


def _why(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return str(report.longrepr)
    message = str(crash.message)
    if message.startswith("Failed: "):
        return message.removeprefix("Failed: ")
    return f"{message} ({crash.path}:{crash.lineno})"


def _skipped(report: pytest.TestReport) -> str:
    place = report.longrepr
    return str(place[2] if isinstance(place, tuple) else place).removeprefix("Skipped: ")


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
