"""The contract of a researcher: proposals that depend on the state alone, change levers only, and repeat nothing."""

from __future__ import annotations

import copy
import fnmatch
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import attrs
import pytest

from evsys.types import Proposal, ResearchState, Round, SearchAxis, Stop
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import breach, require, require_equal
from evsys_conformance.places import describe_error
from evsys_conformance.running import run

__all__ = ["ResearcherConformance"]

_ROUNDS = 4

_START: Mapping[str, Any] = {
    "version": 1,
    "name": "start",
    "metadata": {
        "hypothesis": "the start",
        "success_metric": "val.mean_reward",
        "benchmark": [{"name": "val", "path": "val.jsonl"}],
    },
    "run": {
        "data": {"source_kind": "jsonl", "path": "train.jsonl", "transforms": [{"kind": "jsonl_to_chat"}]},
        "model": {"name": "evsys/tiny"},
        "algorithm": {"kind": "sft", "params": {"learning_rate": 0.001, "steps": 8, "lora_rank": 8}},
        "backend": {"kind": "mock"},
    },
}


class ResearcherConformance(PluginConformance):
    """Checks of the kind `researcher`. Override `state` for the beginning of research that it can do.

    One that needs a service or another program declares `conformance = {"service": ...}`, and is checked in tests of its own.
    """

    kind: ClassVar[str | None] = "researcher"

    @pytest.fixture
    def state(self) -> ResearchState:
        """The beginning of research: a start with its score, and two axes under its levers."""
        return ResearchState(
            goal="a better start",
            metric="val.mean_reward",
            minimum_effect=0.02,
            start=copy.deepcopy(_START),
            start_score=0.4,
            levers=("run.algorithm.params.learning_rate", "run.algorithm.params.lora_rank", "src/**"),
            space=(
                SearchAxis(path="run.algorithm.params.learning_rate", low=1e-4, high=1e-1, log=True),
                SearchAxis(path="run.algorithm.params.lora_rank", choices=(4, 8, 16, 32)),
            ),
            left={"experiments": 12.0, "seconds": 600.0},
            seed=3,
        )

    @check()
    def test_proposes_an_experiment_or_stops(self, plugin: Any, state: ResearchState) -> None:
        """The answer is a `Proposal` with a hypothesis and a finite expected effect, or a `Stop` with a reason."""
        answer = run(plugin.propose(state))
        if isinstance(answer, Stop):
            require(answer.reason, "it stops without a reason", seen=answer, wanted="Stop(reason='...')")
            return
        require(
            isinstance(answer, Proposal),
            "the answer is not a Proposal or a Stop",
            seen=answer,
            wanted="Proposal(config=..., hypothesis='...', expected_effect=0.02)",
        )
        require(answer.hypothesis.strip(), "a proposal has no hypothesis", seen=answer.hypothesis)
        require(
            isinstance(answer.expected_effect, int | float) and math.isfinite(answer.expected_effect),
            "the expected effect is not a finite number",
            seen=answer.expected_effect,
        )

    @check()
    def test_proposals_are_json(self, plugin: Any, state: ResearchState) -> None:
        """The experiment file of a proposal has values that JSON can hold."""
        for proposal in self._proposals(plugin, state):
            try:
                json.dumps(dict(proposal.config), allow_nan=False)
            except (TypeError, ValueError) as exc:
                breach(f"the experiment file can't be written as JSON: {exc}", seen=proposal.config)

    @check()
    def test_changes_levers_only(self, plugin: Any, state: ResearchState) -> None:
        """A proposal differs from the start only under the levers."""
        for proposal in self._proposals(plugin, state):
            for path in _changes(state.start, proposal.config) if proposal.config else ():
                require(
                    any(_is_under(path, lever) for lever in state.levers),
                    f"a proposal changes {path}, which is not under a lever",
                    seen=path,
                    wanted=", ".join(state.levers),
                )
            for name in proposal.files:
                require(
                    any(fnmatch.fnmatch(name, lever) for lever in state.levers),
                    f"a proposal writes {name}, which is not under a lever",
                    seen=name,
                    wanted=", ".join(state.levers),
                )

    @check()
    def test_same_state_same_proposal(
        self, plugin: Any, make: Callable[[], Any], state: ResearchState
    ) -> None:
        """Asked again, or by another object made alike, the same state gives the same answer: so research resumes."""
        later = self._after(plugin, state, rounds=2)
        first = run(make().propose(later))
        used = make()
        run(used.propose(state))
        for when, researcher in (("an object that was asked before", used), ("another object", make())):
            require_equal(
                run(researcher.propose(later)), first, f"in the same state {when} answers differently"
            )

    @check()
    def test_proposes_no_arm_twice(self, plugin: Any, state: ResearchState) -> None:
        """A proposal without `repeats` is an arm that no round had."""
        seen: list[Any] = []
        for proposal in self._proposals(plugin, state):
            if proposal.repeats is not None:
                continue
            arm = (_changes(state.start, proposal.config), dict(proposal.files), proposal.tasks)
            require(
                arm not in seen, "it proposes an arm that it proposed before", seen=arm, wanted="another arm"
            )
            seen.append(arm)

    @check()
    def test_state_is_left_as_it_was(self, plugin: Any, state: ResearchState) -> None:
        """The state is the record: it is read, never changed."""
        later = self._after(plugin, state, rounds=2)
        before = copy.deepcopy(later)
        run(plugin.propose(later))
        require_equal(later, before, "it changed the state that it was given")

    @check()
    def test_lost_and_failed_rounds_are_rounds(self, plugin: Any, state: ResearchState) -> None:
        """With rounds that failed, or that it lost, the research continues."""
        answer = run(plugin.propose(state))
        if isinstance(answer, Stop):
            pytest.skip("proposes nothing")
        changes = _changes(state.start, answer.config)
        for status in ("failed", "lost"):
            rounds = [Round(number=1, status=status, changes=changes, reason="it has no score")]
            rounds.append(Round(number=2, status="lost", reason="no answer within 900 s"))
            try:
                run(plugin.propose(attrs.evolve(state, rounds=rounds)))
            except Exception as exc:
                breach(
                    f"after a {status} round it fails: {describe_error(exc)}",
                    wanted="the next proposal, or a Stop",
                )

    def _proposals(self, plugin: Any, state: ResearchState) -> list[Proposal]:
        """The proposals of a few rounds."""
        return [proposal for proposal, _ in _research(plugin, state, _ROUNDS)]

    def _after(self, plugin: Any, state: ResearchState, *, rounds: int) -> ResearchState:
        """The state after some rounds."""
        found = [later for _, later in _research(plugin, state, rounds)]
        return found[-1] if found else state


