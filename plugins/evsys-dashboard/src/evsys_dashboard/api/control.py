"""Endpoint: requests to an experiment that runs on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from evsys.errors import EvsysError
from evsys_dashboard.api.endpoints import Call, Endpoints
from evsys_dashboard.api.errors import RefusedError
from evsys_dashboard.api.service import experiment_row
from evsys_record import Control

__all__ = ["endpoints"]

endpoints = Endpoints()

MOST_REASON = 500


@attrs.frozen(kw_only=True)
class ControlRequest:
    """A request, for one arm or for all of them; `reason` is kept on record.

    `steps`, `seconds` and `money` belong to `extend`, which adds them to the limits of the budget, `values` to `set`.
    """

    request: Literal["pause", "unpause", "stop", "extend", "set"]
    arm: str | None = None
    reason: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.max_len(MOST_REASON))
    )
    steps: int | None = None
    seconds: float | None = None
    money: float | None = None
    values: Mapping[str, int] | None = None


@attrs.frozen(kw_only=True)
class ControlAnswer:
    """The reply of the experiment's process."""

    reply: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class LiveStatus:
    """The progress of an experiment that runs on this machine: each of its `runs` with phase, step and time left; null where none runs."""

    status: Mapping[str, Any] | None


_EXPERIMENT = "/projects/{project}/experiments/{experiment}"


@endpoints.get(f"{_EXPERIMENT}/status")
async def status(call: Call) -> LiveStatus:
    """The progress of an experiment that runs on this machine."""
    if call.service.local is None:
        return LiveStatus(status=None)
    try:
        return LiveStatus(status=await _request(call, {"request": "status"}))
    except RefusedError as exc:
        if exc.status == 409:
            return LiveStatus(status=None)
        raise


@endpoints.post(f"{_EXPERIMENT}/control", scope="admin")
async def control(call: Call, body: ControlRequest) -> ControlAnswer:
    """Pause, continue, stop or extend an experiment that runs on this machine."""
    if call.service.local is None:
        raise RefusedError(
            409,
            "a team's server holds records; the experiment runs elsewhere",
            hint="use `evsys pause` and `evsys stop` there",
        )
    asked = {key: value for key, value in attrs.asdict(body).items() if value is not None}
    return ControlAnswer(reply=await _request(call, asked))


async def _request(call: Call, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """The reply of the experiment's process.

    Raises:
        RefusedError: there is no such experiment, no process of it here, or the request was refused.
    """
    project, name = call["project"], call["experiment"]
    await call.service.read(lambda connection: experiment_row(connection, project, name))
    folder = await asyncio.to_thread(call.service.records.experiment, project, name)
    try:
        async with await Control.open(folder, by="dashboard") as channel:
            reply = await channel.request(asked)
    except EvsysError as exc:
        raise RefusedError(409, exc.message, hint=exc.hint) from exc
    if not reply.get("ok"):
        raise RefusedError(409, str(reply.get("error")), hint=reply.get("hint"))
    return reply
