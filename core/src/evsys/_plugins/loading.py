"""From an entry to the plugin: import it, and see that it offers what its kind's protocol asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from importlib import import_module
from types import FunctionType
from typing import Any

from evsys import protocols
from evsys._plugins.refusals import closest
from evsys._plugins.requirements import check_requirements, requirements_of
from evsys._plugins.scan import PluginEntry, normalized
from evsys.errors import (
    PLUGIN_FAILURES,
    PluginContractError,
    PluginIncompatibleError,
    PluginLoadError,
)

__all__ = ["check_contract", "load"]

_FUNCTIONS = frozenset(
    {"agent", "loss", "transform", "verifier"}
)  # kinds whose plugin may be a bare function


_SLOW_SECONDS = 1.0
"""An import that takes longer is told of while it lasts."""


def load(entry: PluginEntry) -> Any:
    """Import what the entry names.

    Raises:
        PluginIncompatibleError: its distribution was made for another version of evsys.
        PluginLoadError: whatever went wrong, with its cause.
    """
    check_requirements(entry)
    module, _, attribute = entry.value.partition("[")[0].replace(" ", "").partition(":")
    try:
        with _told_when_slow(entry):
            return reduce(getattr, filter(None, attribute.split(".")), import_module(module))
    except PLUGIN_FAILURES as exc:
        cause, hint = f"{type(exc).__name__}: {exc}", None
        if isinstance(exc, ModuleNotFoundError) and exc.name:
            if f"{module}.".startswith(f"{exc.name}."):
                cause = f"its module {exc.name!r} is gone"
                hint = f"reinstall or uninstall {entry.distribution}"
            else:
                cause = f"it needs {exc.name!r}, which isn't installed"
                hint = _how_to_install(entry.distribution, exc.name)
        elif isinstance(exc, AttributeError) and exc.name in attribute.split("."):
            hint = f"reinstall {entry.distribution}"
        message = f"{entry} ({entry.value}) can't be loaded: {cause}"
        facts = entry._replace(params={})._asdict()
        raise PluginLoadError(message, hint=hint, cause=cause, **facts) from exc


@contextmanager
def _told_when_slow(entry: PluginEntry) -> Iterator[None]:
    """Say whose code is being imported when that takes long, so that nobody waits before a silent terminal."""
    from threading import Timer

    timer = Timer(_SLOW_SECONDS, _tell, (f"still importing {entry} ({entry.value}), which takes long",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
    name = entry.kind.title().replace("_", "")
    callable_alone = entry.kind in _FUNCTIONS and callable(plugin) and not isinstance(plugin, type)
    if callable_alone or not hasattr(protocols, name):
        return
    lacks = [_missing(plugin, getattr(protocols, name))]
    if entry.kind == "metric":
        lacks.append(_missing(plugin, protocols.RolloutMetric))
    if all(lacks):
        members = " or ".join(", ".join(map(repr, missing)) for missing in lacks)
        own = [member for member in dir(plugin) if not member.startswith("__")]
        hint = closest(lacks[0][0], own) or f"evsys.protocols.{name} says what it does"
        raise PluginContractError(f"{entry} has no {members}, which its kind asks for", hint=hint)


def _missing(plugin: Any, protocol: Any) -> list[str]:
    asked = [name for name, value in vars(protocol).items() if isinstance(value, FunctionType)]
    asked = [name for name in asked if name == "__call__" or name[0] != "_"] + list(protocol.__annotations__)
    if not isinstance(plugin, type):
        return [name for name in asked if not hasattr(plugin, name)]
    # A class that inherits from the protocol has its empty methods, and every class has `type.__call__`.
    own = [vars(base) for base in plugin.__mro__ if not vars(base).get("_is_protocol")]
    return [name for name in asked if not any(name in members for members in own)]
