"""`llm`: a chat model proposes the experiments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import attrs

from evsys import current_registry, option
from evsys.errors import RunError
from evsys.types import Message, Proposal, ResearchState, SamplingParams, Stop
from evsys_autoresearch.levers import apply_changes
from evsys_runtime.config import placeholders
from evsys_runtime.data.answers import split_reasoning

__all__ = ["Llm", "read_answer"]

ROUNDS = 60
"""Rounds that the model sees, the newest ones."""

MOST_TRIES = 1000
"""Places in an answer at which an object may begin."""

SYSTEM = """You improve a recipe that trains a language model. In each round you propose one experiment, and you see its score.
Answer with one JSON object, and no other one:
{"hypothesis": "why it helps", "expected_effect": 0.02, "changes": {"run.algorithm.params.learning_rate": 0.01}, "builds_on": [1]}
`changes` has values by path, for paths under the levers only; each value replaces the start's. `files` may have new texts of files under
the levers by name, and `repeats` the number of a round to measure again in place of changes. To end the research, answer {"stop": "why"}.
Scores have noise: the intervals say how much. An arm that was tried is refused and costs a round."""


class Llm:
    """Asks a chat model. An answer that can't be read is answered with the reason, at most `attempts` times."""

    name: ClassVar[str] = "llm"
    conformance: ClassVar[Mapping[str, Any]] = {
        "params": {"inference": {"kind": "openai_compatible"}},
        "service": "a chat model",
    }

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `llm`."""

        inference: Mapping[str, Any] = option(..., "`{kind, params}` of an inference client")
        attempts: int = option(3, "questions for one proposal, malformed answers included", ge=1)
        max_tokens: int = option(4096, "tokens of an answer", ge=1)
        temperature: float = option(0.7, "temperature of an answer", ge=0)

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    async def propose(self, state: ResearchState) -> Proposal | Stop:
        """The model's answer.

        Raises:
            RunError: no answer could be read.
        """
        kind = self.config.inference.get("kind")
        if not isinstance(kind, str):
            raise RunError("inference needs the 'kind' of an inference client")
        params = placeholders.resolve(self.config.inference.get("params") or {})
        client = current_registry().build("inference_client", kind, params)
        sampling = SamplingParams(
            max_tokens=self.config.max_tokens,
            temperature=self.config.temperature,
            seed=state.seed + len(state.rounds),
        )
        messages = [
            Message(role="system", content=SYSTEM),
            Message(role="user", content=json.dumps(describe_state(state), ensure_ascii=False)),
        ]
        reasons = []
        for _ in range(self.config.attempts):
            (completion, *_) = await client.generate(messages, sampling)
            _, text = split_reasoning(completion.message.content or "")
            try:
                return read_answer(text, state)
            except RunError as exc:
                reasons.append(exc.message)
                messages += [
                    Message(role="assistant", content=text),
                    Message(role="user", content=f"{exc.message}. Answer with one JSON object."),
                ]
        raise RunError(f"no answer of the model could be read: {'; '.join(reasons)}")


def describe_state(state: ResearchState) -> dict[str, Any]:
    """The part of a state that a model needs, as JSON values; the newest rounds only."""
    space = [attrs.asdict(axis, filter=lambda _, value: value not in (None, ())) for axis in state.space]
    shown = ("number", "status", "changes", "score", "low", "high", "effect", "hypothesis", "reason")
    return {
        "goal": state.goal,
        "metric": state.metric,
        "better": "higher" if state.direction == "max" else "lower",
        "minimum_effect": state.minimum_effect,
        "start": {"run": state.start.get("run"), "score": state.start_score},
        "levers": list(state.levers),
        "space": space,
        "left": dict(state.left),
        "rounds": [
            {key: getattr(each, key) for key in shown if getattr(each, key) not in (None, "")}
            for each in list(state.rounds)[-ROUNDS:]
        ],
        "known": dict(state.context),
    }


def read_answer(text: str, state: ResearchState) -> Proposal | Stop:
    """The last proposal or stop in a text, whatever surrounds it: fences, comments, a first try.

    Raises:
        RunError: there is none, or it has a field of the wrong type.
    """
    found = [each for each in _objects(text) if {"stop", "changes", "files", "repeats"} & set(each)]
    if not found:
        raise RunError("it has no JSON object with 'changes', 'files', 'repeats' or 'stop'")
    fields = found[-1]
    if "stop" in fields:
        return Stop(reason=str(fields["stop"]) or "no reason given")
    changes, files = fields.get("changes") or {}, fields.get("files") or {}
    if not isinstance(changes, Mapping) or not isinstance(files, Mapping):
        raise RunError("'changes' and 'files' have to be objects")
    builds_on = fields.get("builds_on") or []
    if not isinstance(builds_on, list) or not all(type(each) is int for each in builds_on):
        raise RunError("'builds_on' has to be a list of round numbers")
    repeats = fields.get("repeats")
    if repeats is not None and type(repeats) is not int:
        raise RunError("'repeats' has to be the number of a round")
    try:
        effect = float(fields.get("expected_effect"))  # type: ignore[arg-type]
    except (TypeError, ValueError) as exc:
        raise RunError("'expected_effect' has to be a number") from exc
    try:
        config = apply_changes(state.start, changes)
    except (TypeError, ValueError, LookupError) as exc:
        raise RunError(f"'changes' has a path that can't be set: {exc}") from exc
    return Proposal(
        config=config,
        files=dict(files),
        hypothesis=str(fields.get("hypothesis") or ""),
        expected_effect=effect,
        builds_on=tuple(builds_on),
        repeats=repeats,
    )


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects of a text."""
    decoder, place = json.JSONDecoder(), 0
    for _ in range(MOST_TRIES):
        place = text.find("{", place)
        if place < 0:
            return
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            place += 1
            continue
        yield value
