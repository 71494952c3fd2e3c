"""Python functions as tools of a model: how they are described to it, and the answer to a call."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

from evsys.errors import PLUGIN_FAILURES, PluginLoadError
from evsys.types import Message, ToolCall

__all__ = ["PythonTools"]

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


class PythonTools:
    """Functions, plain or async, by the names that they have.

    Args:
        paths: where they are, as `src.tools:search` or `src.tools.search`.

    Raises:
        PluginLoadError: one can't be loaded, is not a function, or has the name of another.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        for path in paths:
            function = _load_function(path)
            if function.__name__ in self._functions:
                raise PluginLoadError(f"two tools are called {function.__name__!r}", plugin=path)
            self._functions[function.__name__] = function
        self._schemas = {
            name: _describe_function(name, function) for name, function in self._functions.items()
        }

    def shown(self, given: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
        """The tools shown to the model: those that the task describes, then the functions that it doesn't."""
        described = {tool.get("function", tool).get("name") for tool in given}
        own = (schema for name, schema in self._schemas.items() if name not in described)
        return (*given, *own)

    async def answer(self, call: ToolCall) -> Message:
        """The result of a call, or why it failed: an error is the model's to deal with."""
        try:
            said = await self._result(call)
        except PLUGIN_FAILURES as exc:
            said = f"error: {type(exc).__name__}: {exc}"
        return Message(role="tool", content=said, tool_call_id=call.id, name=call.name)

    async def _result(self, call: ToolCall) -> str:
        from evsys_runtime import in_background

        function = self._functions.get(call.name)
        if function is None:
            return f"error: there is no tool {call.name!r}; there are: {', '.join(self._functions)}"
        if not isinstance(call.arguments, Mapping):
            return "error: the arguments are not a JSON object"
        if inspect.iscoroutinefunction(function):
            result = await function(**call.arguments)
        else:
            result = await in_background(function, **call.arguments)
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


def _load_function(path: str) -> Callable[..., Any]:
    from evsys_runtime.config.agents import load_object, split_path

    parts = split_path(path)
    if parts is None:
        raise PluginLoadError(f"{path!r} is not an import path", hint="write module:function", plugin=path)
    found = load_object(*parts, what="tool")
    if not inspect.isfunction(found):
        raise PluginLoadError(f"tool {path!r} is a {type(found).__name__}, not a function", plugin=path)
    return found


def _describe_function(name: str, function: Callable[..., Any]) -> Mapping[str, Any]:
    """The function as chat templates and services take tools, by its signature and docstring."""
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError):  # annotations that name what isn't there tell nothing
        hints = {}
    parameters = inspect.signature(function).parameters
    properties = {
        each: {"type": _TYPES[hints[each]]} if hints.get(each) in _TYPES else {} for each in parameters
    }
    required = [each for each, one in parameters.items() if one.default is inspect.Parameter.empty]
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": inspect.getdoc(function) or "",
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }
