"""What the checks said, as a document that a plugin can publish, and as a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

__all__ = ["Report"]

FORMAT = 1


class Report:
    """Collects the outcome of each check of each plugin."""

    def __init__(self) -> None:
        self._checks: dict[str, dict[str, Any]] = {}

    def expect(self, nodeid: str, check: str, kind: str | None, plugin: str | None) -> None:
        """Note that a check is about to run."""
        self._checks[nodeid] = {
            "check": check,
            "kind": kind,
            "plugin": plugin,
            "outcome": "not run",
            "reason": None,
        }

    def add(self, report: pytest.TestReport) -> None:
        """Take in what one phase of a test gave; a failure in any phase is one."""
        entry = self._checks.get(report.nodeid)
        if entry is None or entry["outcome"] == "failed":
            return
        if report.failed:
            entry |= {"outcome": "failed", "reason": _why(report)}
        elif hasattr(report, "wasxfail"):
            entry |= {"outcome": "xfailed", "reason": report.wasxfail}
        elif report.skipped:
            entry |= {"outcome": "skipped", "reason": _skipped(report)}
        elif report.when == "call":
            entry["outcome"] = "passed"

    @property
    def checks(self) -> list[dict[str, Any]]:
        """One entry a check and plugin."""
        return list(self._checks.values())

    def counts(self) -> dict[str, int]:
        """How many checks had which outcome."""
        return dict(Counter(entry["outcome"] for entry in self.checks))

    def document(self, distributions: list[str]) -> dict[str, Any]:
        """The whole report as JSON values."""
        versions = {name: _version(name) for name in ("evsys-core", "evsys-conformance", *distributions)}
        return {
            "format": FORMAT,
            "passed": not self.counts().get("failed", 0),
            "versions": versions,
            "counts": self.counts(),
            "checks": self.checks,
        }

    def write(self, path: Path, distributions: list[str]) -> None:
        """Write the document."""
        text = json.dumps(self.document(distributions), ensure_ascii=False, indent=2)
        path.write_text(text + "\n", encoding="utf-8")

    def table(self) -> Iterator[str]:
        """A line a plugin."""
        plugins: dict[tuple[str, str], Counter[str]] = {}
        for entry in self.checks:
            key = (str(entry["plugin"]), str(entry["kind"] or ""))
            plugins.setdefault(key, Counter())[entry["outcome"]] += 1
        width = max((len(name) for name, _ in plugins), default=0)
        for (name, kind), counts in sorted(plugins.items()):
            said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
            yield f"{name:<{width}}  {kind:<15}  {said}"


def _why(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr)


def _skipped(report: pytest.TestReport) -> str:
    place = report.longrepr
    return str(place[2] if isinstance(place, tuple) else place).removeprefix("Skipped: ")


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
