"""Agents of Harbor's: the built-in Terminus-2, and a user's own, known by its import path alone."""

import asyncio
import json
import sys

import pytest
from rollout_parts import Echo, chat_tasks, policy, right, run
from sandboxes import needs_sandbox
from task_files import PASSES, native_task

from evsys import Registry
from evsys.types import (
    HarborTask,
    Message,
    NoScore,
    RolloutLimits,
    SampledSequence,
    SampleResult,
    Score,
    VerifierSpec,
)
from evsys_rollouts_harbor.engine import HarborEngine
from evsys_runtime.config.model import AgentConfig
from evsys_runtime.data.benchmark import load_tasks
from evsys_runtime.evaluation.agents import HarnessAgent, resolve_agent
from evsys_runtime.rendering.resolve import load_renderer
from evsys_runtime.serving.models import FixedCatalogue, ServedModel
from evsys_runtime.serving.server import chat_server

RENDERER = load_renderer("evsys/tiny")

OWN = '''
import asyncio
import json

from harbor import BaseAgent

from evsys.types import Message
from evsys_rollouts_harbor import policy_model


class ContextLengthExceededError(Exception):
    pass


class Mine(BaseAgent):
    """A harness of the user's own."""

    def __init__(self, *args, shout=False, **kwargs):
        super().__init__(*args, **kwargs)
        self.shout = shout

    @staticmethod
    def name():
        return "mine"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        text = instruction.strip()
        if text.startswith("crash"):
            raise RuntimeError("the harness stumbled")
        if text.startswith("overflow"):
            self.write("as far as I came")
            raise ContextLengthExceededError("too long")
        if text.startswith("hang"):
            self.write("so far")
            await asyncio.Event().wait()
        if text.startswith("ask"):
            [completion] = await policy_model(self).generate([Message(role="user", content=text)])
            return
        if text.startswith("ids"):
            tokens = [1, 2, 3] * 1000
            detail = {"prompt_token_ids": [[9]], "completion_token_ids": [tokens], "logprobs": [[-0.5] * 3000]}
            context.rollout_details = [detail, {"prompt_token_ids": [[0]]}]
        context.n_input_tokens, context.n_output_tokens, context.cost_usd = 11, 5, 0.25
        self.write(text.upper() if self.shout else text)

    def write(self, text):
        steps = [{"step_id": 1, "source": "agent", "message": text}]
        tree = {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "mine", "version": "1"}, "steps": steps}
        (self.logs_dir / "trajectory.json").write_text(json.dumps(tree), encoding="utf-8")


class Writer(Mine):
    """Acts in the sandbox alone."""

    async def run(self, instruction, environment, context):
        done = await environment.exec("echo hello > /app/out.txt && cat /app/out.txt")
        assert done.stdout == "hello\\n"
'''


@pytest.fixture(autouse=True)
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_harness.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_harness", None)


def agent(path: str = "own_harness:Mine", **params) -> HarnessAgent:
    found = resolve_agent(AgentConfig(import_path=path, params=params), Registry())
    assert isinstance(found, HarnessAgent)
    return found


def task(instruction: str) -> HarborTask:
    return HarborTask(task_id=instruction, instruction=instruction, verifier=VerifierSpec(name="v"))


def outcome(instruction: str, *, limits: RolloutLimits | None = None, **fields):
    a_policy = policy(agent=agent(), **fields)
    [rollout] = run(HarborEngine(max_retries=0), [task(instruction)], a_policy, limits)
    return rollout


@pytest.mark.parametrize("path", ["own_harness:Mine", "own_harness.Mine"])
def test_a_harness_is_known_by_either_spelling_of_its_path_and_gets_its_params(scratch, path):
    [quiet] = run(HarborEngine(), [task("say it")], policy(agent=agent(path)))
    [loud] = run(HarborEngine(), [task("say it")], policy(agent=agent(path, shout=True)))
    assert (quiet.output, quiet.score) == ("say it", Score(value=1.0))
    assert (loud.output, loud.score) == ("SAY IT", Score(value=0.0))
    assert (quiet.usage.prompt_tokens, quiet.usage.completion_tokens, quiet.usage.cost_usd) == (11, 5, 0.25)
    assert quiet.messages == (Message(role="assistant", content="say it"),)


