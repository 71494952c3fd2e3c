"""From an entry to the plugin: import it, and see that it offers what its kind's protocol asks for."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial, reduce
from importlib import import_module
from inspect import getattr_static
from threading import Event, Lock, Thread, get_ident
from types import FunctionType
from typing import Any

from evsys import protocols
from evsys._plugins.refusals import closest
from evsys._plugins.requirements import check_requirements, requirements_of
from evsys._plugins.scan import PluginEntry, normalized
from evsys._plugins.shape import is_config
from evsys.errors import PLUGIN_FAILURES, PluginContractError, PluginIncompatibleError, PluginLoadError

__all__ = ["SLOW_SECONDS", "check_contract", "importing", "load"]

# Kinds whose plugin may be a bare function.
_FUNCTIONS = frozenset({"agent", "loss", "transform", "verifier"})

SLOW_SECONDS = 2.0
"""CPU time of an import reported while it lasts. Not wall time, which on a loaded machine is long for any import."""

SILENT_SECONDS = 15.0
"""Wall time after which an import is reported in any case: one that waits for the network takes no CPU time."""

_LOOK_SECONDS = 0.25


def load(entry: PluginEntry) -> Any:
    """Import what the entry names.

    Raises:
        PluginIncompatibleError: its distribution was made for another version of evsys.
        PluginLoadError: any other failure, with its cause.
    """
    check_requirements(entry)
    module, _, attribute = entry.value.partition("[")[0].replace(" ", "").partition(":")
    try:
        with importing(f"{entry} ({entry.value})"):
            return reduce(getattr, filter(None, attribute.split(".")), import_module(module))
    except PLUGIN_FAILURES as exc:
        cause, hint = f"{type(exc).__name__}: {exc}", None
        if isinstance(exc, ModuleNotFoundError) and exc.name:
            if f"{module}.".startswith(f"{exc.name}."):
                cause = f"its module {exc.name!r} is gone"
                hint = f"reinstall or uninstall {entry.distribution}, or correct its entry point"
            else:
                cause = f"it needs {exc.name!r}, which isn't installed"
                hint = _how_to_install(entry.distribution, exc.name)
        elif isinstance(exc, AttributeError) and exc.name in attribute.split("."):
            hint = closest(exc.name, dir(exc.obj)) or f"reinstall {entry.distribution}"
        message = f"{entry} ({entry.value}) can't be loaded: {cause}"
        raise PluginLoadError(message, hint=hint, cause=cause, **entry._replace(params={})._asdict()) from exc


_aside: list[Any] = []  # an item for each import that continues: what standard output was when it began
_one_at_a_time = Lock()


@contextmanager
def importing(what: str) -> Iterator[None]:
    """Around an import of someone's code: no one waits before a silent terminal, or finds its words among an answer's.

    An import that takes long is reported while it lasts, and what is printed goes to standard error. Unlike after
    `contextlib.redirect_stdout`, standard output is what it was where several threads import.
    """
    done = Event()
    Thread(target=_watch, args=(what, done, _cpu_clock()), daemon=True).start()
    with _one_at_a_time:
        _aside.append(sys.stdout)
        sys.stdout = sys.stderr
    try:
        yield
    finally:
        done.set()
        with _one_at_a_time:
            first = _aside.pop()
            sys.stdout = sys.stderr if _aside else first


def _cpu_clock() -> Callable[[], float]:
    """Seconds of CPU time that this thread has used, for any thread to read; of the process on systems without such a clock."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.process_time
    return partial(time.clock_gettime, time.pthread_getcpuclockid(get_ident()))


def _watch(what: str, done: Event, used: Callable[[], float]) -> None:
    """Report an import that takes long, once."""
    with suppress(OSError):  # the thread has ended, its import with it, and no one can read its clock
        before, began = used(), time.monotonic()
        while not done.wait(min(_LOOK_SECONDS, SLOW_SECONDS)):
            if used() - before >= SLOW_SECONDS or time.monotonic() - began >= SILENT_SECONDS:
                _tell(f"still importing {what}, which takes long")
                return


def _tell(text: str) -> None:
    from logging import getLogger  # without a handler it writes warnings to standard error

    getLogger("evsys.plugins").warning(text)


def _how_to_install(distribution: str, module: str) -> str:
    package = normalized(module.partition(".")[0])
    for name, _versions, marker in requirements_of(distribution):
        extra = re.search(r"""extra\s*==\s*['"]([^'"]+)""", marker)
        if extra and name == package:
            return f"install it with: pip install '{distribution}[{extra[1]}]'"
    return f"install it, or reinstall {distribution}"


def check_contract(entry: PluginEntry, plugin: Any) -> None:
    """See that a plugin's protocol version and members are what its kind asks for.

    Raises:
        PluginIncompatibleError: it speaks another version of the protocol.
        PluginContractError: a member is missing.
    """
    version, newest = getattr(plugin, "protocol", 1), protocols.PROTOCOL_VERSIONS[-1]
    if not isinstance(version, int) or isinstance(version, bool):
        raise PluginContractError(f"{entry} declares protocol = {version!r}, which isn't an integer")
    if version not in protocols.PROTOCOL_VERSIONS:
        hint = f"upgrade {'evsys-core' if version > newest else entry.distribution}"
        message = f"{entry} speaks protocol {version}, and this evsys-core speaks {newest}"
        raise PluginIncompatibleError(message, hint=hint)
    if near := _almost_config(plugin):
        hint = "call it 'Config', or begin its name with '_' if it isn't for params"
        raise PluginContractError(
            f"{entry} has a class {near!r}, and params are read from 'Config'", hint=hint
        )
    name = entry.kind.title().replace("_", "")
    callable_alone = entry.kind in _FUNCTIONS and callable(plugin) and not isinstance(plugin, type)
    if callable_alone or not hasattr(protocols, name):
        return
    either = [getattr(protocols, name), *([protocols.RolloutMetric] if entry.kind == "metric" else [])]
    lacks = [_missing(plugin, protocol) for protocol in either]
    if all(lacks):
        members = " or ".join(", ".join(map(repr, missing)) for missing in lacks)
        own = [member for member in dir(plugin) if not member.startswith("__")]
        hint = closest(lacks[0][0], own) or f"see evsys.protocols.{name}"
        raise PluginContractError(f"{entry} has no {members}, which its kind asks for", hint=hint)


def _almost_config(plugin: Any) -> str | None:
    """A class inside a plugin without params whose name is nearly `Config`."""
    if hasattr(plugin, "Config") or is_config(plugin):
        return None
    names = {name.lower(): name for name in dir(plugin) if name[0] != "_"}
    near = [names[name] for name in get_close_matches("config", names, cutoff=0.8)]
    return next((name for name in near if isinstance(getattr_static(plugin, name), type)), None)


def _missing(plugin: Any, protocol: Any) -> list[str]:
    asked = [name for name, value in vars(protocol).items() if isinstance(value, FunctionType)]
    asked = [name for name in asked if name == "__call__" or name[0] != "_"] + list(protocol.__annotations__)
    if not isinstance(plugin, type):
        return [name for name in asked if not hasattr(plugin, name)]
    # A class that inherits from the protocol has its empty methods, and every class has `type.__call__`.
    own = [vars(base) for base in plugin.__mro__ if not vars(base).get("_is_protocol")]
    return [name for name in asked if not any(name in members for members in own)]
