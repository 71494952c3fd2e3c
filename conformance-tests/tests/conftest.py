"""Distributions without an installer, and the suite in a process of its own."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from evsys.protocols import KINDS

TESTS = Path(__file__).parent


def lay_down(folder, distribution, entries):
    """Lay down the metadata of a distribution: what an installer leaves behind, and all that the registry reads."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", encoding="utf-8"
    )
    groups = {}
    for kind, name, value in entries:
        groups.setdefault(KINDS[kind], []).append(f"{name} = {value}")
    text = "".join(f"[{group}]\n" + "\n".join(lines) + "\n" for group, lines in groups.items())
    (info / "entry_points.txt").write_text(text, encoding="utf-8")


@dataclass
class SuiteRun:
    """The suite on its way over distributions, in a process of its own, as an author would run it."""

    folder: Path
    process: subprocess.Popen

    @classmethod
    def start(cls, folder, distributions, *, paths=()):
        folder.mkdir(parents=True, exist_ok=True)
        program = f"import sys; sys.path[:0] = {[str(path) for path in paths]}; import pytest; sys.exit(pytest.main())"
        options = [
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "error",
            "--tb=short",
            "--rootdir=.",
            "--basetemp=temp",
            "--evsys-timeout=120",  # the machine may be busy; nothing here hangs
            "--assert=plain",  # as `evsys conformance` has it: no check has an `assert`
        ]
        options += ["--evsys-report=report.json", *(f"--evsys-conformance={name}" for name in distributions)]
        with (folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", program, *options],
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return cls(folder, process)

    def report(self):
        """Wait for its end; the document that it wrote."""
        code = self.process.wait(timeout=280)
        assert code in {0, 1}, (self.folder / "output.txt").read_text(encoding="utf-8")
        return json.loads((self.folder / "report.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def install():
    """Call `install(folder, distribution, [(kind, name, "module:attribute"), ...])`."""
    return lay_down


@pytest.fixture(scope="session")
def start_suite():
    """Call `start_suite(folder, distributions, paths=...)`; `.report()` of what it gives waits for the document."""
    return SuiteRun.start


def failed(report, kind, plugin):
    """{check: reason} of the failed checks of a plugin."""
    own = [e for e in report["checks"] if (e["kind"], e["plugin"]) == (kind, plugin)]
    assert own, f"nothing was checked of {kind} {plugin}"
    return {e["check"].partition("::")[2]: e["reason"] for e in own if e["outcome"] == "failed"}


@pytest.fixture(scope="session")
def failures_of():
    """Call `failures_of(report, kind, "distribution/name")`."""
    return failed
