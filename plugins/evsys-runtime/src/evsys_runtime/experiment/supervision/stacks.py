"""Locates stalled work: the stacks of waiting tasks and of threads, as text."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

__all__ = [
    "place_in_threads",
    "place_of",
    "places_in_threads",
    "stack_of",
    "stacks",
    "tasks_where",
    "thread_stack",
]

type Stack = list[tuple[FrameType, int]]
"""Frames with the line that each is at, the innermost last."""

_FRAMES = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))


def tasks_where(belongs: Callable[[asyncio.Task[Any]], bool]) -> list[asyncio.Task[Any]]:
    """The tasks of every event loop that aren't done, of all threads; asyncio itself only lists those of one loop."""
    # Not isinstance, which asks an object what it claims to be: that may run anyone's code.
    found = [item for item in gc.get_objects() if issubclass(type(item), asyncio.Task)]
    return sorted((task for task in found if not task.done() and belongs(task)), key=lambda t: t.get_name())


def stack_of(task: asyncio.Task[Any]) -> Stack:
    """From a task's own coroutine to the innermost that it waits in; asyncio itself only shows the outermost of
    them.
    """
    found: Stack = []
    seen: set[int] = set()
    waits: Any = task.get_coro()
    while waits is not None and id(waits) not in seen:
        seen.add(id(waits))
        for frame_name, next_name in _FRAMES:
            frame = getattr(waits, frame_name, None)
            if frame is not None:
                found.append((frame, frame.f_lineno))
                waits = getattr(waits, next_name)
                break
        else:
            waits = _inside(waits)
    return found


def _inside(waits: Any) -> Any:
    """The coroutine or generator inside of what Python wraps around it, as `async for` and `__await__` do."""
    held = gc.get_referents(waits)
    return next((item for item in held if any(getattr(item, name, None) for name, _ in _FRAMES)), None)


def thread_stack(identity: int) -> Stack:
    """The stack of a thread; empty for one that has ended."""
    frame = sys._current_frames().get(identity)  # noqa: SLF001 - the documented way
    return list(traceback.walk_stack(frame))[::-1] if frame is not None else []


def place_of(stack: Stack, *, known: Callable[[FrameType], bool]) -> str | None:
    """`file:line in function` of the innermost frame that isn't one of those no one looks at; None where all are."""
    frames = [item for item in stack if not known(item[0])]
    if not frames:
        return None
    frame, line = frames[-1]
    return f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"


def places_in_threads(*, known: Callable[[FrameType], bool]) -> dict[int, str]:
    """The places of code that evsys runs in threads, by the identity of the thread."""
    found = {}
    for identity in sys._current_frames():  # noqa: SLF001 - the documented way
        stack = thread_stack(identity)
        ours = any(str(frame.f_globals.get("__name__")).startswith("evsys_runtime.") for frame, _ in stack)
        if identity != threading.get_ident() and ours and (place := place_of(stack, known=known)) is not None:
            found[identity] = place
    return found


def place_in_threads(
    *, known: Callable[[FrameType], bool], before: Mapping[int, str] | None = None
) -> str | None:
    """The place of code that evsys runs in a thread; None if there is none, or there are several.

    Args:
        known: tells frames of code that users don't edit.
        before: `places_in_threads` at an earlier time; a thread that hasn't moved since then has another reason.
    """
    stuck = (before or {}).items()
    found = {
        place for identity, place in places_in_threads(known=known).items() if (identity, place) not in stuck
    }
    return found.pop() if len(found) == 1 else None


def stacks(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """The stacks of these tasks, and of all threads."""
    return "\n".join([*_of_tasks(tasks), *_of_threads()])


def _of_tasks(tasks: Iterable[asyncio.Task[Any]]) -> Iterator[str]:
    for task in tasks:
        yield f"Task {task.get_name()}, the innermost call last:"
        yield _text(stack_of(task)) or "  (it has not begun)\n"


def _of_threads() -> Iterator[str]:
    for thread in threading.enumerate():
        if thread.ident is not None and (stack := thread_stack(thread.ident)):
            yield f"Thread {thread.name}, the innermost call last:"
            yield _text(stack)


def _text(stack: Stack) -> str:
    return "".join(traceback.format_list(traceback.StackSummary.extract(iter(stack))))
