"""Tests here may be `async def`; `new_run` makes runs on the mock backend whose rollouts are judged by verifiers of these tests."""

import string
from contextlib import asynccontextmanager

import attrs
import pytest
from training_runs import Run, pytest_pyfunc_call  # noqa: F401

from evsys import Registry, use_registry
from evsys.types import Message
from evsys_algo_rl import RL
from evsys_runtime.evaluation.agents import FunctionAgent
from evsys_runtime.evaluation.rollouts import TrainingRollouts
from evsys_runtime.experiment.state.seeds import Seeds
from evsys_runtime.rendering.resolve import load_renderer

SHORT = {"batch_size": 4, "group_size": 4, "steps": 4, "learning_rate": 0.05, "max_tokens": 4, "lora_rank": 4}


def vowels(model_output, expected, params):
    """The share of vowels among four letters."""
    return sum(letter in "aeiou" for letter in model_output[:4]) / 4


def lower(model_output, expected, params):
    """The share of small letters among four characters."""
    return sum(letter in string.ascii_lowercase for letter in model_output[:4]) / 4


def same(model_output, expected, params):
    """Whatever is said, it is worth `expected`."""
    return float(expected)


def not_a_number(model_output, expected, params):
    """A verifier that divides by zero in its own way."""
    return float("nan")


async def chat(task, model, ctx):
    """Ask once."""
    found = await model.generate([Message(role="user", content=task.instruction)], ctx.sampling)
    return found[0].message.content


@attrs.define
class RLRun:
    """A run whose rollouts are made as a real one's are."""

    run: Run
    registry: Registry

    @asynccontextmanager
    async def attempt(self, data, *, agent=chat, resume=False, deterministic=True, **fields):
        rollouts = TrainingRollouts(
            renderer=load_renderer("evsys/tiny"),
            agent=FunctionAgent(agent),
            registry=self.registry,
            seeds=Seeds(base_seed=self.run.base_seed),
            record=self.run.record,
        )
        with use_registry(self.registry):
            async with self.run.attempt(data, resume=resume, **{"rollouts": rollouts, **fields}) as ctx:
                try:
                    yield attrs.evolve(ctx, deterministic=deterministic)
                finally:
                    await rollouts.close()

    async def train(self, data, *, algorithm=RL, agent=chat, resume=False, fields=None, **params):
        """One attempt from start to end."""
        async with self.attempt(data, agent=agent, resume=resume, **(fields or {})) as ctx:
            return await algorithm(**{**SHORT, **params}).train(ctx)

    def values(self, name):
        """A metric by step."""
        return [values.get(name) for _, values in self.run.metrics()]

    def numbers(self):
        """All metrics but those of the clock."""
        return [
            (step, {name: value for name, value in values.items() if not name.endswith("/seconds")})
            for step, values in self.run.metrics()
        ]

    def weights(self):
        return self.run.weights()

    @property
    def warned(self):
        return self.run.warned


@pytest.fixture
def registry():
    registry = Registry()
    for verifier in (vowels, lower, same, not_a_number):
        registry.register("verifier", verifier.__name__, verifier)
    return registry


@pytest.fixture
def new_run(tmp_path, registry):
    def make(name="run-s0", **fields):
        return RLRun(Run.create(tmp_path / name, **fields), registry)

    return make