def test_a_harness_may_ask_the_live_model_and_its_tokens_are_recorded(scratch):
    model = Echo()
    rollout = outcome("ask me", model=model)
    assert (rollout.output, rollout.score, model.calls) == ("ask me", Score(value=1.0), 1)
    assert rollout.turns[0].tokens == tuple(b"ask me")
    assert rollout.usage.prompt_tokens == 3


def test_token_ids_that_a_harness_leaves_become_turns_and_are_in_no_file(scratch, tmp_path):
    rollout = outcome("ids please", limits=RolloutLimits(directory=tmp_path / "files"))
    [turn] = rollout.turns
    assert (turn.tokens, turn.prompt_tokens) == ((1, 2, 3) * 1000, (9,))
    files = list((tmp_path / rollout.metadata["files"]).rglob("*.json"))
    assert len(files) >= 4
    assert all("completion_token_ids" not in file.read_text(encoding="utf-8") for file in files)
    assert ((tmp_path / rollout.metadata["files"]) / "result.json").stat().st_size < 20_000


def test_a_harness_that_crashes_is_no_score(scratch):
    rollout = outcome("crash now")
    assert rollout.error == "RuntimeError: the harness stumbled"
    assert rollout.score == NoScore(reason="RuntimeError: the harness stumbled", boundary="rollout")


def test_a_context_that_ran_over_is_judged_and_told(scratch):
    rollout = outcome("overflow now", verify=lambda task, rollout: always(0.5))
    assert rollout.score == Score(value=0.5)
    assert (rollout.truncated, rollout.error) == (True, "ContextLengthExceededError: too long")
    assert rollout.output == "as far as I came"


async def always(value: float) -> Score:
    return Score(value=value)


def test_a_harness_out_of_time_is_flagged(scratch):
    rollout = outcome("hang now", limits=RolloutLimits(timeout_seconds=0.5))
    assert rollout.timed_out
    assert rollout.usage.seconds < 5


def test_a_system_prompt_goes_before_the_instruction(scratch):
    rollout = outcome("now", system_prompt="Be brief.")
    assert rollout.output == "Be brief.\n\nnow"


def test_an_exception_that_the_user_names_is_tried_again(scratch):
    engine = HarborEngine(max_retries=2, retry_wait_seconds=0, retry_on=["RuntimeError"])
    [rollout] = run(engine, [task("crash now")], policy(agent=agent()))
    assert rollout.metadata["attempts"] == 3
    assert engine.trials_ended == 3


def test_params_that_the_class_does_not_take_end_as_no_score_with_the_reason(scratch):
    [rollout] = run(
        HarborEngine(), [task("x")], policy(agent=agent("own_harness:Mine", base_url="http://localhost:1"))
    )
    assert rollout.score.boundary == "environment"
    assert "inference connection overrides" in rollout.error


def test_secrets_in_params_stay_out_of_the_files(scratch, tmp_path, monkeypatch):
    monkeypatch.setenv("EVSYS_TEST_KEY", "sk-very-secret")
    a_policy = policy(agent=agent("own_harness:Mine", api_key="${EVSYS_TEST_KEY}"))
    [rollout] = run(HarborEngine(), [task("x")], a_policy, RolloutLimits(directory=tmp_path / "files"))
    assert rollout.error is None
    text = "".join(
        f.read_text(encoding="utf-8")
        for f in (tmp_path / rollout.metadata["files"]).rglob("*")
        if f.is_file()
    )
    assert "[secret]" in text
    assert "sk-very-secret" not in text


def test_no_other_engine_runs_it(scratch):
    from evsys_std.engine import DirectEngine

    [rollout] = run(DirectEngine(), chat_tasks(1), policy(agent=agent()))
    assert "is one of Harbor's; write engine: harbor" in rollout.error


