"""Locates an event in a plugin's code."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from traceback import FrameSummary, extract_tb
from typing import Any

__all__ = ["describe_error", "place_in", "place_in_package", "place_of_waiting"]

_HERE = Path(__file__).parent
_FOREIGN = ("_pytest", "pytest", "pluggy", "hypothesis", "evsys", "pytest_timeout.py", "xdist", "execnet")


def describe_error(exc: BaseException) -> str:
    """An exception as a finding reports it: its type, its message, and where in the plugin it was raised."""
    text = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
    place = place_in(extract_tb(exc.__traceback__))
    return f"{text} ({place})" if place else text


def place_in(frames: Sequence[FrameSummary]) -> str | None:
    """`file:line in function` of the innermost frame of a plugin, given a stack from the outside inwards; None without one.

    The plugin's own code begins with the first frame that is neither the suite's nor Python's, pytest's, hypothesis' or core's.
    Libraries that it calls are passed over: the fault is where it calls them.
    """
    began = next((i for i, frame in enumerate(frames) if _is_check(frame.filename)), -1)
    own = [frame for frame in frames[began + 1 :] if not _is_foreign(frame.filename)]
    if not own:
        return None
    first = Path(own[0].filename)
    package = first.parent if (first.parent / "__init__.py").exists() else None
    inner = [f for f in own if Path(f.filename) == first or package in Path(f.filename).parents]
    return f"{inner[-1].filename}:{inner[-1].lineno} in {inner[-1].name}"


def place_in_package(exc: BaseException, package: str) -> str | None:
    """`file:line in function` of a package's innermost frame, in what an exception came of rather than in itself."""
    home = Path(getattr(sys.modules.get(package), "__file__", None) or package)
    chain: list[BaseException] = []
    while exc.__cause__ is not None and exc not in chain:
        chain.append(exc)
        exc = exc.__cause__
    for one in (exc, *reversed(chain)):
        for frame in reversed(extract_tb(one.__traceback__)):
            path = Path(frame.filename)
            if path == home or (home.name == "__init__.py" and home.parent in path.parents):
                return f"{frame.filename}:{frame.lineno} in {frame.name}"
    return None


def place_of_waiting() -> str | None:
    """The place where a plugin waits in a task of this thread's running loop; None if none does."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # there is no loop
        return None
    places = (place_in(_frames_of(task.get_coro())) for task in tasks)
    return next(filter(None, places), None)


def _frames_of(coroutine: Any) -> list[FrameSummary]:
    """The stack of a coroutine that waits, from the outside inwards."""
    found = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        if frame is not None:
            found.append(FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return found


def _is_check(filename: str) -> bool:
    return _HERE / "checks" in Path(filename).parents


def _is_foreign(filename: str) -> bool:
    path = Path(filename)
    if filename.startswith("<") or _HERE in path.parents:
        return True
    paths = sysconfig.get_paths()
    for name in ("purelib", "platlib"):
        if path.is_relative_to(paths[name]):
            return path.relative_to(paths[name]).parts[0] in _FOREIGN
    import evsys

    of_core = Path(evsys.__file__).parent
    return path.is_relative_to(paths["stdlib"]) or path.is_relative_to(of_core)
