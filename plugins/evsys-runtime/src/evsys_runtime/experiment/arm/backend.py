"""The backends of one arm: the model that it trains and those alongside it, made ready, and torn down in any case."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import EvsysError, boundary
from evsys.optional import declared
from evsys.protocols import Backend, Log, TrainingClient
from evsys.types import Checkpoint, ModelSpec, RunResult, Usage
from evsys_record.run_record import RunRecord
from evsys_runtime.accounting.metering import POLICY
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.experiment.arm.contracts import prepare, prepare_options
from evsys_runtime.experiment.state.roles import ArmRole
from evsys_runtime.experiment.state.session import Session
from evsys_runtime.experiment.supervision.watchdog import Watchdog
from evsys_runtime.training.role_usage import MeteredPolicy, MeteredRole, RoleUsage

__all__ = ["ArmBackend", "prepare_client"]

TEARDOWN_SECONDS = 60.0


@attrs.define(kw_only=True, eq=False)
class ArmBackend:
    """Prepares the model of one attempt at an arm; `warnings` gets warnings for the result.

    `used` has an account of each second model, which charges the run's budget.
    """

    session: Session
    arm: ArmConfig
    record: RunRecord
    log: Log
    watch: Watchdog
    warnings: list[str]
    used: dict[str, RoleUsage] = attrs.field(factory=dict)

    @asynccontextmanager
    async def client(self, model: ModelSpec, start: Checkpoint | None) -> AsyncIterator[TrainingClient]:
        """A model ready to be trained and sampled, torn down after the block, however that ends.

        Args:
            model: what is trained.
            start: where its weights come from; None where the model itself says.
        """
        spec = self.arm.run.backend
        backend = self.session.plan.registry.build("backend", spec.kind, resolve(spec.params))
        async with self._prepare(backend, spec.kind, model, start, self.record.directory) as client:
            self.record.note(backend=_facts(client))
            yield client

    @asynccontextmanager
    async def roles(self, roles: Sequence[ArmRole]) -> AsyncIterator[Mapping[str, TrainingClient]]:
        """The second models of the run by their role, each of a backend object of its own and with a folder of its
        own. Their calls are counted and charged, regardless of the caller.
        """
        budget = self.session.budgets.get(self.watch.run_id)
        found: dict[str, TrainingClient] = {}
        async with AsyncExitStack() as stack:
            for role in roles:
                self.watch.awaits("backend", f"{role.backend.kind} ({role.name})")
                folder = self.record.directory / role.name
                folder.mkdir(exist_ok=True)
                backend = role.build(self.session.plan.registry)
                preparing = self._prepare(backend, role.backend.kind, role.model, role.start, folder)
                usage = self.used.setdefault(role.name, RoleUsage(role=role.name, budget=budget))
                client: Any = MeteredRole(await stack.enter_async_context(preparing), usage)
                found[role.name] = client
            yield found

    def metered(self, client: TrainingClient) -> TrainingClient:
        """The trained model as its algorithm gets it: what it asks beside the training is counted and charged."""
        budget = self.session.budgets.get(self.watch.run_id)
        metered: Any = MeteredPolicy(
            client, self.used.setdefault(POLICY, RoleUsage(role=POLICY, budget=budget))
        )
        trained: TrainingClient = metered
        return trained

    def add_role_usage(self, result: RunResult) -> RunResult:
        """The result of a training with the usage of its second models."""
        for usage in self.used.values():
            if usage.used != Usage():
                result = usage.counted_in(result)
        return result

    @asynccontextmanager
    async def _prepare(
        self, backend: Backend, name: str, model: ModelSpec, start: Checkpoint | None, folder: Path
    ) -> AsyncIterator[TrainingClient]:
        if declared(backend, "simulated", False):
            self._mark_simulated(name, model)

        def preparing() -> object:
            seed = self.session.seeds(self.arm)("model")
            more = prepare_options(backend, deterministic=self.arm.deterministic, log=self.log)
            return backend.prepare(model, folder, seed, start, **more)

        async with prepare_client(
            backend, name, preparing, watch=self.watch, log=self.log, warnings=self.warnings
        ) as client:
            if _facts(client).get("simulated"):  # on a server, which says so once it is asked
                self._mark_simulated(name, model)
            if self.arm.deterministic and _facts(client).get("deterministic") is False:
                self.record.note(deterministic=False)  # whatever was asked for
            yield client

    def _mark_simulated(self, kind: str, model: ModelSpec) -> None:
        """Keep it with the result where the backend only imitates a model, so that no number passes for the model's."""
        self.session.simulated.add(kind)
        text = f"backend {kind!r} only imitates a model: its scores are not evidence about {model.name}"
        if text not in self.warnings:  # a run may need its backend several times, for scores that were lost
            self.warnings.append(text)


def _facts(client: TrainingClient) -> dict[str, object]:
    """A backend's description of its model, for the record; `deterministic` says whether the bits are reproducible
    as requested, `simulated` whether a server's backend only imitates a model.
    """
    return dict(declared(client, "facts") or {})


@asynccontextmanager
async def prepare_client(
    backend: Backend,
    name: str,
    preparing: Callable[[], object],
    *,
    watch: Watchdog,
    log: Log,
    warnings: list[str],
) -> AsyncIterator[TrainingClient]:
    """A prepared model, torn down after the block, however that ends.

    Args:
        backend: whose model it is.
        name: of the backend.
        preparing: calls its `prepare`.
        watch: of the run that it is for.
        log: of that run.
        warnings: gets what went wrong with the teardown after something else had.
    """

    async def tear_down() -> None:
        with boundary("backend", name, watch.run_id):
            async with watch.deadline(TEARDOWN_SECONDS, "backend", name, "teardown"):
                await backend.teardown(client)

    client: TrainingClient | None = None
    try:
        with boundary("backend", name, watch.run_id):
            client = await prepare(preparing(), name)
        yield client
    except BaseException:
        try:
            await tear_down()
        except EvsysError as exc:  # what went wrong first is what to tell
            warnings.append(exc.message)
            log.warning("teardown.failed", reason=exc.message, exc_info=exc)
        raise
    await tear_down()
