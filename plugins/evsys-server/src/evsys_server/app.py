"""The server, in this process: for the command, for tests, and to run one alongside other work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from evsys import Registry, current_registry
from evsys_record.lock import ExperimentLock
from evsys_runtime.logging import configure, run_logger
from evsys_runtime.serving.keys import KeyCheck
from evsys_runtime.serving.routes import Bounds, Record, chat_routes
from evsys_runtime.serving.server import listening, require_key
from evsys_server.batches import Batches
from evsys_server.catalogue import ServerCatalogue
from evsys_server.checkpoints import CheckpointStore
from evsys_server.engine import Engine
from evsys_server.errors import message_of
from evsys_server.handlers import Handlers
from evsys_server.limits import Limits
from evsys_server.loopback import loopback_only
from evsys_server.promises import Promises
from evsys_server.request_log import RequestLog
from evsys_server.samplers import Samplers
from evsys_server.service import Service
from evsys_server.sessions import Sessions

if TYPE_CHECKING:
    from evsys.protocols import Log

__all__ = ["make_app", "make_service"]


@asynccontextmanager
async def make_service(
    *,
    backend: str,
    models: Sequence[str],
    directory: Path,
    params: Mapping[str, Any] | None = None,
    deterministic: bool = False,
    limits: Limits | None = None,
    log: Log | None = None,
    registry: Registry | None = None,
) -> AsyncIterator[Service]:
    """Create the server's service, without its routes.

    Args:
        backend: kind of the backend, such as `local` or `mock`.
        models: base models served.
        directory: of the checkpoints; a later server on the same folder finds them.
        params: of the backend, as in an experiment file.
        deterministic: results don't depend on concurrent requests; slower if many sample at once.
        limits: of requests, queues and memory.
        log: of sessions and failures; by default failures are shown on standard error.
        registry: of the backend; the current one by default.

    Raises:
        StoreError: another server has the folder; the message names it.
        EvsysError: the backend or one of the models isn't available, or can't be prepared.
    """
    limits = limits or Limits()
    log = log or run_logger(None, configure(console_level="warning"))
    with ExperimentLock(directory):  # two servers would remove each other's checkpoints
        store = CheckpointStore(directory / "checkpoints", log=log)
        engine = Engine(
            registry or current_registry(),
            backend,
            params or {},
            models,
            directory,
            deterministic=deterministic,
        )
        samplers = Samplers(engine, store, most_live=limits.live_samplers)
        # Where each request is computed by itself, clients may have all under way whose answers there is room for.
        together = limits.outstanding if deterministic else limits.sampling
        service = Service(
            engine=engine,
            store=store,
            samplers=samplers,
            batches=Batches(samplers, most=together, patience=limits.patience_seconds),
            sessions=Sessions(),
            promises=Promises(log=log),
            limits=limits,
            log=log,
        )
        sweeping = None
        try:
            await engine.start()
            sweeping = asyncio.get_running_loop().create_task(service.sweep())
            yield service
        finally:
            if sweeping is not None:
                sweeping.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await sweeping
            await service.close()


@asynccontextmanager
async def make_app(
    *,
    backend: str = "mock",
    models: Sequence[str] = ("evsys/tiny",),
    directory: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    key: str | None = None,
    log_requests: bool = False,
    **options: Any,
) -> AsyncIterator[str]:
    """Serve while inside; gives the address that clients call `base_url`.

    Args:
        backend: see `make_service`.
        models: see `make_service`.
        directory: see `make_service`.
        host: address to listen on. One that other machines reach needs a key.
        port: port to listen on; 0 takes a free one.
        key: what clients must send; None asks for none.
        log_requests: append each answered conversation to `requests.jsonl` in the directory.
        options: the other arguments of `make_service`.

    Raises:
        ConfigError: a host that other machines reach, without a key; or the port is taken.
        EvsysError: see `make_service`.
    """
    require_key(host, key or None)
    async with make_service(backend=backend, models=models, directory=directory, **options) as service:
        with contextlib.ExitStack() as stack:
            record: Record | None = None
            if log_requests:
                record = stack.enter_context(
                    contextlib.closing(RequestLog(directory / "requests.jsonl"))
                ).record
            async with listening(application(service, key, record=record), host, port) as address:
                yield address


def application(service: Service, key: str | None = None, *, record: Record | None = None) -> web.Application:
    """The routes of a service: the Tinker protocol, and completions of conversations and texts under `/v1`.

    `record` is called with each answered conversation.
    """
    keys = KeyCheck(key, log=service.log)
    handlers = Handlers(service, keys=keys)
    app = web.Application(middlewares=() if key else (loopback_only,))
    app.add_routes(handlers.routes())

    async def end_all(_: web.Application) -> None:
        await service.end_all()

    app.on_shutdown.append(end_all)  # before connections are waited for: those that poll get their answer
    bounds = Bounds(body_bytes=service.limits.conversation_bytes, waiting=service.limits.sampling)
    app.add_routes(
        chat_routes(
            ServerCatalogue(service),
            key=keys,
            record=record,
            bounds=bounds,
            log=service.log,
            words=message_of,
            texts=True,
        )
    )
    return app