def _research(plugin: Any, state: ResearchState, rounds: int) -> Iterator[tuple[Proposal, ResearchState]]:
    """Proposals, each with the state after its round, whose scores only grow."""
    for number in range(1, rounds + 1):
        answer = run(plugin.propose(copy.deepcopy(state)))
        if not isinstance(answer, Proposal):
            return
        effect = 0.01 * number
        scored = Round(
            number=number,
            status="scored",
            hypothesis=answer.hypothesis,
            expected_effect=answer.expected_effect,
            changes=_changes(state.start, answer.config) if answer.config else {},
            files={name: str(len(text)) for name, text in answer.files.items()},
            builds_on=answer.builds_on,
            repeats=answer.repeats,
            score=0.4 + effect,
            low=0.3 + effect,
            high=0.5 + effect,
            effect=effect,
            tasks=answer.tasks or 100,
            experiment=f"20260101-00000{number}-round",
        )
        state = attrs.evolve(state, rounds=[*state.rounds, scored])
        yield answer, state


def _changes(start: Any, config: Any, path: str = "") -> dict[str, Any]:
    """The values that differ from the start, by their path; lists count as one value."""
    if isinstance(start, Mapping) and isinstance(config, Mapping):
        found: dict[str, Any] = {}
        for key in {**start, **config}:
            found |= _changes(start.get(key), config.get(key), f"{path}.{key}" if path else str(key))
        return found
    return {} if start == config and type(start) is type(config) else {path: config}


def _is_under(path: str, lever: str) -> bool:
    return path == lever or path.startswith((f"{lever}.", f"{lever}["))