@needs_sandbox
def test_a_harness_acts_on_a_native_task_in_a_sandbox(scratch, tmp_path):
    test = "grep -q hello /app/out.txt && echo 1 > /logs/verifier/reward.txt\n"
    native_task(tmp_path / "suite" / "greet", test=test)
    tasks, _ = load_tasks(tmp_path / "suite")
    [rollout] = run(HarborEngine(), tasks, policy(agent=agent("own_harness:Writer"), verify=right))
    assert (rollout.score, rollout.error) == (Score(value=1.0), None)


@needs_sandbox
def test_a_harness_out_of_time_in_silence_is_judged_by_what_it_did(scratch, tmp_path):
    native_task(tmp_path / "suite" / "hang", instruction="hang", test=PASSES)
    tasks, _ = load_tasks(tmp_path / "suite")
    limits = RolloutLimits(timeout_seconds=0.5)
    [rollout] = run(HarborEngine(), tasks, policy(agent=agent(), verify=right), limits)
    assert (rollout.score, rollout.timed_out, rollout.error) == (Score(value=1.0), True, None)


@needs_sandbox
@pytest.mark.parametrize(("own", "limit"), [(0.5, 60.0), (600.0, 0.5)])
def test_an_agent_has_the_time_of_its_task_or_of_the_caller_whichever_is_less(scratch, tmp_path, own, limit):
    settings = f"[agent]\ntimeout_sec = {own}\n"
    native_task(tmp_path / "suite" / "hang", instruction="hang", test=PASSES, settings=settings)
    tasks, _ = load_tasks(tmp_path / "suite")
    limits = RolloutLimits(timeout_seconds=limit)
    [rollout] = run(HarborEngine(), tasks, policy(agent=agent(), verify=right), limits)
    assert rollout.timed_out
    assert rollout.usage.seconds < 5


# --- Terminus-2 ---------------------------------------------------------------------------------------------------------------


class Scripted:
    """A sampling client that says one thing after the other, and goes on with the last."""

    version = 0

    def __init__(self, *answers: dict) -> None:
        self._answers = answers
        self.asked = 0

    async def sample(self, prompt, params, n=1):
        said = json.dumps(self._answers[min(self.asked, len(self._answers) - 1)])
        self.asked += 1
        tokens = RENDERER.tokenizer.encode(f"{said}<|im_end|>")
        one = SampledSequence(tokens=tokens, logprobs=[-0.5] * len(tokens), finish_reason="stop")
        return SampleResult(sequences=[one] * n)


@needs_sandbox
@pytest.mark.filterwarnings("ignore")  # importing LiteLLM warns of much that isn't ours
def test_terminus_2_solves_a_native_task_in_a_sandbox(scratch, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    test = "grep -q hello /app/out.txt && echo 1 > /logs/verifier/reward.txt\n"
    native_task(tmp_path / "suite" / "greet", instruction="Write hello to /app/out.txt.", test=test)
    tasks, _ = load_tasks(tmp_path / "suite")
    command = {"keystrokes": "echo hello > /app/out.txt\n", "duration": 0.5}
    client = Scripted(
        {"analysis": "a", "plan": "p", "commands": [command]},
        {"analysis": "a", "plan": "p", "commands": [], "task_complete": True},
    )
    served = ServedModel(
        name="local", sampling_client=client, renderer=RENDERER, tokenizer=RENDERER.tokenizer
    )

    async def main():
        async with chat_server(FixedCatalogue(served)) as address:
            terminus = agent(
                "harbor.agents.terminus_2:Terminus2",
                model_name="openai/local",
                api_base=address,
                collect_rollout_details=True,
                record_terminal_session=False,
            )
            stream = HarborEngine().run(tasks, policy(agent=terminus, verify=right), RolloutLimits())
            return [rollout async for rollout in stream]

    [rollout] = asyncio.run(main())
    assert (rollout.score, rollout.error) == (Score(value=1.0), None)
    assert client.asked == 3
    assert "complaint" not in rollout.metadata
    assert len(rollout.turns) == 3
    assert all(RENDERER.tokenizer.decode(turn.tokens).endswith("<|im_end|>") for turn in rollout.turns)
    assert rollout.usage.prompt_tokens == sum(len(turn.prompt_tokens) for turn in rollout.turns)
    assert any("echo hello" in message.content for message in rollout.messages)
