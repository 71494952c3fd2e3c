"""The process of one arm: `python -m evsys_runtime.experiment.arm_process FOLDER`, as a launcher runs it.

It reads the experiment's record, trains and scores the arm as the experiment itself would, and writes the arm's run. All that arms
share goes through the experiment: events, budget, scores of starting weights.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys import use_registry
from evsys.errors import ConfigError, EvsysError, StoreError
from evsys.types import ArmResult, EvaluationResult
from evsys_record.files import SPOOLED, read_json, sweep
from evsys_record.result_trees import read_as, read_file_as
from evsys_record.secrets import Redactor
from evsys_runtime.config import overrides as overrides_
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.config.project import import_project_code
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.experiment.budget.lease import LeasedBudget
from evsys_runtime.experiment.launching.launched_arm import HIDDEN_OVERRIDES
from evsys_runtime.experiment.launching.link import PARENT, ArmRecord, Link, LinkedScores
from evsys_runtime.experiment.launching.messages import SPEC, Mailbox
from evsys_runtime.experiment.launching.relay import HookSender
from evsys_runtime.experiment.lineage.preregistration import child_of
from evsys_runtime.experiment.lineage.restart_point import take_up
from evsys_runtime.experiment.open_session import bound_benchmarks, session_over
from evsys_runtime.experiment.resume.changes import original_plan
from evsys_runtime.experiment.scheduling import run_arms
from evsys_runtime.experiment.search.sources import sources_of
from evsys_runtime.experiment.state.arm_sources import add_recorded_arms
from evsys_runtime.experiment.state.facts import STORED
from evsys_runtime.experiment.state.options import Options
from evsys_runtime.experiment.state.secrets import redactor_of
from evsys_runtime.experiment.state.session import Session, run_id_of
from evsys_runtime.experiment.supervision.event_loop import run_to_end

__all__ = ["main"]


def main(folder: Path) -> int:
    """Run the arm of a launch; its exit code."""
    try:
        spec = read_json(folder / SPEC)
        hidden = json.loads(os.environ.pop(HIDDEN_OVERRIDES, "[]"))
        process = ArmProcess(folder=folder, spec=spec, hidden=hidden)
        run_to_end(process.run, call="an arm's process", instead="await process.run()")
    except asyncio.CancelledError:  # asked to end; the record says so
        return 0
    except EvsysError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


@attrs.define(kw_only=True, eq=False)
class ArmProcess:
    """A launch of one arm. `hidden` has the `--set` options whose values no file may hold."""

    folder: Path
    spec: Mapping[str, Any]
    hidden: list[str]

    async def run(self) -> None:
        """Train and score the arm, and record it.

        Raises:
            EvsysError: it can't be begun; the failure of an arm that has begun is its result.
        """
        plan = self._plan()
        import_project_code(plan.project_root, plan.registry)
        with use_registry(plan.registry), use_scope(DataScope(project_root=plan.project_root)):
            await self._run(plan)

    async def _run(self, plan: Plan) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        session: Session | None = None

        def steer(message: Mapping[str, Any]) -> None:
            if session is not None:
                loop.call_soon_threadsafe(_steer, session, message)

        def end(reason: str) -> None:
            if session is not None:
                session.stopping = reason
            loop.call_soon_threadsafe(task.cancel)

        redactor = redactor_of(plan)
        parent = os.environ.get(PARENT)
        link = Link(
            Mailbox(self.folder, of_arm=True, redactor=redactor),
            parent=None if parent is None else int(parent),
            on_steer=steer,
            on_end=end,
        )
        session = self._session(plan, link, redactor)
        link.start()
        try:
            await run_arms(session)
        finally:
            for text in session.warnings:
                if text not in plan.warnings:
                    link.send("warning", text=text)
            link.close()

    def _plan(self) -> Plan:
        """The experiment as its launch planned it, with the arms added since, cut down to this arm and those before it."""
        directory = Path(self.spec["experiment"])
        facts = read_json(directory / "experiment.json")
        given = {overrides_.option(each): each for each in self.hidden}
        plan = load_experiment(
            directory / "config.yaml",
            overrides=[given.get(overrides_.option(each), each) for each in self.spec["overrides"]],
            project_root=Path(self.spec["project_root"]),
            pins=facts.get(STORED) or {},
        )
        experiment = attrs.evolve(plan.experiment, output_dir=str(directory.parent))
        plan = original_plan(attrs.evolve(plan, experiment=experiment), directory)
        plan = child_of(plan, facts["parent_experiment_id"])
        plan = add_recorded_arms(plan, ArmRecord.open(directory), sources_of(plan))
        chain = tuple(self._chain({run_id_of(arm): arm for arm in plan.arms}))
        return attrs.evolve(plan, arms=chain[::-1])

    def _chain(self, arms: Mapping[str, ArmConfig]) -> Iterator[ArmConfig]:
        """This arm, then those whose results it starts from."""
        run_id: str | None = self.spec["run_id"]
        arm = arms.get(str(run_id))
        if arm is None or arm.digest != self.spec["identity"]:
            raise ConfigError(
                f"{run_id} isn't what its experiment launched: its file or an installed plugin differs here",
                hint="install the same versions on each machine, and share the project's folder",
            )
        while arm is not None:
            yield arm
            arm = arms.get(arm.after or arm.weights_of or "")

    def _session(self, plan: Plan, link: Link, redactor: Redactor) -> Session:
        spec = self.spec
        record = ArmRecord.open(Path(spec["experiment"]), redactor)
        assert isinstance(record, ArmRecord)
        record.attach(link)
        options = Options(quiet=True, **spec["options"])
        benchmarks = bound_benchmarks(plan, options)
        session = session_over(
            record,
            plan,
            options,
            benchmarks,
            redactor,
            limits=None,
            log=self.folder / "experiment.log.jsonl",
        )
        session.launcher = None
        session.scores_outside_harness = spec["scores_outside_harness"]
        session.ambient.register(HookSender(link.send), "the experiment")
        known = {key: read_as(EvaluationResult, tree) for key, tree in spec["untrained"].items()}
        session.untrained = LinkedScores(link, "untrained", known)
        session.compared = LinkedScores(link, "compared", {})
        if spec["unpaid"] is not None:
            session.unpaid[spec["run_id"]] = spec["unpaid"]
        if spec["budget"] is not None:
            session.budget = _budget(spec, link)
        for arm in plan.arms[:-1]:
            session.results[run_id_of(arm)] = _read_result(record, run_id_of(arm))
        run = record.find_run(spec["run_id"])
        if run is not None:
            sweep(run.directory)
            run.checkpoints.recover()
            for rows in (run.directory / "data").glob(SPOOLED):
                rows.unlink(missing_ok=True)
            session.restart_points = {spec["run_id"]: take_up(run, session.benchmarks_of(plan.arms[-1]))}
        return session


def _budget(spec: Mapping[str, Any], link: Link) -> LeasedBudget:
    def ask(used: Mapping[str, float]) -> Mapping[str, Any] | None:
        answer = link.ask("lease", used=dict(used))
        return None if answer is None else answer["lease"]

    return LeasedBudget(
        spec["run_id"],
        spec["budget"]["lease"],
        used=spec["budget"]["used"],
        ask=ask,
        report=lambda used: link.send("spent", used=dict(used)),
        suggest=lambda limit: link.send("exhausted", limit=limit),
        tell=lambda text: link.send("warning", text=text),
        note=lambda event, **facts: (
            None if event == "budget.spent" else link.send("event", event=event, facts=facts)
        ),
    )


def _read_result(record: ArmRecord, run_id: str) -> ArmResult:
    run = record.find_run(run_id)
    tree = None if run is None else run.read_result()
    if run is None or tree is None:
        raise StoreError(f"{run_id} has no result on record, and this arm starts from it")
    return read_file_as(ArmResult, tree, run.directory)


def _steer(session: Session, asked: Mapping[str, Any]) -> None:
    """Carry out the requests in force."""
    steering = session.steering
    if asked["stop"] is not None:
        steering.end_early(asked["stop"])
    if asked["paused"]:
        steering.pause(at_once=asked["at_once"])
    else:
        steering.unpause()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
