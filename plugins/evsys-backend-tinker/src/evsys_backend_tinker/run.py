"""One run on a server: its session, its model, and how both are made again and ended."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from evsys.errors import BackendError, ConfigError, EvsysError
from evsys_backend_tinker.client import TinkerTrainingClient
from evsys_backend_tinker.http_json import JsonApi, UnreachableError
from evsys_backend_tinker.meter import Meter
from evsys_backend_tinker.outage import breaker_of, has_answered, note_answer
from evsys_backend_tinker.pauses import Relay, forward_messages
from evsys_backend_tinker.preflight import SECONDS, Server, look_at
from evsys_backend_tinker.probes import lacking
from evsys_backend_tinker.rendering import model_renderer
from evsys_backend_tinker.sdk import Ended, Session, as_cause, error_line, is_lost, resolve, status_of
from evsys_backend_tinker.selftest import TOLERANCE
from evsys_backend_tinker.state import SavedState, starting_point
from evsys_backend_tinker.states import States
from evsys_backend_tinker.stream import Stream
from evsys_backend_tinker.targets import any_of_each, target_flags
from evsys_backend_tinker.waiting import Waiting
from evsys_runtime import Limits, current_scope, load_prices, shared_limiter

if TYPE_CHECKING:
    from evsys.protocols import Log, Renderer
    from evsys.types import Checkpoint, ModelSpec
    from evsys_backend_tinker.config import TinkerConfig

__all__ = ["Run"]

_EVERY = 5.0  # seconds between two looks at whether the server answers

_COMPANY = (
    "the server was started without --deterministic, or on a backend that can't promise it, so the last bits of samples depend on what "
    "else it is asked"
)


class Run:
    """A run's side of a server.

    Args:
        config: `backend.params`.
        base_url: the server's address.
        key: the key.
        log: of the run.
    """

    def __init__(
        self, config: TinkerConfig, *, base_url: str, key: str | None, log: Log | None = None
    ) -> None:
        self.config = config
        self.log = log
        self.api = JsonApi(base_url=base_url, key=key)
        self._key = key
        self._breaker = breaker_of(base_url, dead_after=config.dead_after)
        self._waiting = Waiting(
            api=self.api,
            deadlines=config.deadlines,
            dead_after=config.dead_after,
            log=log,
            every=min(_EVERY, config.dead_after / 4),
            breaker=self._breaker,
        )
        self._session: Session | None = None
        self._stream: Stream | None = None
        self._states: States | None = None
        self._meter = Meter()
        self._relaying = False

    async def look(self, model: ModelSpec) -> Server:
        """Ask the server whether it can train `model`.

        Raises:
            ConfigError: it can't, or there is no such server.
        """
        server: Server = await self._waiting.in_thread(
            lambda: look_at(self.api, model.name, version=version("tinker")), "connect"
        )
        note_answer(self._breaker)
        return server

    async def _look_once_there(self, model: ModelSpec) -> Server:
        """The same; a server that has answered before and doesn't now is waited for."""
        try:
            return await self.look(model)
        except ConfigError:
            if not has_answered(self._breaker):
                raise
        await self._waiting.until_there()
        return await self.look(model)

    async def start(
        self,
        model: ModelSpec,
        seed: int,
        restore: Checkpoint | None,
        capabilities: frozenset[str],
        *,
        name: str,
        deterministic: bool,
        resumes: bool,
    ) -> TinkerTrainingClient:
        """Make the model and everything around it.

        Raises:
            ConfigError: something about the server isn't right.
            BackendError: the server failed.
        """
        server = await self._look_once_there(model)
        if deterministic and server.deterministic is False:
            self._tell("server.not_deterministic", reason=_COMPANY)
        start = starting_point(model, restore)
        self._meter.price = load_prices(current_scope().project_root).models.get(model.name)
        Relay.start(self.log)
        self._relaying = True
        made = await self._make(lambda: self._open(model, seed, start, name), start)
        info = await self._make(lambda: resolve(made.get_info()), None)
        renderer = await self._make(lambda: self._renderer(model, info, server), None)
        states = self._states = States(
            server=server,
            waiting=self._waiting,
            ttl=self.config.ttl,
            final_ttl=self.config.final_ttl,
            keep=self.config.keep_states,
            log=self.log,
            resumed=start.path if start is not None and resumes else None,
        )

        def reopen() -> Any:
            self._tell_not_ended(self._close("errored", "the server lost the model"))
            latest = start if states.latest is None else SavedState(path=states.latest, with_optimizer=True)
            return self._open(model, seed, latest, name)

        self._stream = Stream(
            model=made,
            reopen=reopen,
            waiting=self._waiting,
            replay_steps=self.config.replay_steps,
            log=self.log,
        )
        client = TinkerTrainingClient(
            stream=self._stream,
            states=states,
            renderer=renderer,
            tokenizer=renderer.tokenizer,
            limiter=shared_limiter(
                _service(self.api.base_url, self._key), Limits(concurrency=self.config.samples_at_once)
            ),
            meter=self._meter,
            capabilities=capabilities - lacking(self._waiting.api.base_url),
            facts=self._facts(server, made, deterministic),
            max_length=server.max_length(model.name),
            one_seed=self.config.preset.one_seed,
            together=deterministic and self.config.preset.batches,
            first=0 if start is None else start.step,
            log=self.log,
        )
        await self._compare(client, start)
        return client

    async def end(self, error: BaseException | None) -> None:
        """End the session, and report to the server how the run ended. Failures are logged, not raised."""
        how, detail = _ending_of(error)
        if self._stream is not None:
            self._stream.close("the training client is closed")
        if self._states is not None and not self._waiting.silent:
            await self._states.finish()
        if self.log is not None and any(self._meter.counts.values()):
            self.log.info("server.used", server=self.api.base_url, **self._meter.counts)
        try:
            self._tell_not_ended(await self._waiting.in_thread(lambda: self._close(how, detail), "close"))
        except EvsysError as failure:
            self._tell_not_ended(failure.message)
        finally:
            if self._relaying:
                self._relaying = False
                Relay.stop(self.log)

    # --- in threads -----------------------------------------------------------------------------------------------

    def _open(self, model: ModelSpec, seed: int, start: SavedState | None, name: str) -> Any:
        """A session with its model; blocks."""
        session = Session(
            base_url=self._waiting.api.base_url,
            key=self._key,
            metadata={"evsys_run": name},
            telemetry=self.config.telemetry,
        )
        self._session = session
        session.open()
        if start is not None:
            return session.from_state(start.path, with_optimizer=start.with_optimizer)
        return session.create_model(
            model.name,
            rank=int(model.lora.rank or 0),
            seed=seed,
            **self._adapter(model, name),
        )

    def _adapter(self, model: ModelSpec, name: str) -> dict[str, Any]:
        """The adapter, as the server takes it; a server of ours also gets the options that the protocol lacks."""
        metadata, lora = {"evsys_run": name}, model.lora
        if not self.config.preset.own_lora:
            return {"flags": target_flags(lora.targets), "metadata": metadata}
        metadata["evsys.lora_alpha"] = repr(lora.alpha)
        if "all-linear" not in lora.targets:
            metadata["evsys.target_modules"] = ",".join(lora.targets)
        return {"flags": any_of_each(lora.targets), "metadata": metadata}

    def _renderer(self, model: ModelSpec, info: Any, server: Server) -> Renderer:
        return model_renderer(
            model,
            api=server.api(),
            tokenizer=self.config.tokenizer,
            tokenizer_id=getattr(info.model_data, "tokenizer_id", None),
            seconds=SECONDS,
        )

    def _close(self, how: Ended, detail: str | None) -> str | None:
        """End the session, if there is one; blocks. Skips a server that doesn't answer or has forgotten it.

        Returns:
            The failures.
        """
        session, self._session = self._session, None
        if session is None:
            return None
        try:
            session.close(how, detail, seconds=self.config.deadlines.close, tell=not self._waiting.silent)
        except Exception as error:  # whatever the client raises, the run is over all the same
            return None if is_lost(error) else error_line(error)
        return None

    # --- small things ---------------------------------------------------------------------------------------------

    async def _make(self, call: Callable[[], Any], start: SavedState | None) -> Any:
        """Make a blocking call of the client, with its failures in words."""
        try:
            with forward_messages(self.log):
                return await self._waiting.in_thread(call, "create")
        except (EvsysError, asyncio.CancelledError):
            raise
        except UnreachableError as error:
            raise BackendError(f"the server at {self.api.base_url} can't be reached: {error}") from error
        except Exception as error:
            if start is not None and (is_lost(error) or "checkpoint" in error_line(error).lower()):
                raise BackendError(
                    f"the state {start.path} can't be loaded: {error_line(error)}",
                    hint="it may have expired (backend.params.ttl) or been deleted; start from another checkpoint",
                ) from as_cause(error)
            status = status_of(error)
            where = f" ({status})" if status is not None else ""
            raise BackendError(
                f"the server at {self.api.base_url} didn't make the model{where}: {error_line(error)}"
            ) from as_cause(error)

    async def _compare(self, client: TinkerTrainingClient, start: SavedState | None) -> None:
        """See that a restored model is the saved one."""
        if start is None or start.check is None:
            return
        distance = await client.differs_from(start.check)
        if distance is not None and distance > TOLERANCE:
            raise BackendError(
                f"the server restored other weights than were saved in {start.path}: logprobs differ by up to {distance:.3g}",
                hint="start from another checkpoint, and report it to the server's operator",
            )

    def _facts(self, server: Server, made: Any, deterministic: bool) -> dict[str, Any]:
        return {
            "server": self.api.base_url,
            "provider": self.config.provider,
            "client": version("tinker"),
            "session": None if self._session is None else self._session.id,
            "model": str(made.model_id),
            "deterministic": deterministic and server.deterministic is not False,
            "simulated": server.simulated,
            "served": None if server.models is None else sorted(server.models),
        }

    def _tell_not_ended(self, wrong: str | None) -> None:
        if wrong is not None:
            self._tell("session.not_ended", reason=wrong)

    def _tell(self, event: str, **facts: Any) -> None:
        if self.log is not None:
            self.log.warning(event, server=self.api.base_url, **facts)


def _ending_of(error: BaseException | None) -> tuple[Ended, str | None]:
    if error is None:
        return "success", None
    if isinstance(error, Exception):
        return "errored", type(error).__name__
    return "interrupted", type(error).__name__


def _service(base_url: str, key: str | None) -> str:
    """The limiter's name of an account on a server; the key itself is in no name."""
    account = hashlib.sha256((key or "").encode()).hexdigest()[:16]
    return f"tinker:{base_url}:{account}"
