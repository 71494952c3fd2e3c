"""Packages that some verifiers need and that come with an extra."""

from __future__ import annotations

__all__ = ["require"]


def require(module: str, extra: str, *, verifier: str) -> None:
    """See that what a helper process imports is installed, without importing it here.

    Raises:
        PluginLoadError: it isn't; says how to install it.
    """
    from importlib.util import find_spec

    if find_spec(module) is None:
        from evsys.errors import PluginLoadError

        raise PluginLoadError(
            f"verifier {verifier!r} needs the package `{module.replace('_', '-')}`",
            hint=f"pip install 'evsys-verifiers-std[{extra}]'",
            kind="verifier",
        )
