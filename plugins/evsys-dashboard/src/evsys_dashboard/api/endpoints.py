"""Endpoints: functions whose annotations say what they take and answer, for the server and for its OpenAPI document alike."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import attrs

from evsys_dashboard.api.errors import RefusedError

if TYPE_CHECKING:
    from aiohttp import web

    from evsys_dashboard.api.access import Access
    from evsys_dashboard.api.service import Service

__all__ = ["EVERY", "Call", "Endpoint", "Endpoints", "Scope", "limit", "read_query"]

EVERY = "-"
"""The project in an address that stands for all projects that the key may read."""

MOST_BODY = 1 << 16
"""Bytes of a JSON body, unless an endpoint takes more."""

type Scope = Literal["read", "write", "test", "admin"]
type Method = Literal["GET", "POST", "DELETE"]


def limit(default: int, *, most: int, least: int = 1) -> Any:
    """A field of a query: a whole number within bounds."""
    return attrs.field(default=default, validator=[attrs.validators.ge(least), attrs.validators.le(most)])


@attrs.frozen(kw_only=True)
class Call:
    """A request to an endpoint, by someone who may make it."""

    request: web.Request
    service: Service
    access: Access

    def __getitem__(self, name: str) -> str:
        """A part of the path, such as `project`."""
        return self.request.match_info[name]


@attrs.frozen(kw_only=True)
class Endpoint:
    """One of them. `query`, `body` and `answer` are attrs classes; without an `answer` the function makes its own response.

    `across`: the project may be `EVERY`. `most_body` bounds the bytes of the body.
    """

    method: Method
    path: str
    scope: Scope | None
    function: Callable[..., Awaitable[Any]]
    summary: str
    query: type | None
    body: type | None
    answer: type | None
    across: bool = False
    most_body: int = MOST_BODY


class Endpoints:
    """A list of endpoints, which grows by its decorators `get`, `post` and `delete`."""

    def __init__(self) -> None:
        self._found: list[Endpoint] = []

    def get(self, path: str, *, scope: Scope | None = "read", across: bool = False) -> Callable[[Any], Any]:
        """Answer GET requests."""
        return self._add("GET", path, scope, across=across)

    def post(
        self, path: str, *, scope: Scope | None, across: bool = False, most_body: int = MOST_BODY
    ) -> Callable[[Any], Any]:
        """Answer POST requests."""
        return self._add("POST", path, scope, across=across, most_body=most_body)

    def delete(self, path: str, *, scope: Scope | None) -> Callable[[Any], Any]:
        """Answer DELETE requests."""
        return self._add("DELETE", path, scope)

    def _add(self, method: Method, path: str, scope: Scope | None, **limits: Any) -> Callable[[Any], Any]:
        def add(function: Any) -> Any:
            hints = typing.get_type_hints(function, localns={"web": _Web})
            answer = hints.get("return")
            found = Endpoint(
                method=method,
                path=path,
                scope=scope,
                function=function,
                summary=(inspect.getdoc(function) or "").partition("\n")[0],
                query=hints.get("query"),
                body=hints.get("body"),
                answer=answer if attrs.has(answer) else None,  # type: ignore[arg-type]  # any class may be asked
                **limits,
            )
            self._found.append(found)
            return function

        return add

    def all(self) -> list[Endpoint]:
        """Each of them, as its annotations describe it."""
        return list(self._found)


class _Web:
    """Stands for aiohttp's module in annotations, which describe nothing of its classes."""

    StreamResponse = object
    Response = object


def read_query[T](cls: type[T], values: Mapping[str, str], several: Callable[[str], list[str]]) -> T:
    """The parameters in an address as an object.

    Raises:
        RefusedError: one is unknown, or of another type.
    """
    hints = typing.get_type_hints(cls)
    unknown = [name for name in values if name not in hints]
    if unknown:
        near = get_close_matches(unknown[0], list(hints), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(hints)}"
        raise RefusedError(400, f"unknown parameter {unknown[0]!r}", hint=hint)
    missing = [
        field.name
        for field in attrs.fields(cls)  # type: ignore[arg-type]  # the queries of endpoints are attrs classes
        if field.default is attrs.NOTHING and field.name not in values
    ]
    if missing:
        raise RefusedError(400, f"parameter {missing[0]!r} is missing")
    try:
        return cls(**{name: _value(name, hints[name], several(name)) for name in values})
    except ValueError as exc:
        raise RefusedError(400, str(exc)) from exc


def _value(name: str, hint: Any, given: list[str]) -> Any:
    if get_origin(hint) is tuple:
        return tuple(_value(name, get_args(hint)[0], [each]) for each in given)
    text = given[-1]
    if get_origin(hint) in {types.UnionType, Union}:
        hint = next(part for part in get_args(hint) if part is not type(None))
    hint = getattr(hint, "__value__", hint)
    if get_origin(hint) is Literal:
        if text not in get_args(hint):
            raise ValueError(f"{name}: {text!r} is not one of {', '.join(map(str, get_args(hint)))}")
        return text
    if hint is bool:
        if text not in {"true", "false"}:
            raise ValueError(f"{name}: expected true or false, got {text!r}")
        return text == "true"
    if hint in {int, float}:
        try:
            number = hint(text)
        except ValueError:
            raise ValueError(f"{name}: expected a number, got {text!r}") from None
        if not abs(number) < 2**63:
            raise ValueError(f"{name}: {text} is out of range")
        return number
    return text
