"""The hook manager: the listeners of an experiment and its runs, and how they are called.

pluggy holds specs and implementations. Calling is our own: pluggy stops at the first exception, calls the newest
listener first and leaves coroutines unawaited.
"""

from __future__ import annotations

import errno
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pluggy

from evsys import hookspecs
from evsys._plugins.refusals import closest
from evsys.errors import PLUGIN_FAILURES, PluginContractError

if TYPE_CHECKING:
    from evsys.protocols import Log

__all__ = ["HookManager"]

_LOG = logging.getLogger("evsys.hooks")

_GONE = {errno.EPIPE, errno.EIO}
"""Errors of writing to a pipe without a reader or to a closed terminal: every later write fails as well."""


class _HungError(Exception):
    """A listener didn't come back in time."""


class _Listeners(pluggy.PluginManager):
    """Takes functions for hook implementations by their name alone, marked or not."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        marked = super().parse_hookimpl_opts(plugin, name)
        by_name = name.startswith("evsys_") and inspect.isroutine(inspect.getattr_static(plugin, name, None))
        return marked or ({"specname": name} if by_name else None)


class HookManager:
    """The listeners of an experiment, or by `child` those of one of its runs.

    Failures of listeners are logged to `log`, by default the logger `evsys.hooks` of the standard library. A
    listener that fails still gets the next event, unless the file it writes to is gone or it didn't return within
    `seconds`: it is left out from then on. Only awaited calls can be given up; `hung` is called just before that.
    """

    def __init__(
        self,
        parent: HookManager | None = None,
        *,
        log: Log | None = None,
        seconds: float | None = None,
        hung: Callable[[str], None] | None = None,
    ) -> None:
        self._parent = parent
        self._log = log
        self._seconds = seconds
        self._hung = hung
        self._closed = False
        self._listeners = _Listeners(hookspecs.PROJECT)
        self._listeners.add_hookspecs(hookspecs)
        self._failures: Counter[str] = Counter()

    @property
    def warnings(self) -> list[str]:
        """A line for each way in which listeners failed here, with how often they did."""
        return [text if n == 1 else f"{text} ({n} times)" for text, n in self._failures.items()]

    def child(
        self,
        *,
        log: Log | None = None,
        seconds: float | None = None,
        hung: Callable[[str], None] | None = None,
    ) -> HookManager:
        """A manager for one run: what it emits reaches the listeners of this one first, then its own."""
        return HookManager(self, log=log, seconds=self._seconds if seconds is None else seconds, hung=hung)

    def register(self, plugin: Any, name: str | None = None) -> None:
        """Add a listener: an object or a module with `evsys_*` functions, marked with `hookimpl` or not.

        Raises:
            PluginContractError: it knows a hook or an argument that there isn't, or is registered already.
        """
        label: str = name or getattr(plugin, "__name__", None) or type(plugin).__name__
        for attribute in dir(plugin):
            options = self._listeners.parse_hookimpl_opts(plugin, attribute)
            if options:
                _check(label, options, options["specname"] or attribute, getattr(plugin, attribute))
        same = sum(known.partition("#")[0] == label for known, _ in self._listeners.list_name_plugin())
        try:
            self._listeners.register(plugin, f"{label}#{same + 1}" if same else label)
            self._listeners.check_pending()
        except (ValueError, pluggy.PluginValidationError) as exc:
            raise PluginContractError(f"listener {label!r} can't be registered: {exc}") from exc

    def close(self) -> None:
        """Call no listener any more: the experiment or run has ended, even if something still emits."""
        self._closed = True

    async def emit(self, hook: str, /, **arguments: Any) -> list[Any]:
        """Call every listener, in the order of registration, and return the results that aren't None."""
        results = [await self._tell(listener, hook, arguments) for listener in self._implementations(hook)]
        return [result for result in results if result is not None]

    async def first(self, hook: str, /, **arguments: Any) -> Any:
        """Ask the listeners in turn and return the first result that isn't None, or None."""
        for listener in self._implementations(hook):
            result = await self._tell(listener, hook, arguments)
            if result is not None:
                return result
        return None

    def _implementations(self, hook: str) -> Iterator[pluggy.HookImpl]:
        if hook not in hookspecs.HOOKS:
            raise PluginContractError(f"there is no hook {hook!r}", hint=closest(hook, hookspecs.HOOKS))
        if self._closed:
            return
        if self._parent:
            yield from self._parent._implementations(hook)  # noqa: SLF001 - its own kind
        caller: pluggy.HookCaller = getattr(self._listeners.hook, hook)
        yield from sorted(caller.get_hookimpls(), key=lambda listener: listener.trylast - listener.tryfirst)

    async def _tell(self, listener: pluggy.HookImpl, hook: str, arguments: dict[str, Any]) -> Any:
        try:
            parameters = inspect.signature(listener.function).parameters.values()
            everything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
            names = arguments if everything else [p.name for p in parameters if p.name in arguments]
            result = listener.function(**{name: arguments[name] for name in names})
            return await self._await_result(result, listener, hook) if inspect.isawaitable(result) else result
        except PLUGIN_FAILURES as exc:
            if isinstance(exc, _HungError):
                why: str | None = f"{hook} didn't come back within {self._seconds:g} s"
            elif isinstance(exc, OSError) and exc.errno in _GONE:
                why = f"the reader of its output has gone ({exc})"
            else:
                why = None
            if why is not None:
                self._leave_out(listener.plugin)
                self._note(f"listener {listener.plugin_name!r}: {why}, so it was left out from then on", exc)
            else:
                self._note(
                    f"listener {listener.plugin_name!r} failed in {hook}: {type(exc).__name__}: {exc}", exc
                )
            return None

    async def _await_result(self, result: Awaitable[Any], listener: pluggy.HookImpl, hook: str) -> Any:
        if self._seconds is None:
            return await result
        import asyncio

        alarm = None
        if self._hung is not None:
            what = f"listener {listener.plugin_name!r} in {hook}"
            alarm = asyncio.get_running_loop().call_later(self._seconds, self._hung, what)
        deadline = asyncio.timeout(self._seconds)
        try:
            async with deadline:
                return await result
        except TimeoutError as exc:
            raise (_HungError() if deadline.expired() else exc) from exc
        finally:
            if alarm is not None:
                alarm.cancel()

    def _note(self, text: str, exc: BaseException) -> None:
        self._failures[text] += 1
        if self._log is None:
            _LOG.warning(text, exc_info=exc)
        elif self._failures[text] == 1:  # each time would be once a step; the count is in `warnings`
            self._log.warning("listener.failed", reason=text, exc_info=exc)

    def _leave_out(self, plugin: Any) -> None:
        """Forget a listener of this manager, or of one above it."""
        if self._listeners.is_registered(plugin):
            self._listeners.unregister(plugin)
        elif self._parent:
            self._parent._leave_out(plugin)  # noqa: SLF001 - its own kind


def _check(label: str, options: Mapping[str, Any], hook: str, function: Callable[..., Any]) -> None:
    """See that an implementation has a hook and arguments that there are."""
    if hook not in hookspecs.HOOKS:
        hint = closest(hook, hookspecs.HOOKS) or f"hooks: {', '.join(hookspecs.HOOKS)}"
        raise PluginContractError(f"listener {label!r}: there is no hook {hook!r}", hint=hint)
    if options.get("wrapper") or options.get("hookwrapper"):
        raise PluginContractError(
            f"listener {label!r}: {hook} can't be wrapped", hint="leave out `wrapper=True`"
        )
    known = inspect.signature(hookspecs.HOOKS[hook]).parameters
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in known and parameter.kind is not parameter.VAR_KEYWORD:
            hint = closest(name, known) or f"its arguments: {', '.join(known)}"
            raise PluginContractError(f"listener {label!r}: {hook} has no argument {name!r}", hint=hint)
