"""`evsys conformance`: the suite on installed plugins, from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

__all__ = ["conformance"]

PASSED = 0
PLUGIN_IS_WRONG = 3
INTERRUPTED = 130
_PYTEST_FAILED, _PYTEST_INTERRUPTED = 1, 2


@click.command()
@click.argument("distributions", metavar="DIST", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")
@click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), help="Also write the report to a file."
)
@click.option("--live", is_flag=True, help="Run checks that need a service; allow the network.")
@click.option("--timeout", type=float, metavar="SECONDS", help="Time limit of each check.  [default: 30]")
def conformance(
    *, distributions: tuple[str, ...], as_json: bool, report: Path | None, live: bool, timeout: float | None
) -> int:
    """Check the plugins of the distribution DIST against their kinds' contracts.

    DIST may also be one plugin, written distribution/name, or `all`. The exit code is 0 if every check passes, else 3.
    """
    from evsys.errors import PluginError, PluginNotFoundError
    from evsys_conformance.selection import NothingToCheckError, select

    _tell_of_lists()
    try:
        select(distributions)
    except NothingToCheckError as exc:
        for name in distributions:
            if name == "project" or Path(name).is_dir():
                raise click.UsageError(_instead_of_folder(name)) from exc
        raise PluginNotFoundError(str(exc)) from exc
    with tempfile.TemporaryDirectory(prefix="evsys-conformance-") as folder:
        path = Path(folder) / "report.json"
        options = ["--evsys-live"] if live else []
        options += [] if timeout is None else [f"--evsys-timeout={timeout}"]
        code = _run(distributions, path, options, quiet=as_json)
        if code == _PYTEST_INTERRUPTED:
            return INTERRUPTED
        if code not in {PASSED, _PYTEST_FAILED} or not path.exists():
            raise PluginError(f"pytest ended with {code} and no result", hint="its own message is above")
        text = path.read_text(encoding="utf-8")
    if report is not None:
        report.write_text(text, encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    if as_json:
        click.echo(text, nl=False)
    return PASSED if document["passed"] and code == PASSED else PLUGIN_IS_WRONG


def _tell_of_lists() -> None:
    """Say what keeps plugins from being found at all, such as a misspelt group of entry points."""
    from evsys import Registry

    registry = Registry()
    registry.entries()
    for warning in registry.warnings:
        click.echo(f"warning: {warning}", err=True)


def _instead_of_folder(name: str) -> str:
    """A hint for the plugins of a folder, which is not a distribution."""
    from tomllib import TOMLDecodeError, loads

    try:
        own = loads(Path(name, "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    except (OSError, UnicodeDecodeError, TOMLDecodeError, LookupError, TypeError):
        own = None
    install = f" Install it, and write {own}." if own else ""
    return (
        f"{name!r} isn't a distribution, and the suite checks what is installed.{install}"
        " Plugins of a project's src/ are checked in a test of the project that subclasses their kind's class,"
        " such as VerifierConformance from evsys_conformance."
    )


def _run(distributions: tuple[str, ...], report: Path, further: list[str], *, quiet: bool) -> int:
    """Run pytest in a process of its own: what this one has imported and registered is not a concern of the plugins.

    Checks have no `assert` statements, so pytest needn't rewrite any, which takes a second or two.
    """
    options = [f"--evsys-conformance={name}" for name in distributions]
    command = [sys.executable, "-m", "pytest", "-q", "--assert=plain", f"--evsys-report={report}"]
    command += [*options, *further]
    return subprocess.run(command, stdout=sys.stderr if quiet else None, check=False).returncode
