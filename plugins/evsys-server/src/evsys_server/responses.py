"""Documents and answers as HTTP responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from evsys_server.promises import JSON, Answer

__all__ = ["answer_response", "document_response"]


def document_response(
    document: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """A JSON document as a response."""
    body = json.dumps(document, allow_nan=False).encode()
    return web.Response(body=body, status=status, headers=headers, content_type=JSON)


def answer_response(answer: Answer) -> web.Response:
    """An answer as a response."""
    return web.Response(body=answer.body, content_type=answer.content_type)
