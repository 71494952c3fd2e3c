"""The model's functions and objects as tests see them: each use is a question to the process that has them."""

from __future__ import annotations

import builtins
from typing import IO, Any, NoReturn

from evsys_verifiers_std.code_sandbox.plain import LONGEST_LINE, as_line, decode, encode, from_line

__all__ = ["Remote", "Solution", "SolutionEndedError", "SolutionError"]


class SolutionError(Exception):
    """The model's code raised what Python has no exception for, or gave what can't be compared."""


class SolutionEndedError(Exception):
    """The process of the model's code is gone."""


class Solution:
    """The other end of the pipe."""

    def __init__(self, asked: IO[bytes], told: IO[bytes]) -> None:
        self._asked = asked
        self._told = told

    def hear(self) -> Any:
        """The next value received.

        Raises:
            Exception: as raised by the model's code, if it is a built-in type.
            SolutionError: it raised something else, or sent something that is not a value.
            SolutionEndedError: the other process has ended.
        """
        return self._read(())

    def ask(self, on: int, **request: Any) -> Any:
        """The answer to a request about one of its objects; see `hear`."""
        args = request.get("args", ())
        sent = {key: encode(value, _number) if key != "get" else value for key, value in request.items()}
        try:
            self._asked.write(as_line({"on": on, **sent}))
            self._asked.flush()
        except OSError as exc:
            raise SolutionEndedError("the program has ended") from exc
        return self._read(args)

    def _read(self, args: Any) -> Any:
        line = self._told.readline(LONGEST_LINE)
        if not line:
            raise SolutionEndedError("the program has ended")
        try:
            answer = from_line(line)
            raised = answer.get("raised")
            value = None if raised else decode(answer["value"], self._recall)
            after = decode(answer.get("args", []), self._recall)
        except Exception as exc:
            raise SolutionError("the program's answer is not a value") from exc
        if raised:
            _raise(*raised)
        for before, now in zip(args, after, strict=False):
            _copy_changes(before, now)
        return value

    def _recall(self, number: int) -> Remote:
        return Remote(self, number)


def _number(value: Any) -> int:
    if isinstance(value, Remote):
        return value.number
    raise TypeError(
        f"a {type(value).__name__} can't be given to the program, only plain values and its own objects"
    )


def _raise(name: Any, message: Any) -> NoReturn:
    kind = getattr(builtins, str(name), None)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, UnicodeError):
        raise kind(str(message))
    raise SolutionError(f"{name}: {message}")


def _copy_changes(before: Any, now: Any) -> None:
    """Do to an argument what a call did to its copy."""
    if isinstance(before, list) and isinstance(now, list):
        before[:] = now
    elif isinstance(before, dict | set) and type(before) is type(now):
        before.clear()
        before.update(now)


class Remote:
    """An object of the model's code. It can be called and has methods; it can't be compared, since it could say anything."""

    __hash__ = None  # type: ignore[assignment]  # what has no equal has no hash

    def __init__(self, solution: Solution, number: int) -> None:
        self._solution = solution
        self.number = number

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._solution.ask(self.number, args=list(args), kwargs=kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._solution.ask(self.number, get=name)

    def __eq__(self, other: object) -> bool:
        raise SolutionError("the program gave an object, not a plain value that can be compared")

    def __bool__(self) -> bool:
        raise SolutionError("the program gave an object, not a plain value that is true or false")
