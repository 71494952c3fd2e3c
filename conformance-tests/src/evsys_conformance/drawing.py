"""Examples for properties: the same ones in every run, on every machine, regardless of other imports."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from importlib import import_module
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

__all__ = ["PROFILE", "for_each"]

PROFILE = settings(
    derandomize=True,
    deadline=None,
    max_examples=25,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("evsys-conformance", PROFILE)

_PROVIDERS = "hypothesis.internal.conjecture.providers"


_DRAWN: dict[Hashable, list[Any]] = {}
"""Examples by what they are examples of: drawing them takes longer than most plugins take to be tried with them."""


def for_each(strategy: st.SearchStrategy[Any], holds: Callable[[Any], None], *, of: Hashable = None) -> None:
    """Call `holds` with 25 examples; what it raises is raised for the simplest example that hypothesis finds.

    Args:
        strategy: what examples are drawn from.
        holds: raises for an example that shows a fault.
        of: says what the examples are of, where the same ones do for several checks and plugins; they are drawn once.
    """
    if of is None:
        _simplest(strategy, holds)
        return
    if of not in _DRAWN:
        drawn: list[Any] = []
        _simplest(strategy, lambda example: drawn.append(deepcopy(example)))
        _DRAWN[of] = drawn
    for example in _DRAWN[of]:
        try:
            holds(deepcopy(example))
        except (Exception, pytest.fail.Exception):
            _simplest(strategy, holds)
            raise  # hypothesis draws others for `holds`, and none of them shows it


def _simplest(strategy: st.SearchStrategy[Any], holds: Callable[[Any], None]) -> None:
    try:
        with _no_constants_of_local_modules():
            PROFILE(given(strategy)(holds))()
    except pytest.fail.Exception as exc:
        exc.__notes__ = []  # a finding names its example itself
        raise


@contextmanager
def _no_constants_of_local_modules() -> Iterator[None]:
    """Hypothesis also draws numbers and texts in the source of imported modules which lie outside site-packages.
    The examples for one plugin would then depend on which others are imported, and on how it is installed.

    There is no setting for that. A version of hypothesis that does it in another way is left as it is.
    """
    providers: Any = import_module(_PROVIDERS)
    names = ("_get_local_constants", "CONSTANTS_CACHE", "Constants")
    if not all(hasattr(providers, name) for name in names):
        yield
        return
    none, cache = providers.Constants(), type(providers.CONSTANTS_CACHE)(1024)
    with (
        mock.patch.object(providers, "_get_local_constants", lambda: none),
        mock.patch.object(providers, "CONSTANTS_CACHE", cache),
    ):
        yield
