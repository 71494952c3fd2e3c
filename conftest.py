"""Settings of all tests of this repository."""

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Isolate the tests. pytest meets this file, too, where the suite's modules are run on another project."""
    if config.rootpath == Path(__file__).parent:
        # It is in tests/support, with which the path of a test run begins.
        config.pluginmanager.import_plugin("isolation")
        _as_on_a_terminal()
        # Drawing takes seconds; the tests of evsys-plots turn it on.
        os.environ["EVSYS_PLOTS"] = "off"
        # Looks taken by tests aren't looks of the user who runs them.
        os.environ["EVSYS_LOOKS"] = "off"
        _without_waiting_for_the_disk()
        if find_spec("hypothesis") is not None:  # the lint session has none
            _without_deadlines()


def _as_on_a_terminal() -> None:
    """Let Ctrl-C and hanging up reach the tests that are about them, and the processes they start: a shell's background jobs
    ignore the one, what nohup started the other.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if (hang_up := getattr(signal, "SIGHUP", None)) and signal.getsignal(hang_up) is signal.SIG_IGN:
        signal.signal(hang_up, signal.SIG_DFL)


def _without_waiting_for_the_disk() -> None:
    """Syncing protects from power cuts, which no test makes; on a busy disk it takes most of the time of a small run.

    Tests of what is synced, and when, put a function of their own in its place. Subprocesses sync.
    """
    os.fsync = lambda _fd: None


def _without_deadlines() -> None:
    """How long an example takes says how busy the machine is; speed is measured in bench/."""
    from hypothesis import settings

    settings.register_profile("evsys", deadline=None)
    settings.load_profile("evsys")
