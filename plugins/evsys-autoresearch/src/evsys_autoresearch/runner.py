"""The research loop: ask, check, register, run, score, until a stop rule; then confirm the winner and open the sealed test.

Each stage ends with a line of the journal. A stage whose line is there is never repeated, and an experiment is found again by
its name, so research that is killed anywhere continues where it was.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs

from evsys import HookManager, boundary, use_registry
from evsys.errors import EvsysError
from evsys.optional import declared
from evsys.types import Proposal, ResearchState, Round, Stop
from evsys_autoresearch.asking import ask, context_known
from evsys_autoresearch.ending import Ending, Winner, best_of, seconds_to_reserve
from evsys_autoresearch.goal import Goal, StopConfig, load_goal
from evsys_autoresearch.journal import Journal
from evsys_autoresearch.laboratory import CANDIDATE, START, Laboratory, Measured, error_text
from evsys_autoresearch.levers import hashes_of
from evsys_autoresearch.report import gain_curve, write_report
from evsys_autoresearch.result import ResearchResult, Verdict
from evsys_autoresearch.rules import BrokenRuleError, Checked, Guard, Rules
from evsys_autoresearch.sandbox import Sandbox
from evsys_record import make_directory, slug, write_atomic
from evsys_record.files import read_json, write_json
from evsys_record.lock import ExperimentLock
from evsys_runtime.config.model.plugins import PluginSpec
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.experiment.state.listeners import ambient_listeners

if TYPE_CHECKING:
    from evsys.protocols import Researcher

__all__ = ["FOLDER", "Research", "ResearchResult"]

FOLDER = Path(".evsys") / "research"
"""The records of research runs in a project."""


class Research:
    """A research run on record.

    Args:
        goal: the goal.
        directory: its record.
        tell: gets a line about each stage.
    """

    def __init__(self, goal: Goal, directory: Path, *, tell: Callable[[str], None] = lambda _: None) -> None:
        self.goal, self.directory, self.tell = goal, directory, tell
        self.research_id = directory.name
        self.lock = ExperimentLock(directory)
        hidden = (goal.project_root, *((Path(goal.sealed.path or ""),) if goal.sealed else ()))
        self.sandbox = Sandbox(kind=goal.config.sandbox, hidden=hidden)
        tasks = (
            goal.project_root / each.path for each in goal.start.experiment.metadata.benchmarks if each.path
        )
        self.apart = attrs.evolve(self.sandbox, hidden=(*hidden[1:], *tasks))
        self.laboratory = Laboratory(goal, directory, self.sandbox)
        self.researcher: Researcher = goal.registry.build(
            "researcher", goal.config.researcher.kind, goal.config.researcher.params
        )

    @classmethod
    def begin(
        cls, path: Path, *, tell: Callable[[str], None] = lambda _: None, root: Path | None = None
    ) -> Self:
        """Check a goal file and make the record of a new research run.

        Raises:
            ConfigError: problems of the goal file or of the start's.
        """
        goal = load_goal(path, project_root=root)
        moment = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        for number in range(1, 1000):
            name = f"{moment}-{slug(goal.config.goal)[:40].rstrip('-')}" + (
                f"-{number}" if number > 1 else ""
            )
            directory = goal.project_root / FOLDER / name
            make_directory(directory.parent)
            try:
                directory.mkdir()
            except FileExistsError:
                continue
            break
        write_atomic(directory / "goal.yaml", goal.document.text)
        return cls(goal, directory, tell=tell)

    @classmethod
    def resume(cls, directory: Path, *, tell: Callable[[str], None] = lambda _: None) -> Self:
        """Open a research run on record."""
        root = directory.parent.parent.parent
        return cls(load_goal(directory / "goal.yaml", project_root=root), directory, tell=tell)

    async def arun(self) -> ResearchResult:
        """Run, or continue, to the end."""
        with (
            use_registry(self.goal.registry),
            use_scope(DataScope(project_root=self.goal.project_root)),
            self.lock,
        ):
            self.journal = Journal(self.directory / "journal.jsonl")
            try:
                return await self._run()
            finally:
                self.journal.close()

    async def _run(self) -> ResearchResult:
        self._open()
        await self._score_start()
        while (reason := self._ended()) is None:
            await self._round(len(self.rounds) + 1)
        return await self._finish(reason)

    def _open(self) -> None:
        """The beginning of the record, or what a resumed run needs of it."""
        self.hooks: HookManager = ambient_listeners(self.goal.registry)[0]
        begun = self.journal.find("research.started")
        if begun is None:
            self.sandbox.check()
            guard = Guard.of(self.goal, self.directory / "goal.yaml")
            self.journal.append(
                "research.started",
                researcher=self.goal.config.researcher.kind,
                guarded=dict(guard.hashes),
                inside=sorted(guard.inside),
                sandbox=self.goal.config.sandbox,
            )
        else:
            guard = Guard(hashes=begun["guarded"], inside=frozenset(begun["inside"]))
            self.journal.append("research.resumed")
            self._report_touched(guard, number=len(self.rounds))
        self.guard = guard
        self.rules = Rules(goal=self.goal, guard=guard, experiments=self.laboratory.experiments)

    def _report_touched(self, guard: Guard, number: int) -> list[str]:
        """The changed files that decide scores, which go on record."""
        touched = guard.touched()
        if touched:
            self.journal.append("rule.broken", number=number, rule="guarded files", reason=", ".join(touched))
        return touched

    @property
    def rounds(self) -> list[Round]:
        """The rounds that ended."""
        return [
            Round(**_tuples(line["round"])) for line in self.journal.lines if line["event"] == "round.ended"
        ]

    async def _score_start(self) -> None:
        if self.journal.find("start.scored") is not None:
            return
        config = self.laboratory.config(
            self._name(0), None, hypothesis="The start, as it is.", left=self._left()
        )
        measured = await self._measure(0, config, {}, START)
        if measured.score is None:
            raise EvsysError(f"the start can't be scored: {measured.reason}")
        self.journal.append("start.scored", **attrs.asdict(measured))
        self.tell(f"start: {self.goal.success} {measured.score:.4g}")

    def _ended(self) -> str | None:
        """Why there is no further round; None to continue."""
        if (told := self.journal.find("rounds.ended")) is not None:
            return str(told["reason"])
        limits, rounds = self.goal.config, self.rounds
        left = self._left()
        lost = next((n for n, each in enumerate(reversed(rounds)) if each.status != "lost"), len(rounds))
        reason = None
        if self.journal.find("rule.broken", rule="guarded files") is not None:
            reason = "a file that decides scores was changed"
        elif left["experiments"] < 1:
            reason = f"{limits.budget.experiments} rounds were made"
        elif any(value <= 0 for value in left.values()):
            reason = "the rest of the budget is reserved for the confirmation and the sealed test"
        elif lost >= limits.stop.lost:
            reason = f"{lost} rounds in a row were lost"
        elif limits.stop.no_progress is not None and self._idle(rounds) >= limits.stop.no_progress:
            reason = f"no new best score in {limits.stop.no_progress} rounds"
        elif (stop := self.journal.find("researcher.stopped")) is not None:
            reason = f"the researcher stopped: {stop['reason']}"
        if reason is not None:
            self.journal.append("rounds.ended", reason=reason)
        return reason

    def _idle(self, rounds: list[Round]) -> int:
        """Rounds since the last new best score."""
        best, since = self._oriented(self._start_line()["score"]), 0
        for each in rounds:
            score = None if each.score is None or each.cheap else self._oriented(each.score)
            best, since = (score, 0) if score is not None and score > best else (best, since + 1)
        return since

    def _oriented(self, score: float) -> float:
        return self.goal.success.oriented(score)

    def _start_line(self) -> Mapping[str, Any]:
        line = self.journal.find("start.scored")
        assert line is not None
        return line

    def _left(self) -> dict[str, float]:
        """The rest of each limit, less the reserve for the confirmation and the sealed test."""
        budget = self.goal.config.budget
        asked = sum(line["event"] == "round.ended" for line in self.journal.lines)
        left = {"experiments": float(budget.experiments - asked)}
        reserve = seconds_to_reserve(self.journal, self.goal.config.confirm.seeds)
        if budget.seconds is not None:
            left["seconds"] = budget.seconds - self.journal.total("seconds") - reserve["seconds"]
        if budget.money is not None:
            left["money"] = budget.money - self.journal.total("money") - reserve["money"]
        return left

    # --- a round ----------------------------------------------------------------------------------------------------

    async def _round(self, number: int) -> None:
        """One round: a proposal, its registration, its experiment, its score. Whatever breaks a rule loses the round."""
        try:
            proposal = await self._proposal(number)
            if proposal is None:
                return
            checked = self._registered(number, proposal)
            measured = await self._run_round(number, proposal, checked)
        except BrokenRuleError as exc:
            self.journal.append("rule.broken", number=number, rule=exc.rule, reason=str(exc))
            await self._end_round(Round(number=number, status="lost", reason=f"{exc.rule}: {exc}"))
            return
        scored = measured.score is not None
        await self._end_round(
            Round(
                number=number,
                status="scored" if scored else "failed",
                hypothesis=proposal.hypothesis,
                expected_effect=float(proposal.expected_effect),
                changes=checked.changes,
                files=hashes_of(checked.files),
                builds_on=proposal.builds_on,
                repeats=proposal.repeats,
                score=measured.score,
                low=measured.low,
                high=measured.high,
                effect=measured.effect,
                tasks=measured.tasks,
                cheap=proposal.tasks is not None,
                experiment=measured.experiment,
                reason=measured.reason,
            )
        )

    async def _proposal(self, number: int) -> Proposal | None:
        """The proposal of a round, asked for once; None if the researcher stops."""
        file = self._folder(number) / "proposal.json"
        if self.journal.find("round.proposed", number=number) is not None:
            return Proposal(**_tuples(read_json(file)["proposal"]))
        started = time.monotonic()
        answer: Proposal | Stop | None = None
        why = ""
        try:
            with boundary("researcher", self.goal.config.researcher.kind):
                answer = await ask(
                    self.researcher, self.state(number), self.goal, self._folder(number), self.apart
                )
        except EvsysError as exc:
            why = error_text(exc)
        seconds = time.monotonic() - started
        touched = self._report_touched(self.guard, number)
        if isinstance(answer, Stop):
            self.journal.append("researcher.stopped", number=number, reason=answer.reason, seconds=seconds)
            return None
        if answer is None or touched:
            self.journal.append("round.asked", number=number, seconds=seconds)
            text = f"it changed {', '.join(touched)}" if touched else why
            raise BrokenRuleError("guarded files" if touched else "researcher", text)
        write_json(file, {"format": 1, "proposal": attrs.asdict(answer)})
        self.journal.append("round.proposed", number=number, seconds=seconds)
        return answer

    def _registered(self, number: int, proposal: Proposal) -> Checked:
        """The checked proposal, whose hypothesis and experiment file are on record before anything is spent."""
        texts = {each.number: self._texts(each.number) for each in self.rounds if each.files}
        checked = self.rules.check(proposal, self.rounds, texts)
        if self.journal.find("round.registered", number=number) is None:
            parents = [each.experiment for each in self.rounds if each.number in proposal.builds_on]
            config = self.laboratory.config(
                self._name(number),
                checked.run,
                hypothesis=proposal.hypothesis,
                parent=parents[-1] if parents else self._start_line()["experiment"],
                repetition=checked.repetition,
                tasks=proposal.tasks,
                left=self._left(),
            )
            write_atomic(
                self._folder(number) / "experiment.yaml", json.dumps(config, indent=2, ensure_ascii=False)
            )
            self.journal.append(
                "round.registered",
                number=number,
                hypothesis=proposal.hypothesis,
                expected_effect=float(proposal.expected_effect),
                reserved=self._left(),
            )
        return checked

    async def _run_round(self, number: int, proposal: Proposal, checked: Checked) -> Measured:
        config = json.loads((self._folder(number) / "experiment.yaml").read_text(encoding="utf-8"))
        self.tell(f"round {number}: {proposal.hypothesis}")
        measured = await self._measure(number, config, checked.files, CANDIDATE)
        touched = self.guard.touched()
        if touched:
            raise BrokenRuleError("guarded files", f"its experiment changed {', '.join(touched)}")
        return measured

    async def _measure(
        self, number: int, config: Mapping[str, Any], files: Mapping[str, str], arm: str
    ) -> Measured:
        """Run an experiment; one that fails as a whole is a measurement without a score."""
        started = time.monotonic()
        try:
            result = await self.laboratory.run(config, files)
        except EvsysError as exc:
            return Measured(
                experiment="", status="failed", seconds=time.monotonic() - started, reason=error_text(exc)
            )
        measured = self.laboratory.measured(result, arm)
        self.journal.append("experiment.ended", number=number, seconds=measured.seconds, money=measured.money)
        return measured

    async def _end_round(self, ended: Round) -> None:
        self.journal.append("round.ended", number=ended.number, round=attrs.asdict(ended))
        words = f"{ended.score:.4g}" if ended.score is not None else f"{ended.status}: {ended.reason}"
        self.tell(f"round {ended.number}: {words}")
        await self.hooks.emit(
            "evsys_round_finished", research_id=self.research_id, directory=self.directory, round=ended
        )

    def state(self, number: int) -> ResearchState:
        """Everything that the researcher may know before a round."""
        uses_context = declared(self.researcher, "uses_context", True)
        return ResearchState(
            goal=self.goal.config.goal,
            metric=str(self.goal.success),
            direction=self.goal.success.direction,
            minimum_effect=self.goal.config.objective.minimum_effect,
            start=json.loads(json.dumps(self.goal.tree)),
            start_score=self._start_line()["score"],
            levers=self.goal.levers.written,
            space=self.goal.levers.space,
            rounds=self.rounds,
            left=self._left(),
            context=context_known(self.laboratory.experiments, self.goal.project_root)
            if uses_context
            else {},
            records=self.laboratory.experiments,
            seed=self.goal.config.seed,
        )

    def _texts(self, number: int) -> dict[str, str]:
        """The files that a round wrote."""
        proposal = read_json(self._folder(number) / "proposal.json")["proposal"]
        if proposal.get("repeats") is not None:
            return self._texts(int(proposal["repeats"]))
        return dict(proposal["files"])

    def _folder(self, number: int) -> Path:
        return make_directory(self.directory / "rounds" / f"{number:03d}")

    def _name(self, number: int) -> str:
        return f"{self.research_id}-r{number:03d}"

    # --- the end ----------------------------------------------------------------------------------------------------

    async def _finish(self, reason: str) -> ResearchResult:
        """Confirm the winner on fresh seeds, look at the sealed test once, and write the report."""
        winner = best_of(self.rounds, self._start_line(), self.goal.success)
        ending = Ending(
            goal=self.goal,
            research_id=self.research_id,
            journal=self.journal,
            laboratory=self.laboratory,
            tell=self.tell,
        )
        confirmation = sealed = None
        verdict: Verdict = "not_improved"
        if self.journal.find("rule.broken", rule="guarded files") is not None:
            verdict = "invalid"
        elif winner is not None:
            files = self._texts(winner.number) if winner.files else {}
            confirmation = await ending.confirm(winner, self.rounds, files)
            verdict = "not_confirmed"
            if (confirmation["effect"] or 0.0) > 0:
                verdict = "unsealed"
                if self.goal.sealed is not None:
                    sealed = await ending.open_sealed(confirmation)
                    won = sealed["outcome"] == "win" and not self.guard.touched()
                    verdict = "improved" if won else "not_confirmed"
        referees = {str(name): await self._referee(name) for name in self.goal.config.referee}
        result = self._result(verdict, reason, winner, confirmation, sealed)
        result = attrs.evolve(result, referees=referees)
        if self.journal.find("research.finished") is None:
            self.journal.append("research.finished", verdict=verdict, reason=reason)
        write_report(self.directory, result)
        return result

    def _result(
        self,
        verdict: Verdict,
        reason: str,
        winner: Winner | None,
        confirmation: Mapping[str, Any] | None,
        sealed: Mapping[str, Any] | None,
    ) -> ResearchResult:
        broken = [line for line in self.journal.lines if line["event"] == "rule.broken"]
        return ResearchResult(
            research_id=self.research_id,
            directory=str(self.directory),
            verdict=verdict,
            reason=reason,
            goal=self.goal.config.goal,
            metric=str(self.goal.success),
            researcher=self.goal.config.researcher.kind,
            start_score=self._start_line()["score"],
            winner=winner,
            confirmation=confirmation,
            sealed=sealed,
            rounds=tuple(self.rounds),
            broken_rules=tuple({key: line[key] for key in ("number", "rule", "reason")} for line in broken),
            spent={
                "experiments": float(sum(each.status != "lost" for each in self.rounds)),
                "seconds": self.journal.total("seconds"),
                "money": self.journal.total("money"),
            },
            larger=self.goal.success.direction == "max",
            unprotected=self.goal.config.sandbox == "none",
        )

    async def _referee(self, name: str) -> tuple[float | None, ...]:
        """The curve of a researcher under the same budget, without a confirmation and without the sealed test."""
        config = attrs.evolve(
            self.goal.config, researcher=PluginSpec(kind=name), referee=(), sealed=None, stop=StopConfig()
        )
        directory = make_directory(self.directory / "referees" / f"{self.research_id}-{name}")
        other = Research(attrs.evolve(self.goal, config=config, sealed=None), directory)
        self.tell(f"referee {name}")
        return await other.arun_rounds()

    async def arun_rounds(self) -> tuple[float | None, ...]:
        """Run, or continue, the rounds alone; returns the best score so far after each, the start's first."""
        with self.lock:
            self.journal = Journal(self.directory / "journal.jsonl")
            try:
                self._open()
                await self._score_start()
                while self._ended() is None:
                    await self._round(len(self.rounds) + 1)
                larger = self.goal.success.direction == "max"
                return tuple(gain_curve(self.rounds, self._start_line()["score"], larger=larger))
            finally:
                self.journal.close()


def _tuples(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a value as JSON has them, lists as tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in tree.items()}


def run_research(research: Research) -> ResearchResult:
    """Run research to its end from code without an event loop."""
    return asyncio.run(research.arun())
