"""What `kl_coef` holds the policy near to: the weights that the run started from, whatever they are, also after a resume."""

import attrs
import numpy as np
import pytest
from training_runs import Rows

from evsys.types import AdamParams, HarborTask, LoraSpec, ModelSpec, VerifierSpec
from evsys_algo_rl import RL
from evsys_backend_mock import MockBackend
from evsys_conformance import toy

CONFIG = {"config": {"algorithm": {"kind": "rl"}, "backend": {"kind": "mock", "params": {}}}}
HELD = {"kl_coef": 0.1, "save_every": 1, "steps": 6}
MODEL = ModelSpec(name="evsys/tiny", lora=LoraSpec(rank=4))


def rows():
    return Rows(
        HarborTask(task_id=f"task-{i}", instruction=f"say {i}", verifier=VerifierSpec(name="lower"))
        for i in range(12)
    )


@pytest.fixture
def trained(new_run):
    """A checkpoint of another run."""

    async def train():
        run = new_run("before", model=MODEL)
        await run.train(rows(), steps=5, learning_rate=0.02)
        return str(run.run.record.checkpoints.latest(run.run.record.attempts).directory)

    return train


async def test_it_is_the_model_before_the_first_step(new_run):
    run = new_run(model=MODEL)
    await run.train(rows(), fields=CONFIG, **HELD)
    divergence = run.values("kl_reference")
    assert divergence[0] == pytest.approx(0.0, abs=1e-12)
    assert min(divergence[1:]) > 0


async def test_a_run_that_starts_from_trained_weights_stays_near_those(new_run, trained):
    model = attrs.evolve(MODEL, init_from_checkpoint=await trained())
    whole, halved = new_run("whole", model=model), new_run("halved", model=model)
    await whole.train(rows(), fields=CONFIG, **HELD)
    assert whole.values("kl_reference")[0] == pytest.approx(0.0, abs=1e-12)

    await halved.train(rows(), fields={**CONFIG, "max_steps": 3}, **HELD)
    await halved.train(rows(), resume=True, fields=CONFIG, **HELD)
    assert halved.values("kl_reference") == whole.values("kl_reference")
    assert halved.weights() == whole.weights()


class HeldLater(RL):
    """From its tenth step on next to nothing but the reference counts."""

    async def batch_of(self, groups, step_idx):
        if step_idx == 10:
            self.config = attrs.evolve(self.config, kl_coef=1000.0)
        return await super().batch_of(groups, step_idx)


async def test_a_policy_that_went_away_is_pulled_back(new_run):
    run = new_run(model=MODEL)
    params = {"steps": 30, "batch_size": 8, "group_size": 8, "learning_rate": 3e-3, "on_collapse": "warn"}
    await run.train(rows(), algorithm=HeldLater, fields=CONFIG, kl_coef=1e-4, **params)
    divergence = run.values("kl_reference")
    assert max(divergence[8:14]) > 0.5
    assert np.mean(divergence[-4:]) < 0.8 * max(divergence[8:14])


