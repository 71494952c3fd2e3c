"""States that runs of evsys have left on a server: which there are, and getting rid of them."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import BackendError
from evsys_backend_tinker.http_json import JsonApi, UnreachableError
from evsys_backend_tinker.state import delete

__all__ = ["Left", "best_states", "left_states", "reap"]

_SECONDS = 20.0
_PAGE = 100
_OURS = re.compile(r"weights/step-\d+-[0-9a-f]{8}")


@attrs.frozen(kw_only=True)
class Left:
    """A state on a server; `size` in bytes if reported, `expires` None if it stays. `best` is a run's best
    checkpoint.
    """

    path: str
    saved: dt.datetime
    best: bool = False
    size: int | None = None
    expires: dt.datetime | None = None


def left_states(
    api: JsonApi, *, older_than: dt.timedelta, now: dt.datetime, best: Collection[str] = ()
) -> list[Left]:
    """The states that evsys has named and that are older than so long, the oldest first; `best` are addresses. Blocks.

    Raises:
        BackendError: the server can't be reached, or lists nothing.
    """
    found = [_sampler_row(row, best) for row in _rows(api) if _OURS.fullmatch(str(row.get("checkpoint_id")))]
    return sorted((one for one in found if now - one.saved > older_than), key=lambda one: one.saved)


def best_states(experiments: Path) -> set[str]:
    """The states of the best and the selected checkpoints of all runs in a folder of experiments. Blocks.

    A run cut off has its best checkpoint in `run_result.json` as well; one that is under way has none there yet, and what it
    needs is younger than what anyone deletes.
    """
    found: set[str] = set()
    for path in experiments.glob("*/runs/*/run_result*.json"):
        run = _tree(path).get("run")
        if not isinstance(run, Mapping):
            continue
        selected = run.get("selected_checkpoint")
        kept = (
            run.get("best_checkpoint"),
            selected.get("checkpoint") if isinstance(selected, Mapping) else None,
        )
        for checkpoint in kept:
            if isinstance(checkpoint, str):
                found.update(_state_of(path.parent / checkpoint))
    return found


def _state_of(checkpoint: Path) -> Iterator[str]:
    """The address of a checkpoint's state, if it has one."""
    manifest = _tree(checkpoint / "manifest.json").get("manifest")
    state = manifest.get("state") if isinstance(manifest, Mapping) else None
    if isinstance(state, Mapping) and isinstance(state.get("path"), str):
        yield state["path"]


def _tree(path: Path) -> Mapping[str, Any]:
    """A JSON object on file; an empty one where there is none that can be read."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return tree if isinstance(tree, Mapping) else {}


def reap(api: JsonApi, states: list[Left]) -> Iterator[tuple[Left, str | None]]:
    """Delete states, one after another; each with what went wrong, None where nothing did. Blocks."""
    for state in states:
        try:
            wrong = delete(api, state.path, seconds=_SECONDS)
        except UnreachableError as error:
            wrong = str(error)
        yield state, wrong


def _rows(api: JsonApi) -> Iterator[Mapping[str, Any]]:
    offset = 0
    while True:
        try:
            answer = api.get(f"/api/v1/checkpoints?limit={_PAGE}&offset={offset}", seconds=_SECONDS)
        except UnreachableError as error:
            raise BackendError(f"the server at {api.base_url} can't be reached: {error}") from error
        tree = answer.json() if answer.ok else None
        if not isinstance(tree, Mapping) or not isinstance(tree.get("checkpoints"), list):
            raise BackendError(
                f"the server at {api.base_url} doesn't list its states: it answers {answer.reason}"
            )
        page = [row for row in tree["checkpoints"] if isinstance(row, Mapping)]
        yield from page
        cursor = tree.get("cursor")
        offset += len(page)
        if not page or not isinstance(cursor, Mapping) or offset >= int(cursor.get("total_count", 0)):
            return


def _sampler_row(row: Mapping[str, Any], best: Collection[str]) -> Left:
    size, expires = row.get("size_bytes"), row.get("expires_at")
    return Left(
        path=str(row["tinker_path"]),
        best=str(row["tinker_path"]) in best,
        saved=_moment(str(row["time"])),
        size=size if isinstance(size, int) else None,
        expires=None if expires is None else _moment(str(expires)),
    )


def _moment(text: str) -> dt.datetime:
    """A moment; one without a zone is meant in UTC."""
    moment = dt.datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
