"""States on the server: their names, how they are saved, found again and deleted, and what is kept of them in a checkpoint."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import attrs

from evsys.errors import BackendError
from evsys.types import Checkpoint, ModelSpec
from evsys_backend_tinker.http_json import JsonApi

__all__ = [
    "FORMAT",
    "SCHEME",
    "SavedState",
    "delete",
    "exists",
    "fresh_name",
    "saved_state",
    "set_ttl",
    "starting_point",
]

SCHEME = "tinker://"
FORMAT = 1

_PATH = re.compile(r"tinker://(?P<run>[^/]+)/(?P<name>(?:sampler_|external_)?weights/[^/]+)")


@attrs.frozen(kw_only=True)
class SavedState:
    """A state to start from: its address, and whether the optimiser's part is wanted."""

    path: str
    with_optimizer: bool
    step: int = 0
    check: Mapping[str, Any] | None = None


def fresh_name(step: int) -> str:
    """A name that no state has: where the client sends a save twice, the second must not meet a stranger's."""
    return f"step-{step}-{secrets.token_hex(4)}"


def saved_state(
    path: str, *, base_url: str, ttl: int | None, check: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The part of a state that a checkpoint keeps, as JSON values."""
    return {
        "backend": "tinker",
        "format": FORMAT,
        "path": path,
        "server": base_url,
        "ttl": ttl,
        "check": check,
    }


def starting_point(model: ModelSpec, restore: Checkpoint | None) -> SavedState | None:
    """The origin of a run's weights; None if they are new.

    Raises:
        BackendError: a checkpoint is of another backend, or an address is not that of a state.
    """
    if restore is not None:
        if restore.state.get("backend") != "tinker" or not isinstance(restore.state.get("path"), str):
            raise BackendError(
                f"the checkpoint {restore.directory} is on no Tinker server: another backend saved it",
                hint="start from a checkpoint of a run with backend.kind: tinker, or from a tinker:// address",
            )
        return SavedState(
            path=restore.state["path"],
            with_optimizer=restore.with_optimizer,
            step=restore.step,
            check=restore.state.get("check"),
        )
    for address, with_optimizer in ((model.load_checkpoint_path, True), (model.init_from_checkpoint, False)):
        if address is not None:
            if not address.startswith(SCHEME):
                raise BackendError(f"{address!r} is neither a checkpoint's folder nor a {SCHEME} address")
            return SavedState(path=address, with_optimizer=with_optimizer)
    return None


def checkpoint_resource(path: str) -> str:
    """The HTTP path of a state.

    Raises:
        ValueError: it isn't one of the form `tinker://RUN/weights/NAME`.
    """
    found = _PATH.fullmatch(path)
    if found is None:
        raise ValueError(f"{path!r} is not {SCHEME}RUN/weights/NAME")
    kind, _, name = found["name"].partition("/")
    return f"/api/v1/training_runs/{quote(found['run'], safe=':')}/checkpoints/{kind}/{quote(name, safe='')}"


def set_ttl(api: JsonApi, path: str, ttl: int | None, *, seconds: float) -> str | None:
    """Say again how long a state stays. Blocks; returns what went wrong.

    Raises:
        UnreachableError: the server didn't answer.
    """
    answer = api.call("PUT", checkpoint_resource(path) + "/ttl", {"ttl_seconds": ttl}, seconds=seconds)
    return None if answer.ok else f"it answers {answer.reason}"


def delete(api: JsonApi, path: str, *, seconds: float) -> str | None:
    """Delete a state. Blocks; returns what went wrong, and nothing where it was gone already.

    Raises:
        UnreachableError: the server didn't answer.
    """
    answer = api.call("DELETE", checkpoint_resource(path), seconds=seconds)
    return None if answer.ok or answer.status in {404, 410} else f"it answers {answer.reason}"


def exists(api: JsonApi, path: str, *, seconds: float) -> bool:
    """True where the server knows this state. Blocks.

    Raises:
        UnreachableError: the server didn't answer.
    """
    return api.post("/api/v1/weights_info", {"tinker_path": path}, seconds=seconds).ok
