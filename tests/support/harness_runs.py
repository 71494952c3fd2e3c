"""A few steps of `rl` in some agent's harness, over a model that says what it is told to, split as no tokenizer would split it."""

import asyncio
from contextlib import asynccontextmanager

import numpy as np
from merging import RENDERER, Splitting
from training_runs import Rows, Run

from evsys import use_registry
from evsys.types import ForwardResult, HarborTask, OptimResult, VerifierSpec
from evsys_algo_rl import RL
from evsys_runtime.evaluation.rollouts import TrainingRollouts
from evsys_runtime.experiment.state.seeds import Seeds
from evsys_runtime.serving.rollouts import RolloutEndpoints


class ForcedClient:
    """A training client that keeps every datum it is given, and whose samplers share one log."""

    capabilities = frozenset({"loss_fns", "custom_loss"})
    renderer = RENDERER
    tokenizer = RENDERER.tokenizer

    def __init__(self, *answers):
        self.answers = answers
        self.log = []
        self.data = []
        self.steps = 0

    def forward_backward(self, data, loss_fn, loss_params=None):
        self.data += data
        logprobs = [np.array(datum.loss_inputs["logprobs"]) for datum in data]
        tokens = sum(len(datum.tokens) for datum in data)
        return _done(ForwardResult(loss=0.0, logprobs=logprobs, tokens=tokens))

    def optim_step(self, params):
        self.steps += 1
        return _done(OptimResult(grad_norm=1.0))

    async def save_state(self, directory):
        return {}

    async def sampling_client(self):
        return Splitting(*self.answers, version=self.steps, log=self.log)


def _done(result):
    future = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future


def turns_in(datum):
    """(prompt, tokens, logprobs) of each stretch of a datum that is trained."""
    sequence = [*datum.tokens.tolist(), int(datum.loss_inputs["target_tokens"][-1])]
    trained = [False, *(datum.loss_inputs["weights"] != 0).tolist(), False]
    logprobs = [None, *datum.loss_inputs["logprobs"].tolist()]
    starts = [i for i in range(1, len(trained)) if trained[i] and not trained[i - 1]]
    ends = [i for i in range(1, len(trained)) if not trained[i] and trained[i - 1]]
    return [
        (sequence[:start], sequence[start:end], logprobs[start:end])
        for start, end in zip(starts, ends, strict=True)
    ]


def trained_turns(client):
    return sorted(turn for datum in client.data for turn in turns_in(datum))


def sampled_turns(client):
    return sorted((prompt, tokens, logprobs) for prompt, tokens, logprobs, _ in client.log)


def look(at: str) -> str:
    """Look at something: a tool."""
    return f"nothing at {at}"


async def length(model_output, expected, params):
    """Rewards of a group differ."""
    return float(len(model_output))


def tasks(count=2, instruction="say {}", **fields):
    return Rows(
        HarborTask(
            task_id=f"task-{i}",
            instruction=instruction.format(i),
            verifier=VerifierSpec(name="length"),
            **fields,
        )
        for i in range(count)
    )


def by_seed(*answers):
    """An answer by the seed of the call, so that a group has several."""
    return lambda _prompt, seed: answers[seed % len(answers)]


@asynccontextmanager
async def harness_run(directory, registry, agent, client, data, **fields):
    """The context of a run whose rollouts this agent makes."""
    registry.register("verifier", "length", length)
    run = Run.create(directory)
    endpoints = RolloutEndpoints(model="m", tokenizer=RENDERER.tokenizer)
    rollouts = TrainingRollouts(
        renderer=RENDERER,
        agent=agent,
        registry=registry,
        seeds=Seeds(),
        record=run.record,
        endpoints=endpoints,
        **fields,
    )
    with use_registry(registry):
        async with run.attempt(data, client=lambda _: client, rollouts=rollouts) as ctx:
            try:
                yield run, ctx
            finally:
                await rollouts.close()
                await endpoints.close()


def train(directory, registry, agent, *answers, data=None, fields=None, **params):
    """Train, and give back the client and the rollouts on record."""
    client = ForcedClient(*answers)
    settings = {
        "batch_size": 2,
        "group_size": 2,
        "steps": 2,
        "learning_rate": 0.1,
        "max_tokens": 300,
        "max_turns": 4,
        **params,
    }

    async def main():
        rows = tasks() if data is None else data
        async with harness_run(directory, registry, agent, client, rows, **(fields or {})) as (run, ctx):
            result = await RL(**settings).train(ctx)
        return result, [line["rollout"] for line in run.record.read_rollouts()]

    result, rollouts = asyncio.run(main())
    assert result.steps == settings["steps"]
    return client, rollouts
