"""Saving states of one run on the server, and how long each is kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import BackendError, EvsysError
from evsys_backend_tinker.http_json import UnreachableError
from evsys_backend_tinker.sdk import status_of
from evsys_backend_tinker.state import delete, exists, fresh_name, saved_state, set_ttl
from evsys_backend_tinker.stream import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from evsys.protocols import Log
    from evsys_backend_tinker.preflight import Server
    from evsys_backend_tinker.stream import Stream
    from evsys_backend_tinker.waiting import Waiting

__all__ = ["States"]

_SECONDS = 10.0  # for calls about states that are saved already
_TAKEN = 409


@attrs.define(kw_only=True, eq=False)
class States:
    """The states that a run has saved.

    Args:
        server: where they are.
        waiting: waits for calls about them.
        ttl: seconds that a state stays; None keeps it.
        final_ttl: the same for the last one, from the end of the run, and for the best one, as long as it is that.
        keep: older states than the last so many are deleted, but for the best one; None deletes none.
        log: of the run.
        resumed: the address that a run continues from which was cut off: its last state then, and one like any
            other once there is another.

    Attributes:
        latest: the address of the last one.
        best: the address of the best one, where someone has said which that is.
    """

    server: Server
    waiting: Waiting
    ttl: int | None
    final_ttl: int | None
    keep: int | None
    log: Log | None = None
    resumed: str | None = None
    latest: str | None = None
    best: str | None = None
    _paths: list[str] = attrs.field(factory=list)

    async def save(
        self, stream: Stream, *, version: int, check: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        """Save a state behind all calls so far; what a checkpoint keeps of it.

        Raises:
            BackendError: the server didn't save it.
        """
        name = fresh_name(version)
        address: dict[str, str] = {}

        def make(model: Any) -> Any:
            # If the first answer to a save is lost, its second is refused: the name is taken, by itself.
            address["path"] = f"tinker://{model.model_id}/weights/{name}"
            return model.save_state(name, ttl_seconds=self.ttl)

        call = Call(kind="save", make=make, convert=lambda output: str(output.path), what="save_state")
        try:
            path = await stream.submit(call)
        except BackendError as error:
            if status_of(error) != _TAKEN or not await self._is_there(address["path"]):
                raise
            path = address["path"]
        stream.saved(call)
        self.latest = path
        self._paths.append(path)
        await self._let_go_of_resumed()
        await self._drop_old()
        return saved_state(path, base_url=self.server.base.base_url, ttl=self.ttl, check=check)

    async def finish(self) -> None:
        """The run is over: its last state stays for `final_ttl`."""
        if self._paths and self._paths[-1] != self.best:
            await self._set_ttl(self._paths[-1], self.final_ttl)

    async def keep_best(self, path: str) -> None:
        """This state is the best by now: it stays for `final_ttl`, at once, since no one knows how this process ends.

        What was the best before is one like any other again.
        """
        if path == self.best:
            return
        before, self.best = self.best, path
        await self._set_ttl(path, self.final_ttl)
        if before is not None:
            await self._set_ttl(before, self.ttl)
        await self._drop_old()

    async def _let_go_of_resumed(self) -> None:
        path, self.resumed = self.resumed, None
        if path is not None and path != self.best:
            await self._set_ttl(path, self.ttl)

    async def _set_ttl(self, path: str, ttl: int | None) -> None:
        if self.final_ttl != self.ttl:
            await self._try(
                lambda: set_ttl(self.server.api(), path, ttl, seconds=_SECONDS), "state.ttl_failed", path
            )

    async def _is_there(self, path: str) -> bool:
        try:
            return bool(
                await self.waiting.in_thread(
                    lambda: exists(self.server.api(), path, seconds=_SECONDS), "save"
                )
            )
        except UnreachableError:
            return False

    async def _drop_old(self) -> None:
        while self.keep is not None and len(self._paths) > self.keep:
            path = next((one for one in self._paths[: -self.keep] if one != self.best), None)
            if path is None:
                return
            self._paths.remove(path)
            await self._try(partial(self._delete, path), "state.delete_failed", path)

    def _delete(self, path: str) -> str | None:
        return delete(self.server.api(), path, seconds=_SECONDS)

    async def _try(self, call: Callable[[], str | None], event: str, path: str) -> None:
        """Make a call that may fail without harm: a state kept longer or shorter than requested is logged."""
        try:
            wrong = await self.waiting.in_thread(call, "close")
        except (UnreachableError, EvsysError) as error:
            wrong = str(error)
        if wrong is not None and self.log is not None:
            self.log.warning(event, state=path, reason=wrong)
