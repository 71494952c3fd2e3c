"""The rows of one arm, what it is by them, and what it came to where it was run before."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import DataError, StoreError, boundary
from evsys.optional import declared
from evsys.protocols import Algorithm
from evsys_record.run_record import RunRecord
from evsys_runtime.background import in_background
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.data.cache import CachedData, rows_of_store
from evsys_runtime.data.dataset import MaterializedDataset
from evsys_runtime.data.load import Pull, load_dataset
from evsys_runtime.data.parse import Shape
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.arm.fingerprints import first_difference, order_of, stages_of
from evsys_runtime.experiment.lineage.experiments import earlier_index
from evsys_runtime.experiment.lineage.restart_point import BRANCH
from evsys_runtime.experiment.lineage.runs import EarlierRun
from evsys_runtime.experiment.reuse.made_with import MADE_WITH, made_with, why_never
from evsys_runtime.experiment.reuse.reusable import FoundRun, WantedRun, find_run
from evsys_runtime.experiment.stages.chain import Start
from evsys_runtime.experiment.state.identity import identity_of_arm, plugin_versions
from evsys_runtime.experiment.state.roles import ArmRole
from evsys_runtime.experiment.state.secrets import refuse_secret_rows
from evsys_runtime.experiment.state.session import Session, run_id_of
from evsys_runtime.experiment.state.starting_weights import scores_untrained
from evsys_runtime.experiment.supervision.watchdog import Watchdog

__all__ = ["ArmData", "rows_of"]


def rows_of(
    session: Session,
    arm: ArmConfig,
    shape: Shape,
    directory: Path,
    *,
    pull: Pull | None = None,
    follow: Callable[[Callable[[], int]], None] | None = None,
) -> MaterializedDataset:
    """The typed rows of an arm, read again; blocking.

    Args:
        session: whose arm it is.
        arm: its data, its seed.
        shape: of the rows.
        directory: the run's folder; rows too many for memory lie in it.
        pull: gets stored data, the session's own by default.
        follow: as of `load_dataset`.

    Raises:
        DataError, StoreError: they can't be read.
    """
    return load_dataset(
        arm.run.data,
        shape=shape,
        project_root=session.plan.project_root,
        registry=session.plan.registry,
        pull=pull or partial(_pull, session),
        spool_dir=directory / "data",
        seed=session.seeds(arm)("data"),
        resolve=resolve,
        follow=follow,
    )


@attrs.define(kw_only=True, eq=False)
class ArmData:
    """The data of one attempt at an arm.

    Attributes:
        benchmarks: of its evaluations.
        warnings: for the result.
        known_as: the identity of earlier attempts.
        begun: whether earlier attempts trained.
        identity: the hash of all that can change the result, once the rows are loaded.
        earlier: a run of another experiment that was the same.
        reused: that run, if its result is taken instead of a new one.
    """

    session: Session
    arm: ArmConfig
    record: RunRecord
    watch: Watchdog
    benchmarks: Sequence[BoundBenchmark]
    warnings: list[str]
    known_as: str | None = None
    begun: bool = False
    identity: str = ""
    earlier: EarlierRun | None = None
    reused: FoundRun | None = None

    async def load(
        self, algorithm: Algorithm, start: Start, roles: Sequence[ArmRole] = ()
    ) -> MaterializedDataset:
        """Load the rows, and put on record what this run is: its `identity`, and what that is made of.

        Args:
            algorithm: whose rows they are.
            start: the weights that the run begins with.
            roles: its second models.

        Raises:
            DataError: they can't be used, hold a secret, or the run isn't what it was in earlier attempts.
        """
        session, arm = self.session, self.arm
        data = session.datasets.pop(run_id_of(arm), None)
        if data is None:
            data = await in_background(
                rows_of,
                session,
                arm,
                declared(algorithm, "shape", "chat"),
                self.record.directory,
                pull=self._pull,
                follow=self.watch.follow,
            )
        self.warnings += data.warnings
        why_new = why_never(session.plan, arm, self.benchmarks)
        made: Mapping[str, str] = {}
        if why_new is None:
            selection = session.selection_of(arm)
            made = await in_background(made_with, session.plan, arm, self.benchmarks, selection)
        self._identify(data, start, roles, made)
        await self._look_back(made, why_new)
        await in_background(refuse_secret_rows, data.lines(), session.log_settings.redactor)
        origin = {"source": data.lineage[0], "transforms": list(data.lineage[1:])}
        entry = await in_background(
            session.workspace.cache("datasets").keep,
            data,
            origin,
            label="training-data",
            ingredients={**origin, "seed": session.seeds(arm)("data")},
        )
        await in_background(self.record.link_training_data, entry)
        return data

    def _identify(
        self, data: MaterializedDataset, start: Start, roles: Sequence[ArmRole], made: Mapping[str, str]
    ) -> None:
        """Record the identity of the run, by its rows, weights and plugins, and compare it with earlier attempts."""
        session, arm = self.session, self.arm
        branch = self.record.facts.get(BRANCH)
        versions = plugin_versions(session.plan.registry, arm.run)
        self.identity = identity_of_arm(
            session.plan,
            arm,
            self.benchmarks,
            data_hash=data.fingerprint,
            weights=start.weights if branch is None else branch["files"],
            roles=roles,
        )
        if self.known_as not in (None, self.identity):
            raise DataError(
                f"{run_id_of(arm)} isn't what it was: its starting weights, or those of a role, have changed since it began",
                hint="put them back, or start a new experiment",
            )
        self.record.note(
            identity=self.identity,
            **{MADE_WITH: made},
            data={
                "fingerprint": data.fingerprint,
                "rows": len(data),
                "dropped": dict(data.dropped),
                "lineage": list(data.lineage),
            },
            plugins=versions,
            **({} if start.follows is None else {"begins_with": start.follows}),
            seed=session.seeds(arm).base_seed,
            **({"roles": {role.name: role.facts for role in roles}} if roles else {}),
        )

    async def _pull(self, reference: str) -> CachedData:
        self.watch.awaits("store", reference)
        pulled = await _pull(self.session, reference)
        self.watch.awaits("data", reference)
        return pulled

    async def _look_back(self, made: Mapping[str, str], why_new: str | None) -> None:
        """Find an earlier run with the same identity: reuse it if the experiment asks for that, else report it.

        Args:
            made: the hashes of `made_with`.
            why_new: why no earlier run can be reused; None if one can.
        """
        if self.session.options.dry:
            return
        self.reused = await self._on_record(made, why_new)
        if self.reused is not None:
            return
        self.earlier = await self.session.earlier.find(self.identity)
        if self.earlier is not None:
            where, run_id = self.earlier.experiment_id, run_id_of(self.arm)
            text = f"{run_id} was run before in {where} (use it: evsys show {where} {self.earlier.run_id})"
            if self.session.plan.experiment.n_repeats > 1:
                text += "; its other repeats are only in run.json"
            # Once an arm, and not in the run's own log: what is in the same run twice has the same numbers there.
            if (self.arm.name, where) not in self.session.repeated:
                self.session.repeated.add((self.arm.name, where))
                self.session.log.warning("run.repeated", what=text)
            self.record.note(
                run_before={"experiment_id": self.earlier.experiment_id, "run_id": self.earlier.run_id}
            )

    async def _on_record(self, made: Mapping[str, str], why_new: str | None) -> FoundRun | None:
        """The run on record that replaces this one, if the experiment reuses arms."""
        session, options = self.session, self.session.options
        if not session.plan.experiment.reuse_arms or self.begun or self.record.facts.get(BRANCH) is not None:
            return None
        if options.no_cache:
            why_new = "everything is to be scored again"
        elif options.inference_factory is not None:
            why_new = "an inference_factory scores it"
        if why_new is not None:
            if self.arm.weights_of is None:
                self._warn(f"{run_id_of(self.arm)} isn't looked for on record: {why_new}")
            return None
        wanted = WantedRun(
            run_id=run_id_of(self.arm),
            identity=self.identity,
            made_with=made,
            benchmarks=self.benchmarks,
            untrained=scores_untrained(session.plan, self.arm),
        )
        return await in_background(self._find, wanted)

    def _find(self, wanted: WantedRun) -> FoundRun | None:
        record, what = self.session.record, "runs to reuse"
        own, folder = record.experiment_id, record.directory.parent
        with earlier_index(folder, own, self._warn, wanted=what) as index:
            try:
                if index is None:
                    return None
                return find_run(index, own, wanted, self.session.audited, self._warn)
            except (StoreError, sqlite3.Error) as error:
                self._warn(f"{what} can't be looked up: {error}")
                return None

    def _warn(self, text: str) -> None:
        self.session.warnings.append(text)
        self.session.log.warning("run.not_reused", what=text)

    def note_stages(self, data: MaterializedDataset) -> None:
        """Record what the run came to at each stage, and where it departs from what it came to before."""
        try:
            stages = stages_of(self.record, data.fingerprint)
            order = order_of(self.record, len(data))
        except (StoreError, KeyError) as error:  # a damaged line costs no score
            told = error.message if isinstance(error, StoreError) else f"a line lacks {error}"
            self.warnings.append(f"the results of the run at each stage can't be read: {told}")
            return
        self.record.note(stages=stages, order=order)
        if self.earlier is None:
            return
        try:
            before = self.earlier.facts().get("stages") or {}
        except StoreError as error:
            self.warnings.append(f"what this run came to before can't be read: {error.message}")
            return
        differs = first_difference(before, stages)
        if differs is None:
            return
        text = f"it is the same run as {self.earlier.experiment_id} {self.earlier.run_id}, yet differs, first in {differs}"
        if self.record.facts.get("deterministic"):  # as it turned out
            self.warnings.append(text)
        self.session.log.info("run.diverged", run_id=run_id_of(self.arm), what=text)


async def _pull(session: Session, reference: str) -> CachedData:
    """A stored dataset by id or name: the project's own or what was pulled before, else from the store, then kept.

    Raises:
        StoreError: it isn't here and there is no store, or the store failed.
        DataError: it is here and can't be used.
    """
    try:
        return await in_background(session.workspace.pull_dataset, reference)
    except DataError as error:
        if not error.facts.get("unknown"):
            raise
        store = _store(session)
        if store is None:
            raise StoreError(error.message, hint=error.hint) from error
    with boundary("store", type(store).__name__):
        # In threads that may be left behind: what a store gives is often read only while it is kept.
        is_async = inspect.iscoroutinefunction(store.pull)
        rows = store.pull(reference) if is_async else await in_background(store.pull, reference)
        if inspect.isawaitable(rows):
            rows = await rows
        cache = session.workspace.cache("datasets")
        return await in_background(
            cache.put, reference, rows_of_store(rows, reference), {"source": "store", "ref": reference}
        )


def _store(session: Session) -> Any:
    spec = session.plan.experiment.data_store
    if session.options.store is not None or spec is None:
        return session.options.store
    return session.plan.registry.build("data_store", spec.kind, resolve(spec.params))
