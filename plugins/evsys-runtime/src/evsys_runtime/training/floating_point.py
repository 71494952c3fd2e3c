"""Logs numbers that overflow while a model is trained, instead of numpy's warnings on the terminal.

Whether a loss or a gradient is finite is checked separately and ends the run with a reason. The log then shows the
source of the first infinity.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from evsys.protocols import Log

__all__ = ["floating_point_in"]


@contextmanager
def floating_point_in(log: Log) -> Iterator[None]:
    """Have numpy report to `log` overflows, divisions by zero and invalid operations, each kind once a line of
    code.

    It holds for this task and for the threads that its context is copied to.
    """
    told: set[tuple[str, str]] = set()

    def note(kind: str, _flag: int) -> None:
        frame = sys._getframe(1)  # noqa: SLF001 - numpy calls this from C: the line that computed is right above
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if (kind, place) not in told:
            told.add((kind, place))
            log.info("numbers.odd", what=kind, place=place)

    with np.errstate(over="call", divide="call", invalid="call", call=note):
        yield
