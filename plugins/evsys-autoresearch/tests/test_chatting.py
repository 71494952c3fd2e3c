"""The `llm` researcher against scripted chat models."""

import asyncio
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys import Registry, use_registry
from evsys.errors import RunError
from evsys.types import Completion, Message, Proposal, ResearchState, Round, Stop
from evsys_autoresearch.researchers.chatting import read_answer

STATE = ResearchState(
    goal="route",
    metric="val.mean_reward",
    start={"run": {"algorithm": {"kind": "sft", "params": {"rate": 0.1}}}},
    start_score=0.4,
    levers=("run.algorithm.params.rate",),
    rounds=[Round(number=1, status="lost", reason="repeated: it is the start itself")],
    left={"experiments": 3.0},
)
RIGHT = {"hypothesis": "slower", "expected_effect": 0.1, "changes": {"run.algorithm.params.rate": 0.05}}


class Scripted:
    """A chat model with answers known in advance, which notes its questions."""

    answers: tuple[str, ...] = ()
    asked: list = []  # noqa: RUF012

    async def generate(self, messages, sampling, *, n=1, tools=()):
        text = self.answers[len(self.asked)]
        self.asked.append(list(messages))
        return [Completion(message=Message(role="assistant", content=text), finish_reason="stop")]


@pytest.fixture
def ask():
    def ask(*answers, **params):
        registry = Registry()
        model = type("Model", (Scripted,), {"answers": answers, "asked": []})
        registry.register("inference_client", "scripted", model)
        with use_registry(registry):
            llm = registry.build("researcher", "llm", {"inference": {"kind": "scripted"}, **params})
            return asyncio.run(llm.propose(STATE)), model.asked

    return ask


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "```json\n{}\n```",
        '<think>{{"changes": {{}}}} no</think>\nI propose:\n{}\nThat is all {{really}}.',
        '{{"a": 1}} first idea {{"changes": {{"x": 1}}, "expected_effect": 1}}, better: {}',
    ],
)
def test_a_proposal_is_found_whatever_surrounds_it(ask, text):
    answer, _ = ask(text.format(json.dumps(RIGHT)))
    assert isinstance(answer, Proposal)
    assert answer.config["run"]["algorithm"] == {"kind": "sft", "params": {"rate": 0.05}}
    assert (answer.hypothesis, answer.expected_effect) == ("slower", 0.1)


def test_the_model_sees_the_rounds_and_can_stop(ask):
    answer, asked = ask('{"stop": "nothing is left"}')
    assert answer == Stop(reason="nothing is left")
    assert "it is the start itself" in asked[0][1].content


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("I'm sorry, I can't.", "no JSON object"),
        ({**RIGHT, "expected_effect": "much"}, "'expected_effect' has to be a number"),
        ({**RIGHT, "changes": [1]}, "have to be objects"),
        ({**RIGHT, "changes": {"a..b": 1}}, "can't be set"),
        ({**RIGHT, "repeats": True}, "'repeats'"),
        ({**RIGHT, "builds_on": ["1"]}, "'builds_on'"),
    ],
)
def test_a_malformed_answer_is_answered_with_the_reason(ask, wrong, why):
    text = wrong if isinstance(wrong, str) else json.dumps(wrong)
    answer, asked = ask(text, json.dumps(RIGHT))
    assert isinstance(answer, Proposal)
    assert why in asked[1][-1].content


def test_malformed_answers_end_after_the_attempts(ask):
    with pytest.raises(RunError, match=r"no answer of the model could be read: .*; "):
        ask("no", "no", attempts=2)


@given(st.text(alphabet=st.sampled_from('{}[]":, abchangestop1.'), max_size=80))
def test_any_text_is_an_answer_or_one_error(text):
    with suppress(RunError):
        assert isinstance(read_answer(text, STATE), Proposal | Stop)


def test_a_study_with_a_model_that_breaks_rules_and_refuses(lab):
    lab.write(
        "src/chat.py",
        '''
import json

from evsys import register_inference_client
from evsys.types import Completion, Message

ANSWERS = [
    "I can't help with that.",
    '{"changes": {"metadata.benchmark": []}, "hypothesis": "easier tasks", "expected_effect": 1}',
    '```json\\n{"changes": {"run.algorithm.params.learning_rate": 0.0001}, "hypothesis": "slower", "expected_effect": 0.1}\\n```',
    '{"stop": "done"}',
]


@register_inference_client("scripted")
class Scripted:
    """Answers by the number of rounds that it is shown."""

    async def generate(self, messages, sampling, *, n=1, tools=()):
        rounds = json.loads(messages[1].content)["rounds"]
        return [Completion(message=Message(role="assistant", content=ANSWERS[len(rounds)]), finish_reason="stop")]
''',
    )
    lab.goal(researcher="{kind: llm, params: {inference: {kind: scripted}}}", budget="{experiments: 6}")
    result = lab.run()
    assert [each.status for each in result.rounds] == ["lost", "lost", "scored"]
    assert "no JSON object" in result.rounds[0].reason
    assert result.rounds[1].reason.startswith("levers: it changes metadata.benchmark")
    assert result.reason == "the researcher stopped: done"
