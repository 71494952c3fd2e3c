"""The address of a rollout in the params of an agent of Harbor's: `${rollout.base_url}`, `${rollout.api_key}`, `${rollout.model}`.

They are put in for each trial, since each has another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["mentions_address", "with_address"]

_NAMED = re.compile(r"\$\{rollout\.(base_url|api_key|model)\}")


def mentions_address(tree: Any) -> bool:
    """True where params ask for the rollout's address."""
    if isinstance(tree, str):
        return _NAMED.search(tree) is not None
    if isinstance(tree, Mapping):
        return any(map(mentions_address, tree.values()))
    return isinstance(tree, list | tuple) and any(map(mentions_address, tree))


def with_address(tree: Any, address: Any) -> Any:
    """The params with the address put in; None leaves them as they are."""
    if address is None:
        return tree
    if isinstance(tree, str):
        return _NAMED.sub(lambda found: str(getattr(address, found[1])), tree)
    if isinstance(tree, Mapping):
        return {key: with_address(value, address) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [with_address(value, address) for value in tree]
    return tree
