"""What an agent keeps: it acts through the model that it is given, and its failures are told."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from evsys.types import AgentContext, HarborTask, Message, Rollout, SamplingParams, VerifierSpec
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.fakes import FakeModel
from evsys_conformance.running import cancelled_within, run

__all__ = ["AgentConformance"]


class AgentConformance(PluginConformance):
    """Checks of the kind `agent`. Override `task` for one that it can act on, `answers` for what the model says."""

    kind: ClassVar[str | None] = "agent"

    @pytest.fixture
    def task(self) -> HarborTask:
        """A task."""
        return HarborTask(task_id="t-1", instruction="Say hello.", verifier=VerifierSpec(name="exact_match"))

    @pytest.fixture
    def answers(self) -> Any:
        """What the model answers, as `FakeModel` takes it."""
        return "hello"

    @check()
    def test_gives_a_rollout_or_a_text(self, plugin: Any, task: HarborTask, answers: Any) -> None:
        """It asks the model and ends with a text, or with the rollout of its task."""
        model = FakeModel(answers)
        said = run(_act(plugin, task, model))
        assert isinstance(said, str | Rollout), f"gave a {type(said).__name__}"
        if isinstance(said, Rollout):
            assert (said.task_id, said.sample_index) == (task.task_id, 2)
        assert model.calls, "it never asked the model"

    @check()
    def test_takes_an_instruction_of_several_messages(
        self, plugin: Any, task: HarborTask, answers: Any
    ) -> None:
        """An instruction may be a conversation, and the model sees its last message."""
        said = (Message(role="user", content="Hi."), Message(role="assistant", content="Yes?"))
        last = Message(role="user", content="Say hello to 世界.")
        model = FakeModel(answers)
        conversation = HarborTask(task_id=task.task_id, instruction=(*said, last), verifier=task.verifier)
        run(_act(plugin, conversation, model))
        assert any(last.content in message.content for call in model.calls for message in call.messages)

    @check()
    def test_samples_as_it_is_told(self, plugin: Any, task: HarborTask, answers: Any) -> None:
        """The sampling parameters of its context reach the model."""
        model = FakeModel(answers)
        run(_act(plugin, task, model))
        assert {(call.sampling.temperature, call.sampling.max_tokens) for call in model.calls} <= {(0.25, 17)}

    @check()
    def test_failures_of_the_model_are_told(self, plugin: Any, task: HarborTask) -> None:
        """When the model fails it raises, or gives a rollout with an error; never a text as if nothing had happened."""
        try:
            said = run(_act(plugin, task, FakeModel(ConnectionError("the model is away"))))
        except Exception:
            return
        assert isinstance(said, Rollout), "it hid the failure"
        assert said.error, "it hid the failure"

    @check()
    def test_cancels_within_a_second(self, plugin: Any, task: HarborTask) -> None:
        """Cancelled while it waits for the model, it ends."""

        async def cancel() -> bool:
            model = FakeModel(hangs=True)
            acting = asyncio.create_task(_act(plugin, task, model))
            for _ in range(50):
                await asyncio.sleep(0)
            if acting.done():
                pytest.skip("it ended without asking the model")
            return await cancelled_within(acting, 1.0)

        assert run(cancel()), "it went on for a second"


async def _act(agent: Any, task: HarborTask, model: FakeModel) -> Any:
    sampling = SamplingParams(temperature=0.25, max_tokens=17, seed=3)
    context = AgentContext(sampling=sampling, seed=3, sample_index=2, max_turns=3)
    act = getattr(agent, "run", agent)
    return await act(task, model, (), context)
