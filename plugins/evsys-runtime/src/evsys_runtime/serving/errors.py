"""Errors as clients of the chat-completions protocol expect them."""

from __future__ import annotations

from typing import Any

__all__ = ["ApiError", "bad_request", "body_of", "context_overflow"]


class ApiError(Exception):
    """An answer that is not a completion: an HTTP status, and what its body says."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after


def body_of(error: ApiError) -> dict[str, Any]:
    """The JSON body of an error."""
    kind = {401: "authentication_error", 404: "invalid_request_error", 429: "rate_limit_error"}.get(
        error.status, "invalid_request_error" if error.status < 500 else "server_error"
    )
    return {
        "error": {"message": error.message, "type": kind, "param": error.param, "code": error.code},
    }


def bad_request(message: str, param: str | None = None, *, code: str = "invalid_value") -> ApiError:
    """A request that asks for what can't be."""
    text = f"{param}: {message}" if param else message
    return ApiError(400, text, param=param, code=code)


def context_overflow(
    prompt_tokens: int, max_tokens: int, context_length: int, param: str = "messages"
) -> ApiError:
    """A prompt that doesn't fit. Agents know it by its code, some by the phrase that it begins with."""
    has = "the messages have" if param == "messages" else f"the {param} has"
    message = (
        f"This model's maximum context length is {context_length} tokens; {has} {prompt_tokens} and the "
        f"answer may have {max_tokens}. Shorten the {param} or lower max_tokens."
    )
    return ApiError(400, message, param=param, code="context_length_exceeded")
