"""A plugin's signatures alongside those of its kind's protocol."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from evsys import protocols

__all__ = ["Method", "methods_of"]

_FREE_ASYNCNESS = {"Verifier"}
"""Protocols whose method may be plain or async."""


class Method:
    """A method of a protocol, and what a plugin has in its place.

    Args:
        protocol: the protocol's class.
        name: the method.
        plugin: the class, or the bare function that represents its one method.
    """

    def __init__(self, protocol: type, name: str, plugin: Any) -> None:
        self.name = name
        self.bare = not isinstance(plugin, type)
        self._protocol = protocol
        self._asked = getattr(protocol, name)
        self._own, self._has_self = (plugin, False) if self.bare else _find_attribute(plugin, name)

    @property
    def wanted(self) -> str:
        """The protocol's signature, without `self`."""
        asked = inspect.signature(self._asked)
        parameters = list(asked.parameters.values())[1:]
        return str(asked.replace(parameters=parameters)).replace("'", "")

    @property
    def keyword(self) -> str:
        """`async def` or `def`, as the protocol has it."""
        return "async def" if inspect.iscoroutinefunction(self._asked) else "def"

    @property
    def asyncness_fault(self) -> str | None:
        """The fault if `async def` is used or missing against the protocol."""
        if self._protocol.__name__ in _FREE_ASYNCNESS:
            return None
        if inspect.iscoroutinefunction(self._asked) == _is_async(self._own):
            return None
        return f"{self.name} is {'not an ' if self.keyword == 'async def' else 'an '}`async def`"

    def signature_faults(self, bound: Collection[str]) -> Iterator[str]:
        """Ways in which evsys calls the method and the plugin can't be called.

        Args:
            bound: names that building a bare function has given already.
        """
        try:
            own = inspect.signature(self._own)
        except (TypeError, ValueError) as exc:
            yield f"{self.name} has no signature: {exc}"
            return
        wanted = list(inspect.signature(self._asked).parameters.values())[1:]
        plain = [p.name for p in wanted if p.kind is not p.KEYWORD_ONLY and p.default is p.empty]
        others = [p.name for p in wanted if p.name not in plain]
        by_place = [p.name for p in wanted if p.kind is not p.KEYWORD_ONLY]
        given = dict.fromkeys(name for name in bound if name in own.parameters)
        if "rollout" in own.parameters and self._protocol.__name__ == "Verifier":
            given["rollout"] = None
        calls: list[tuple[list[str], list[str]]] = [(plain, []), (by_place, []), (plain, others)]
        if self.name != "__call__" and not self.bare:
            calls.append(([], [*plain, *others]))
        for places, names in calls:
            call = ", ".join([*places, *(f"{name}=..." for name in names)])
            try:
                own.bind(*[None] * (len(places) + self._has_self), **{**dict.fromkeys(names), **given})
            except TypeError as exc:
                has = str(own).replace("'", "")
                yield f"{self.name}{has} can't be called as {self.name}({call}): {exc}"
                return


def methods_of(kind: str, plugin: Any) -> list[Method]:
    """The methods that the protocol of a kind asks for, with the plugin's own.

    A metric may have either of two methods, and those that it has are looked at.
    """
    asked = [getattr(protocols, kind.title().replace("_", ""), None)]
    if kind == "metric":
        asked.append(protocols.RolloutMetric)
    found = []
    for protocol in filter(None, asked):
        for name, value in vars(protocol).items():
            public = name == "__call__" or not name.startswith("_")
            if (
                public
                and inspect.isfunction(value)
                and (not isinstance(plugin, type) or _find_attribute(plugin, name)[0])
            ):
                found.append(Method(protocol, name, plugin))
    return found


def _find_attribute(plugin: type, name: str) -> tuple[Any, bool]:
    """The attribute of a class by name, and whether the object is its first argument."""
    for base in plugin.__mro__:
        if name in vars(base):
            own = vars(base)[name]
            if isinstance(own, staticmethod | classmethod):
                return getattr(plugin, name), False
            return own, inspect.isfunction(own)
    return None, False


def _is_async(function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    call = function if inspect.isroutine(function) else getattr(type(function), "__call__")  # noqa: B004, B009 - how an object is called
    return inspect.iscoroutinefunction(call)
