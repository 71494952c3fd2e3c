"""The callback `evsys_logger`: sends the record of an experiment to a team's server while it runs."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from pathlib import Path

import attrs

from evsys import option
from evsys.errors import StoreError
from evsys.types import ExperimentResult
from evsys_dashboard.push.pusher import Pusher
from evsys_dashboard.push.sender import Sender
from evsys_dashboard.push.server import ServerTarget
from evsys_dashboard.remote import KEY, PROJECT, URL
from evsys_runtime import echo, in_background

__all__ = ["EvsysLogger", "EvsysLoggerConfig"]

_LAST_SECONDS = 3.0
"""How long the end of the process waits for the last lines."""


@attrs.frozen(kw_only=True)
class EvsysLoggerConfig:
    """Parameters of `evsys_logger`. The key is only ever read from the environment."""

    url: str | None = option(None, f"address of the server; by default that in {URL}", min_len=1)
    key_env: str = option(KEY, "environment variable that holds the key", min_len=1)
    project: str | None = option(
        None,
        f"project that records go into; by default that in {PROJECT}, or the one that the key is for",
        min_len=1,
    )
    flush_seconds: float = option(1.0, "time between two looks at the files", gt=0)
    close_seconds: float = option(30.0, "how long the end of an experiment waits for pending lines", gt=0)


class EvsysLogger:
    """Sends everything an experiment writes to a team's server, from a thread of its own that follows the files.

    Without a server the experiment runs all the same, and its end states how to send the record later. So does an end with lines
    that weren't sent.
    """

    Config = EvsysLoggerConfig

    def __init__(self, **fields: object) -> None:
        self.config = self.Config(**fields)  # type: ignore[arg-type]  # checked by the class
        self._sender: Sender | None = None
        self._pusher: Pusher | None = None

    def evsys_experiment_started(self, experiment_id: str, directory: Path, arms: Sequence[str]) -> None:
        """Begin to follow the record."""
        url = self.config.url or os.environ.get(URL)
        key = os.environ.get(self.config.key_env)
        if not url or not key:
            return
        target = ServerTarget(url, key, self.config.project or os.environ.get(PROJECT) or None)
        self._pusher = Pusher(Path(directory), target)
        self._sender = Sender(self._pusher, seconds=self.config.flush_seconds, at_end=target.close)
        atexit.register(self._sender.close, _LAST_SECONDS)
        self._sender.start()

    async def evsys_experiment_finished(self, result: ExperimentResult) -> None:
        """Wait until everything is sent, within bounds.

        Raises:
            StoreError: not everything is; the message states how much, why, and how to send it.
        """
        later = f"evsys sync {result.experiment_id}"
        if self._sender is None or self._pusher is None:
            echo(
                f"evsys_logger: {URL} or {self.config.key_env} is not set; to send this record later: {later}",
                err=True,
            )
            return
        if await in_background(self._sender.finish, self.config.close_seconds):
            return
        why = self._sender.failure
        size = self._pusher.files.missing()
        raise StoreError(
            f"{_short(size)} of the record are not sent ({'the server is slow' if why is None else why.message})",
            hint=f"send them with: {later}",
        )


def _short(size: int) -> str:
    return f"{size / 1024:.0f} KiB" if size >= 1024 else f"{size} bytes"
