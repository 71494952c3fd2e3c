"""The pytest plugin of the conformance suite.

pytest imports this module in every run of an environment that has the suite, before coverage starts, so it imports
nothing of the product until someone asks for a check.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from evsys_conformance.report import Report
    from evsys_conformance.selection import Selection
    from evsys_conformance.timeouts import Watchdog

SUITE = "evsys_conformance.suite"
_FOR_SUBCLASSES = "test_no_check_is_overridden"
SELECTION: pytest.StashKey[Selection] = pytest.StashKey()
REPORT: pytest.StashKey[Report] = pytest.StashKey()
HUNG: pytest.StashKey[dict[tuple[str, str], str]] = pytest.StashKey()
"""The check in which each plugin hung, by `owner_of`."""
_RAISED: pytest.StashKey[dict[tuple[str, str, str], str]] = pytest.StashKey()
"""The check in which each exception of a plugin was met first, by `owner_of` and its description."""
_WATCHDOG: pytest.StashKey[Watchdog] = pytest.StashKey()
_SECONDS = 30.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's options."""
    group = parser.getgroup("evsys", "conformance of evsys plugins")
    group.addoption(
        "--evsys-conformance",
        action="append",
        default=[],
        metavar="DIST",
        help="check every evsys entry point of a distribution (DIST), one of them (DIST/NAME), or `all`",
    )
    group.addoption("--evsys-report", metavar="FILE.json", help="write what each check said")
    group.addoption(
        "--evsys-live", action="store_true", help="run checks that need a service; allow the network"
    )
    group.addoption(
        "--evsys-timeout",
        type=float,
        default=_SECONDS,
        metavar="SECONDS",
        help=f"how long a check may take (default {_SECONDS:g}; 0: as long as it likes)",
    )
    parser.addini(
        "evsys_xfail",
        "checks that are known to fail: `Class::test[distribution/name] = reason`, strict",
        "linelist",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Point the run at the suite's own module when the option asks for it."""
    config.addinivalue_line(
        "markers", "evsys_live: a conformance check that needs a service; runs with --evsys-live"
    )
    config.addinivalue_line("markers", "evsys_conformance: a check of the conformance suite")
    wanted = config.getoption("evsys_conformance")
    if not wanted:
        return
    from evsys_conformance.selection import NothingToCheckError, select

    try:
        config.stash[SELECTION] = select(wanted)
    except NothingToCheckError as exc:
        raise pytest.UsageError(f"--evsys-conformance: {exc}") from exc
    suite = str(Path(__file__).with_name("suite.py"))
    given = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
    config.args = [*given, suite]


# --- collection -----------------------------------------------------------------------------------------------------


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list[Any] | None:
    """Leave out the suite's classes for which there is nothing to check."""
    if name == _FOR_SUBCLASSES and getattr(getattr(collector, "obj", None), "__module__", "") == SUITE:
        return []
    if not isinstance(obj, type) or obj.__module__ != SUITE:
        return None
    selection = collector.config.stash.get(SELECTION, None)
    if selection is None:
        raise pytest.UsageError("the conformance suite runs by --evsys-conformance DIST")
    kind = getattr(obj, "kind", None)
    return [] if kind is not None and not selection.of_kind(kind) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the suite's own classes once for each selected entry point, or distribution."""
    cls = metafunc.cls
    if cls is None or cls.__module__ != SUITE:
        return
    selection = metafunc.config.stash[SELECTION]
    kind = getattr(cls, "kind", None)
    if kind is None:
        metafunc.parametrize("distribution", selection.distributions)
    else:
        entries = selection.of_kind(kind)
        metafunc.parametrize("entry_point", entries, ids=[entry.qualified for entry in entries])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the checks known to fail, and note which checks will run."""
    ours = [item for item in items if _is_ours(item)]
    if not ours:
        return
    _expect_failures(config, ours)
    config.stash[HUNG], config.stash[_RAISED] = {}, {}
    _set_watchdog(config)
    from evsys_conformance.declare import first_paragraph, is_behaviour
    from evsys_conformance.findings import place_of
    from evsys_conformance.report import Outcome, Report

    report = config.stash.setdefault(REPORT, Report())
    for item in ours:
        if not config.getoption("evsys_live") and item.get_closest_marker("evsys_live"):
            item.add_marker(pytest.mark.skip(reason="needs a service; run it with --evsys-live"))
        cls: Any = getattr(item, "cls", None)
        name, _, plugin = item.name.partition("[")
        outcome = Outcome(
            check=f"{cls.__name__}::{name}",
            kind=cls.kind,
            plugin=plugin.removesuffix("]") or None,
            contract=first_paragraph(getattr(item, "function", None)),
            documented=place_of(cls.kind),
            behaviour=is_behaviour(cls, name),
        )
        report.expect(item.nodeid, outcome)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Say in the report why a check didn't run."""
    for item in items:
        report = item.config.stash.get(REPORT, None)
        if report is not None:
            report.leave_out(item.nodeid)


def _expect_failures(config: pytest.Config, items: list[pytest.Item]) -> None:
    from evsys_conformance.expectations import ExpectationError, parse, stale

    selection = config.stash.get(SELECTION, None)
    try:
        expectations = parse(config.getini("evsys_xfail"))
    except ExpectationError as exc:
        raise pytest.UsageError(str(exc)) from exc
    unmatched = stale(expectations, items, None if selection is None else selection.distributions)
    if unmatched:
        raise pytest.UsageError(
            f"evsys_xfail names tests that there aren't: {', '.join(unmatched)}; delete these lines"
        )
    for expectation in expectations:
        for item in items:
            if expectation.meets(item.nodeid):
                item.add_marker(pytest.mark.xfail(reason=expectation.reason, strict=True))


# --- time -----------------------------------------------------------------------------------------------------------


def owner_of(item: pytest.Item) -> tuple[str, str]:
    """Whose check an item is: its class, and the plugin in its brackets."""
    cls: Any = getattr(item, "cls", None)
    return cls.__name__, item.name.partition("[")[2]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Any:
    """Limit the time in which a plugin is loaded and made."""
    with _time_limit(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Limit the time of a check, and let a plugin's exception fail one check: others that meet the same are skipped."""
    try:
        with _time_limit(item):
            return (yield)
    except (Exception, SystemExit) as exc:  # as evsys.errors.PLUGIN_FAILURES has it
        if HUNG not in item.config.stash or not _is_ours(item):
            raise
        from evsys_conformance.places import describe_error

        told = describe_error(exc)
        first = item.config.stash[_RAISED].setdefault((*owner_of(item), told), item.name)
        if first == item.name:
            raise
        pytest.skip(f"after {first.partition('[')[0]}: it fails in the same way: {told}")


def _is_ours(item: pytest.Item) -> bool:
    return item.get_closest_marker("evsys_conformance") is not None


@contextmanager
def _time_limit(item: pytest.Item) -> Iterator[None]:
    hung = item.config.stash.get(HUNG, None)
    watchdog = item.config.stash.get(_WATCHDOG, None)
    if hung is None or not _is_ours(item):
        if watchdog is not None:
            watchdog.stop()
        yield
        return
    from evsys_conformance.findings import Words, breach
    from evsys_conformance.timeouts import CheckTimeoutError, time_limit

    seconds = item.config.getoption("evsys_timeout")
    try:
        with time_limit(seconds, watchdog):
            yield
    except CheckTimeoutError as exc:
        hung[owner_of(item)] = item.name.partition("[")[0]
        breach(
            f"it hung: the check was not done after {seconds:g} s",
            seen=Words(f"at {exc.place}" if exc.place else "in none of the plugin's own functions"),
            wanted="an end within the time, an exception if need be; --evsys-timeout=SECONDS gives a slow plugin longer",
        )


def _set_watchdog(config: pytest.Config) -> None:
    """Keep standard error as it is before pytest captures it: a process that can't continue prints there where it
    was.

    With `faulthandler_timeout` pytest does that itself, and there is one such timer in a process.
    """
    if not float(config.getini("faulthandler_timeout") or 0) and _WATCHDOG not in config.stash:
        from evsys_conformance.timeouts import Watchdog

        config.stash[_WATCHDOG] = Watchdog(os.fdopen(os.dup(2), "w", encoding="utf-8"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the end of the run take its time."""
    if _WATCHDOG in session.config.stash:
        session.config.stash[_WATCHDOG].stop()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close what was kept."""
    if _WATCHDOG in config.stash:
        config.stash[_WATCHDOG].close()


# --- report ---------------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    """Keep the outcome of a check, and print the contract for a plugin that fails it."""
    report: pytest.TestReport = yield
    collected = item.config.stash.get(REPORT, None)
    if collected is not None:
        collected.add(report, _place_in_plugin(item, call) if report.failed else None)
        known = collected.of(item.nodeid)
        if known is not None and report.failed:
            report.sections.append(
                ("what the contract wants", f"{known.contract}\nIt is written down in {known.documented}.")
            )
    return report


def _place_in_plugin(item: pytest.Item, call: pytest.CallInfo[Any]) -> str | None:
    """The place in a plugin's own package where a check failed; None if it isn't from an entry point or failed
    elsewhere.
    """
    entry = getattr(getattr(item, "callspec", None), "params", {}).get("entry_point")
    if call.excinfo is None or entry is None or not hasattr(entry, "value"):
        return None
    from evsys_conformance.places import place_in_package

    return place_in_package(call.excinfo.value, entry.value.partition(":")[0].partition(".")[0])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the report's file and the table."""
    report = config.stash.get(REPORT, None)
    selection = config.stash.get(SELECTION, None)
    if report is None:
        return
    path = config.getoption("evsys_report")
    if path:
        report.write(config.invocation_params.dir / path, selection.distributions if selection else [])
    terminalreporter.section("evsys conformance")
    for line in report.table():
        terminalreporter.write_line(line)
