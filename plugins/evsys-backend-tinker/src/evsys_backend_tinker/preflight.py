"""Finds problems between this machine and a server, within five seconds and before anything is created there.

The official client takes five minutes to report that nothing listens at an address. These are a few plain calls: is
it there, does it speak a protocol that the client knows, does it take the key, does it have the model.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from evsys.errors import ConfigError, Problem
from evsys_backend_tinker.http_json import Answer, JsonApi, UnreachableError
from evsys_backend_tinker.waiting import HEALTH

__all__ = ["SECONDS", "Server", "look_at"]

SECONDS = 5.0

_CONFIG = "/api/v1/client/config"
_TOKEN = "/api/v1/auth/token"  # noqa: S105 - an address
_CAPABILITIES = "/api/v1/get_server_capabilities"
_REFUSED = (401, 403)
_ABSENT = (404, 405, 501)


@attrs.frozen(kw_only=True)
class Server:
    """The self-description of a server.

    Attributes:
        base: the way to it, with the user's key.
        wants_token: it takes a short-lived token for the key.
        models: names that it serves, each with its longest sequence if reported; None if it lists none.
        untrainable: names of those reported as untrainable.
        deterministic: the bits of a sample don't depend on other requests; None if not reported.
        simulated: its backend only imitates a model.
    """

    base: JsonApi
    wants_token: bool
    models: Mapping[str, int | None] | None
    untrainable: frozenset[str] = frozenset()
    deterministic: bool | None = None
    simulated: bool = False

    def api(self) -> JsonApi:
        """The way to it for the next few calls; blocks where it wants a token for the key.

        Raises:
            ConfigError: it gives none.
        """
        return _with_token(self.base, _Clock(time.monotonic() + SECONDS)) if self.wants_token else self.base

    def max_length(self, model: str) -> int | None:
        """The longest sequence of a model, if the server reports it."""
        return None if self.models is None else self.models.get(model)


@attrs.define
class _Clock:
    """The rest of the five seconds."""

    end: float

    @property
    def left(self) -> float:
        return max(0.05, self.end - time.monotonic())


def look_at(api: JsonApi, model: str | None, *, version: str, seconds: float = SECONDS) -> Server:
    """Ask a server for all that a run will need. Blocks.

    Args:
        api: the server, with the user's key.
        model: the base model that is wanted; None asks for none.
        version: of the client, which is sent to servers.
        seconds: bounds all of it.

    Raises:
        ConfigError: the address, the key or the model isn't right, or the server is too old; one message.
    """
    clock = _Clock(time.monotonic() + seconds)
    health = _call(api, "GET", HEALTH, None, clock)
    if health.status in _ABSENT:
        raise _wrong(
            "base_url",
            f"{api.base_url} answers, but it is not a server of the Tinker protocol ({HEALTH}: {health.status})",
            "check backend.params.base_url; it ends before /api/v1",
        )
    _see(health, api, "is it well?")
    config = _call(api, "POST", _CONFIG, {"sdk_version": version}, clock)
    if config.status in _ABSENT:
        raise _wrong(
            "base_url",
            f"the server at {api.base_url} speaks an older Tinker protocol than the installed client, tinker {version}",
            "install the client that the server was made for, or update the server",
        )
    _see(config, api, "its configuration")
    flags = config.json()
    wants_token = isinstance(flags, Mapping) and bool(flags.get("pjwt_auth_enabled"))
    answer = _call(_with_token(api, clock) if wants_token else api, "GET", _CAPABILITIES, None, clock)
    if answer.status in _ABSENT:
        return Server(base=api, wants_token=wants_token, models=None)
    _see(answer, api, "what it serves")
    server = _server(api, wants_token, answer.json())
    if model is not None:
        _check_model(server, model)
    return server


def _call(api: JsonApi, method: str, path: str, tree: Any, clock: _Clock) -> Answer:
    try:
        return api.call(method, path, tree, seconds=clock.left)
    except UnreachableError as error:
        raise _wrong(
            "base_url",
            f"the server at {api.base_url} can't be reached: {error}",
            "check backend.params.base_url, and that the server runs",
        ) from error


def _see(answer: Answer, api: JsonApi, what: str) -> None:
    if answer.status in _REFUSED:
        raise _wrong(
            "api_key_env",
            f"the server at {api.base_url} doesn't take the key ({answer.reason})",
            "check the key in the environment variable that backend.params.api_key_env names",
        )
    if not answer.ok:
        raise _wrong(
            "base_url", f"the server at {api.base_url} isn't well: asked {what}, it answers {answer.reason}"
        )


def _with_token(api: JsonApi, clock: _Clock) -> JsonApi:
    """The way to a server that takes a short-lived token for the key."""
    answer = _call(api, "POST", _TOKEN, {}, clock)
    _see(answer, api, "for a token")
    tree = answer.json()
    token = tree.get("jwt") if isinstance(tree, Mapping) else None
    return attrs.evolve(api, key=token) if isinstance(token, str) else api


def _server(api: JsonApi, wants_token: bool, tree: Any) -> Server:
    told = tree if isinstance(tree, Mapping) else {}
    rows, fixed = told.get("supported_models"), told.get("evsys_deterministic")
    deterministic = fixed if isinstance(fixed, bool) else None
    simulated = told.get("evsys_simulated") is True
    if not isinstance(rows, Sequence):
        return Server(
            base=api, wants_token=wants_token, models=None, deterministic=deterministic, simulated=simulated
        )
    models, untrainable = {}, set()
    for row in rows:
        name = row.get("model_name") if isinstance(row, Mapping) else None
        if isinstance(name, str):
            length = row.get("max_context_length")
            models[name] = length if isinstance(length, int) and length > 0 else None
            if row.get("trainable") is False:
                untrainable.add(name)
    return Server(
        base=api,
        wants_token=wants_token,
        models=models,
        untrainable=frozenset(untrainable),
        deterministic=deterministic,
        simulated=simulated,
    )


def _check_model(server: Server, model: str) -> None:
    if server.models is None:
        return
    if model in server.untrainable:
        raise ConfigError(
            [
                Problem(
                    path="$.model.name",
                    message=f"the server at {server.base.base_url} doesn't train {model!r}",
                )
            ]
        )
    if model not in server.models:
        close = difflib.get_close_matches(model, server.models, n=1)
        known = ", ".join(sorted(server.models)) or "none"
        raise ConfigError(
            [
                Problem(
                    path="$.model.name",
                    message=f"the server at {server.base.base_url} has no model {model!r}",
                    hint=f"did you mean {close[0]!r}?" if close else f"it has: {known}",
                )
            ]
        )


def _wrong(option: str, message: str, hint: str | None = None) -> ConfigError:
    return ConfigError([Problem(path=f"$.backend.params.{option}", message=message, hint=hint)])
