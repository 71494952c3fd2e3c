"""The address of a rollout for an agent of Harbor's, which is another one for each trial.

Params may name it: `${rollout.base_url}`, `${rollout.api_key}`, `${rollout.model}`. An agent whose params name no model at all gets it
in the ways in which such agents expect it: by the arguments of its constructor, and by environment variables.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["connect_agent", "mentions_address", "names_no_model", "with_address"]

_CONNECTION = frozenset({"model_name", "api_base", "base_url", "api_key", "model_api_key_name"})
"""Params that say which model an agent asks, or where. With any of them the agent is left to ask what it was given."""

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


def names_no_model(params: Mapping[str, Any]) -> bool:
    """Whether params leave open which model the agent asks: it is then given the rollout's."""
    return not (_CONNECTION & params.keys() or mentions_address(params))


def connect_agent(agent: type, params: Mapping[str, Any], address: Any) -> dict[str, Any]:
    """The params of an agent that knows nothing of evsys, with the rollout's model, its address and its key.

    Every agent of Harbor's takes `model_name`, whose first part names the protocol, and variables in `env`.
    `api_base`, `api_key` and the `api_key` in `llm_kwargs` are given to a constructor that names such an argument,
    `base_url` to an agent with a `MODEL_CONNECTION`, the only ones from which Harbor accepts it. Params set by the
    user take precedence.

    Args:
        agent: the agent's class.
        params: its params.
        address: of the rollout.
    """
    named = _arguments(agent)
    found: dict[str, Any] = {
        **params,
        "model_name": f"openai/{address.model}",
        "env": {**address.env, **params.get("env", {})},
    }
    if "api_base" in named:
        found["api_base"] = address.base_url
    if "api_key" in named:
        found["api_key"] = address.api_key
    if "llm_kwargs" in named:
        found["llm_kwargs"] = {"api_key": address.api_key, **(params.get("llm_kwargs") or {})}
    if getattr(agent, "MODEL_CONNECTION", None) is not None:
        found["base_url"] = address.base_url
    return found


def _arguments(agent: type) -> frozenset[str]:
    """The arguments that the constructors of a class and of its bases name, up to Harbor's own base class."""
    named: set[str] = set()
    for cls in agent.__mro__:
        if cls.__module__ == "harbor.agents.base":
            break
        if "__init__" in vars(cls):
            named |= inspect.signature(cls.__init__).parameters.keys()  # type: ignore[misc]  # of a class, not an object
    return frozenset(named)
