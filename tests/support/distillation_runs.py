"""Distillation on the mock backend: rows with demonstrations, and a model to learn from."""

from contextlib import asynccontextmanager

from training_runs import Rows, questions

from evsys.types import AdamParams, LoraSpec, Message, ModelSpec, PromptExample
from evsys_backend_mock import MockBackend
from evsys_conformance import toy

MODEL = ModelSpec(name="evsys/tiny", lora=LoraSpec(rank=16))
CONFIG = {"config": {"algorithm": {"kind": "test"}, "backend": {"kind": "mock", "params": {}}}}
SHORT = {"batch_size": 4, "max_tokens": 12, "learning_rate": 0.01, "steps": 6}


def prompt_rows(count=12):
    """Questions with the answer as demonstration."""
    return Rows(
        PromptExample(
            prompt=(Message(role="user", content=question),),
            demonstration=(Message(role="assistant", content=answer),),
            row_id=f"row-{i}",
        )
        for i, (question, answer) in enumerate(questions()[:count])
    )


@asynccontextmanager
async def trained_teacher(folder, steps=40):
    """A client of the mock that has learnt the toy task."""
    backend = MockBackend()
    client = await backend.prepare(MODEL, folder, 7)
    try:
        for _ in range(steps):
            await client.forward_backward(toy.datums(client.renderer), "cross_entropy")
            await client.optim_step(AdamParams(learning_rate=0.02))
        yield client
    finally:
        await backend.teardown(client)


@asynccontextmanager
async def taught(run, rows, teacher, **fields):
    """The context of an attempt with a teacher."""
    async with run.attempt(rows, roles={"teacher": teacher}, **{**CONFIG, **fields}) as ctx:
        yield ctx