class Unsure:
    """A reference that finds the first token of every answer impossible, and doesn't tell of the second."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def sampling_client(self):
        return Unsure(await self._client.sampling_client())

    async def compute_logprobs(self, tokens):
        found = (await self._client.compute_logprobs(tokens)).astype(np.float64)
        found[-4:-2] = -np.inf, np.nan
        return found


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
async def test_what_the_reference_finds_impossible_leaves_the_weights_numbers(new_run, tmp_path, estimator):
    backend = MockBackend()
    other = await backend.prepare(MODEL, tmp_path, 5)
    run = new_run(model=MODEL)
    fields = {**CONFIG, "roles": {"reference": Unsure(other)}}
    result = await run.train(rows(), fields=fields, **{**HELD, "steps": 2, "kl_estimator": estimator})
    assert result.status == "completed"
    assert all(0 < value <= 0.5 for value in run.values("reference_bounded_share"))
    assert all(0 < value <= 0.5 for value in run.values("reference_unknown_share"))
    async with run.attempt(rows(), resume=True) as ctx:
        sampler = await ctx.clients.policy.sampling_client()
        assert np.isfinite((await sampler.compute_logprobs([1, 2, 3, 4]))[1:]).all()
    await backend.teardown(other)


class Priced(Unsure):
    """A reference that costs a dollar a token."""

    free = False

    async def sampling_client(self):
        return Priced(await self._client.sampling_client())

    async def compute_logprobs(self, tokens):
        return await self._client.compute_logprobs(tokens)

    def sampling_cost(self, prompt_tokens, completion_tokens):
        return float(prompt_tokens + completion_tokens)


class Till:
    """Counts what is charged."""

    def __init__(self):
        self.usd = 0.0

    def charge(self, usage, *, steps=0):
        self.usd += usage.cost_usd or 0.0


async def test_what_the_reference_reads_is_charged_and_a_part_of_the_runs_usage(new_run, tmp_path):
    backend = MockBackend()
    other = await backend.prepare(MODEL, tmp_path, 5)
    whole, halved, till = new_run("whole", model=MODEL), new_run("halved", model=MODEL), Till()
    fields = {**CONFIG, "roles": {"reference": Priced(other)}, "budget": till}
    result = await whole.train(rows(), fields=fields, **HELD)
    took = result.roles["reference"]
    # Each sequence is read as a whole, and trained but for its last token.
    sequences = sum(whole.values("sequences"))
    assert took.prompt_tokens == sum(whole.values("tokens")) + sequences
    assert took.cost_usd == took.prompt_tokens == till.usd == result.usage.cost_usd
    assert result.usage.prompt_tokens > took.prompt_tokens

    await halved.train(rows(), fields={**fields, "max_steps": 3}, **HELD)
    resumed = await halved.train(rows(), resume=True, fields=fields, **HELD)
    assert resumed.roles == result.roles
    await backend.teardown(other)


async def test_the_first_two_estimators_have_the_same_gradient(new_run):
    """k1 in the reward and k2 in the loss are one and the same at a ratio of 1."""
    losses = []
    for estimator in ("k1", "k2"):
        run = new_run(estimator, model=MODEL)
        await run.train(rows(), fields=CONFIG, kl_estimator=estimator, **{**HELD, "learning_rate": 3e-3})
        losses.append(run.values("grad_norm"))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)  # the reference answers in float32


async def test_nothing_is_left_open(new_run):
    """A resumed run prepares the starting weights in a backend of their own, and tears it down."""
    from evsys_backend_mock import MockBackend

    made, torn = [], []

    class Counted(MockBackend):
        async def prepare(self, *args, **options):
            made.append(self)
            return await super().prepare(*args, **options)

        async def teardown(self, client):
            torn.append(self)
            await super().teardown(client)

    run = new_run(model=MODEL)
    run.registry.register("backend", "counted", Counted)
    config = {"config": {"algorithm": {"kind": "rl"}, "backend": {"kind": "counted"}}}
    await run.train(rows(), fields={**config, "max_steps": 3}, **HELD)
    assert (len(made), len(torn)) == (0, 0)  # the run's own client serves as the reference
    await run.train(rows(), resume=True, fields=config, **HELD)
    assert len(made) == 1
    assert made == torn


async def test_a_reference_that_the_run_names_takes_the_place_of_its_start(new_run, tmp_path):
    backend = MockBackend()
    other = await backend.prepare(attrs.evolve(MODEL, lora=LoraSpec(rank=8)), tmp_path, 5)
    for _ in range(3):
        await other.forward_backward(toy.datums(other.renderer), "cross_entropy")
        await other.optim_step(AdamParams(learning_rate=0.02))
    held = new_run("held", model=MODEL)
    await held.train(rows(), fields={**CONFIG, "roles": {"reference": other}}, **{**HELD, "steps": 1})
    assert held.values("kl_reference")[0] > 0.01
    assert set(RL(kl_coef=0.1).roles) == {"reference"}
    assert not RL().roles
    await backend.teardown(other)
