"""The contract of an agent: it acts through the given model, and its failures are reported."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from evsys.errors import PLUGIN_FAILURES
from evsys.types import AgentContext, HarborTask, Message, Rollout, SamplingParams, VerifierSpec
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.fakes import FakeModel
from evsys_conformance.findings import breach, require, require_equal
from evsys_conformance.places import describe_error
from evsys_conformance.running import cancelled_within, run

__all__ = ["AgentConformance"]

_SAMPLING = SamplingParams(temperature=0.25, max_tokens=17, seed=3)


class AgentConformance(PluginConformance):
    """Checks of the kind `agent`. Override `task` for one that it can act on, `answers` for what the model says."""

    kind: ClassVar[str | None] = "agent"

    @pytest.fixture
    def task(self) -> HarborTask:
        """A task that it can act on."""
        return HarborTask(task_id="t-1", instruction="Say hello.", verifier=VerifierSpec(name="exact_match"))

    @pytest.fixture
    def answers(self) -> Any:
        """The model's answers, as `FakeModel` takes them."""
        return "hello"

    @pytest.fixture
    def acts(self, plugin: Any, task: HarborTask, answers: Any) -> None:
        """Skips what can't be seen of an agent that doesn't act."""
        model = FakeModel(answers)
        try:
            said = run(_act(plugin, task, model))
        except PLUGIN_FAILURES as exc:
            pytest.skip(f"after test_gives_a_rollout_or_a_text: it fails: {describe_error(exc)}")
        if not isinstance(said, str | Rollout) or not model.calls:
            pytest.skip("after test_gives_a_rollout_or_a_text: it asks nothing, or gives something else")

    @check()
    def test_gives_a_rollout_or_a_text(self, plugin: Any, task: HarborTask, answers: Any) -> None:
        """It asks the model and ends with a text, or with the rollout of its task."""
        model = FakeModel(answers)
        said = run(_act(plugin, task, model))
        require(
            isinstance(said, str | Rollout),
            "what it ends with is neither a string nor a rollout",
            seen=said,
            wanted="the final text, or evsys.types.Rollout(task_id=task.task_id, sample_index=ctx.sample_index, ...)",
        )
        if isinstance(said, Rollout):
            require_equal(
                (said.task_id, said.sample_index),
                (task.task_id, 2),
                "its rollout has another task_id or sample_index than its task and its context",
            )
        require(
            model.calls, "it never asked the model", wanted="await model.generate(messages, ctx.sampling)"
        )

    @check()
    def test_takes_an_instruction_of_several_messages(
        self, plugin: Any, task: HarborTask, answers: Any, acts: None
    ) -> None:
        """An instruction may be a conversation, and the model sees its last message."""
        said = (Message(role="user", content="Hi."), Message(role="assistant", content="Yes?"))
        last = Message(role="user", content="Say hello to 世界.")
        model = FakeModel(answers)
        run(_act(plugin, _another(task, task.task_id, (*said, last)), model))
        require(
            any(last.content in message.content for call in model.calls for message in call.messages),
            "the model never saw the last message of an instruction of three",
            seen=[[message.content for message in call.messages] for call in model.calls],
            wanted=f"{last.content!r} among the messages: `task.instruction` is a string or a tuple of messages",
        )

    @check()
    def test_samples_as_it_is_told(self, plugin: Any, task: HarborTask, answers: Any) -> None:
        """The sampling parameters of its context reach the model."""
        model = FakeModel(answers)
        run(_act(plugin, task, model))
        for call in model.calls:
            seen = (call.sampling.temperature, call.sampling.max_tokens)
            require_equal(
                seen,
                (_SAMPLING.temperature, _SAMPLING.max_tokens),
                "it samples at another temperature or with another max_tokens than `ctx.sampling` says",
            )

    @check()
    def test_failures_of_the_model_are_told(self, plugin: Any, task: HarborTask, acts: None) -> None:
        """When the model fails it raises, or gives a rollout with an error; never a text as if nothing had happened."""
        try:
            said = run(_act(plugin, task, FakeModel(ConnectionError("the model is away"))))
        except Exception:
            return
        require(
            isinstance(said, Rollout) and said.error,
            "the model failed, and it hid that",
            seen=said,
            wanted="the exception, or a rollout with `error`",
        )

    @check()
    def test_acts_on_several_tasks_at_once(
        self, plugin: Any, task: HarborTask, answers: Any, acts: None
    ) -> None:
        """One agent object acts on all tasks of an evaluation side by side, and each act sees its own task alone."""

        async def together() -> list[FakeModel]:
            tasks = [_another(task, f"t-{i}", f"Say hello to {i}{i}{i}.") for i in range(4)]
            models = [FakeModel(answers, held=True) for _ in tasks]
            acting = [asyncio.create_task(_act(plugin, *pair)) for pair in zip(tasks, models, strict=True)]
            async with asyncio.timeout(5.0):
                while not all(act.done() for act in acting):
                    for model in reversed(models):
                        model.release(1)
                    await asyncio.sleep(0)
            ends = await asyncio.gather(*acting, return_exceptions=True)
            for end in ends:
                if isinstance(end, BaseException):
                    raise end
            return models

        for i, model in enumerate(run(together())):
            seen = " ".join(message.content for call in model.calls for message in call.messages)
            others = [f"{j}{j}{j}" for j in range(4) if j != i and f"{j}{j}{j}" in seen]
            require(
                f"{i}{i}{i}" in seen and not others,
                "acting on four tasks at once it mixes them: a model was asked with the words of another task",
                seen=seen,
                wanted=f"'Say hello to {i}{i}{i}.' alone: what belongs to one act isn't kept in `self`",
            )

    @check()
    def test_cancels_within_a_second(self, plugin: Any, task: HarborTask) -> None:
        """Cancelled while it waits for the model, it ends as cancelled."""

        async def cancel() -> bool:
            acting = asyncio.create_task(_act(plugin, task, FakeModel(held=True)))
            for _ in range(50):
                await asyncio.sleep(0)
            if acting.done():
                acting.result()  # what it raises
                pytest.skip("it ended without asking the model")
            return await cancelled_within(acting, 1.0)

        if not run(cancel()):
            breach(
                "cancelled while it waited for the model, it continued for a second or hid it",
                wanted="CancelledError: `except Exception` lets it through, `except BaseException` and `except:` don't",
            )


def _another(task: HarborTask, task_id: str, instruction: str | tuple[Message, ...]) -> HarborTask:
    return HarborTask(
        task_id=task_id,
        instruction=instruction,
        verifier=task.verifier,
        tools=task.tools,
        metadata=task.metadata,
        path=task.path,
    )


async def _act(agent: Any, task: HarborTask, model: FakeModel) -> Any:
    context = AgentContext(sampling=_SAMPLING, seed=3, sample_index=2, max_turns=3)
    act = getattr(agent, "run", agent)
    return await act(task, model, (), context)
