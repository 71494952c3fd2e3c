"""Each test starts in the process as it was before the first one: what a test registers is its own affair.

Plugins registered outside any project go to a registry of the process, a project's code is imported as `src` and its
root is put on the path. All of that belongs to the test during which it happens, with the fixtures that are set up for it.
"""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    with own_process_state():
        return (yield)


@contextmanager
def own_process_state() -> Generator[None]:
    """A registry of the process with nothing in it, and the path, `src` and the working directory restored at the end."""
    path, folder, modules = list(sys.path), Path.cwd(), _project_modules()
    _forget_registrations()
    try:
        yield
    finally:
        os.chdir(folder)
        sys.path[:] = path
        for name in _project_modules():
            del sys.modules[name]
        sys.modules.update(modules)
        _forget_registrations()


def _project_modules() -> dict[str, object]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "src"}


def _forget_registrations() -> None:
    if registry := sys.modules.get("evsys._plugins.registry"):
        registry._process_registry.cache_clear()
    if project := sys.modules.get("evsys_runtime.config.project"):
        project._projects = project._Projects()
