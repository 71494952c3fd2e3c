"""The request log: each answered conversation as a line, for `evsys traces import`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from evsys_record.jsonl import JsonlWriter
from evsys_record.secrets import Redactor
from evsys_runtime.serving.answers import answer
from evsys_runtime.serving.completing import Exchange

__all__ = ["RequestLog"]

_UNLOGGED = {"logprobs", "token_ids"}


class RequestLog:
    """Appends what was asked and answered to a file that only its owner can read.

    Args:
        path: the file. Secrets of this process and keys of known issuers are taken out; all else is what users wrote.
    """

    def __init__(self, path: Path) -> None:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        self._writer = JsonlWriter(path, scrub=Redactor.from_environment().text)

    def record(self, exchange: Exchange) -> None:
        """Log an exchange; an answer that can't be logged is not sent.

        Raises:
            StoreError: the file can't be written.
        """
        response = answer(exchange)
        response.pop("prompt_token_ids", None)
        response["choices"] = [
            {name: value for name, value in choice.items() if name not in _UNLOGGED}
            for choice in response["choices"]
        ]
        line = {"time": round(time.time(), 3), "request": dict(exchange.request.body), "response": response}
        conversation = exchange.headers.get("x-conversation-id")
        self._writer.write({**line, **({"conversation_id": conversation} if conversation else {})})

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
