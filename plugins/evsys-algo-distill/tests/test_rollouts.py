"""`opd` in conversations: every token that the student said in any turn is judged, and nothing else."""

from contextlib import asynccontextmanager

import attrs
import numpy as np
import pytest
from distillation_runs import CONFIG, SHORT, trained_teacher
from small_project import Project
from training_runs import Rows, questions

from evsys import Registry, structure, use_registry
from evsys.errors import AlgorithmError, DataError
from evsys.types import HarborTask, Message, Usage, VerifierSpec
from evsys_algo_distill import OPD
from evsys_runtime.evaluation.agents import FunctionAgent
from evsys_runtime.evaluation.rollouts import TrainingRollouts
from evsys_runtime.experiment.state.seeds import Seeds
from evsys_runtime.rendering.resolve import load_renderer

TURNS = {**SHORT, "rollouts": True, "max_turns": 3, "group_size": 2, "lora_rank": 16}


def half(model_output, expected, params):
    """Whatever is said is worth a half, or what the task says."""
    return params.get("worth", 0.5)


def tasks(count=6):
    return Rows(
        HarborTask(task_id=f"task-{i}", instruction=f"say {i}", verifier=VerifierSpec(name="half"))
        for i in range(count)
    )


def user(text):
    return Message(role="user", content=text)


async def conversation(task, model, ctx):
    """Two turns, the second of which goes on with the first."""
    messages = [user(task.instruction)]
    for asked in ("go on", None):
        [found] = await model.generate(messages, ctx.sampling)
        messages += [found.message, user(asked or "")]
    return found.message.content


async def questions_in_turn(task, model, ctx):
    """Two questions of those that the teacher has learnt to answer, one after the other."""
    number, known = int(task.task_id.removeprefix("task-")), questions()
    messages = [user(known[number][0])]
    for following in (number + 6, number):
        [found] = await model.generate(messages, ctx.sampling)
        messages += [found.message, user(known[following][0])]
    return found.message.content


async def forgetful(task, model, ctx):
    """Two turns, the second of which knows nothing of the first: a template that rewrites history does the same."""
    for asked in (task.instruction, "and now?"):
        [found] = await model.generate([user(asked)], ctx.sampling)
    return found.message.content


async def clumsy(task, model, ctx):
    if task.task_id in {"task-1", "task-2"}:
        raise ValueError("stumbled")
    return await conversation(task, model, ctx)


async def talkative(task, model, ctx):
    return (await model.generate([user(task.instruction)] * 6, ctx.sampling))[0].message.content


class Seen:
    """A policy whose training data are kept, with the logprobs that teacher and student gave."""

    def __init__(self, client):
        self._client, self.data = client, []

    def __getattr__(self, name):
        return getattr(self._client, name)

    def forward_backward(self, data, loss_fn, loss_params=None):
        self.data.append((data, loss_fn))
        return self._client.forward_backward(data, loss_fn, loss_params)


@asynccontextmanager
async def attempt(run, teacher, *, agent=conversation, rows=None, **fields):
    registry = Registry()
    registry.register("verifier", "half", half)
    rollouts = TrainingRollouts(
        renderer=load_renderer("evsys/tiny"),
        agent=FunctionAgent(agent),
        registry=registry,
        seeds=Seeds(base_seed=0),
        record=run.record,
    )
    given = {**CONFIG, "rollouts": rollouts, "roles": {"teacher": teacher}, **fields}
    with use_registry(registry):
        async with run.attempt(rows or tasks(), **given) as ctx:
            try:
                yield ctx
            finally:
                await rollouts.close()


async def learn(run, teacher, settings=TURNS, **fields):
    async with attempt(run, teacher, **fields) as ctx:
        return await OPD(**settings).train(ctx)


def values(run, name):
    return [line[name] for _, line in run.metrics()]


def said(run, step):
    """(prompt, tokens, logprobs) of each turn that a step's rollouts have on record."""
    return [
        (turn["prompt_tokens"], turn["tokens"], turn["logprobs"])
        for line in run.record.read_rollouts()
        if line["step"] == step
        for turn in line["rollout"]["turns"]
    ]


async def test_what_a_step_takes_at_most_is_foreseen_from_its_tasks(tmp_path, new_run):
    async with trained_teacher(tmp_path, steps=1) as teacher, attempt(new_run(), teacher) as ctx:
        algorithm = OPD(**TURNS, n_concurrent=3)
        await algorithm.setup(ctx)
        try:
            found = algorithm.foreseen(0)
            asked = [ctx.data[row] for row in algorithm.take_rows(0)]
            lengths = [
                len(ctx.clients.policy.renderer.render_prompt([user(task.instruction)])) for task in asked
            ]
        finally:
            await algorithm.end()
    most = algorithm.config.max_tokens * 3
    assert (found.answers, found.answer_tokens, found.at_once, found.readings) == (2 * len(asked), most, 3, 1)
    assert found.prompt_tokens == sum(lengths)
    assert [len(datum.tokens) + 1 - most for datum in found.data] == [n for n in lengths for _ in range(2)]


@pytest.mark.parametrize(("agent", "sequences"), [(conversation, 8), (forgetful, 16)])
async def test_each_token_of_each_turn_has_its_own_advantage_and_nothing_else_has_any(
    tmp_path, new_run, agent, sequences
):
    run, seen = new_run(), []
    async with trained_teacher(tmp_path, steps=6) as teacher:
        judge = await teacher.sampling_client()
        await learn(
            run,
            teacher,
            {**TURNS, "steps": 1, "kl_coef": 0.7},
            agent=agent,
            client=lambda client: seen.append(Seen(client)) or seen[0],
        )
        ((data, loss_fn),) = seen[0].data
        turns = said(run, 1)
        count = sum(len(tokens) for _, tokens, _ in turns)
        wanted = {}
        for prompt, tokens, logprobs in turns:
            theirs = (await judge.compute_logprobs([*prompt, *tokens]))[len(prompt) :]
            for i, (token, own, their) in enumerate(zip(tokens, logprobs, theirs, strict=True)):
                context = (*prompt, *tokens[:i])
                wanted.setdefault((context, token), []).append(0.7 * (float(their) - own) / count)
    assert loss_fn == "importance_sampling"
    assert len(data) == sequences
    found = {}
    for datum in data:
        trained = np.flatnonzero(datum.loss_inputs["weights"])
        assert not np.delete(datum.loss_inputs["advantages"], trained).any()
        for place in trained.tolist():
            key = (
                tuple(datum.tokens[: place + 1].tolist()),
                int(datum.loss_inputs["target_tokens"][place]),
            )
            found.setdefault(key, []).append(float(datum.loss_inputs["advantages"][place]))
    assert found.keys() == wanted.keys()
    assert sum(map(len, found.values())) == count
    for key, advantages in found.items():
        assert sorted(advantages) == pytest.approx(sorted(wanted[key]), rel=1e-5, abs=1e-7)


async def test_the_student_comes_near_to_its_teacher_in_conversations_too(tmp_path, new_run):
    run = new_run()
    settings = {"steps": 40, "learning_rate": 1e-3, "batch_size": 6, "group_size": 8, "max_tokens": 8}
    async with trained_teacher(tmp_path, steps=2) as teacher:
        result = await learn(run, teacher, {**TURNS, **settings}, agent=questions_in_turn)
    divergence = values(run, "reverse_kl")
    assert result.status == "completed"
    assert np.mean(divergence[-16:]) < 0.85 * np.mean(divergence[:16])
    assert values(run, "loss") == pytest.approx(divergence)
    assert values(run, "turns_mean") == [2.0] * 40
    assert values(run, "reward") == [0.5] * 40


async def test_it_resumes_exactly_and_counts_what_rollouts_took_once(tmp_path, new_run):
    whole, halved = new_run("whole"), new_run("halved")
    charged = []

    class Purse:
        def charge(self, usage, *, steps=0):
            charged.append(usage)

    async with trained_teacher(tmp_path, steps=4) as teacher:
        wanted = await learn(whole, teacher, budget=Purse())
        await learn(halved, teacher, max_steps=3)
        found = await learn(halved, teacher, resume=True)
    assert halved.weights() == whole.weights()
    assert halved.batches() == whole.batches()
    assert attrs.evolve(found.usage, seconds=0.0) == attrs.evolve(wanted.usage, seconds=0.0)
    spoken = sum(len(tokens) for step in range(1, 7) for _, tokens, _ in said(whole, step))
    assert wanted.usage.completion_tokens == spoken
    # These rollouts charge no budget themselves; what the algorithm charges is the teacher's alone.
    opinions = sum((usage for usage in charged if not usage.trained_tokens), Usage())
    assert opinions.prompt_tokens == values(whole, "teacher_tokens_total")[-1]
    assert opinions.completion_tokens == 0


async def test_rollouts_that_failed_are_left_out_and_counted(tmp_path, new_run):
    run = new_run()
    async with trained_teacher(tmp_path, steps=1) as teacher:
        await learn(run, teacher, {**TURNS, "batch_size": 6, "steps": 1}, agent=clumsy)
        assert values(run, "rejected_share") == [pytest.approx(1 / 3)]
        assert values(run, "rejected/error") == [4.0]
        with pytest.raises(AlgorithmError, match="none of the 8 rollouts of step 1 .*: 8 error"):
            failing = Rows(attrs.evolve(task, task_id=f"task-{1 + i % 2}") for i, task in enumerate(tasks(4)))
            await learn(new_run("all"), teacher, rows=failing, agent=clumsy)


async def test_sequences_that_are_too_long_for_the_teacher_are_left_out(tmp_path, new_run):
    run = new_run()
    async with trained_teacher(tmp_path, steps=1) as teacher:
        teacher.max_length = 40
        with pytest.raises(AlgorithmError, match="8 too_long"):
            await learn(run, teacher, agent=talkative)


async def test_the_mean_reward_is_that_of_the_rollouts_that_are_learnt_from(tmp_path, new_run):
    async def wordy(task, model, ctx):
        asked = [user(task.instruction)] * (60 if task.verifier.params else 1)
        return (await model.generate(asked, ctx.sampling))[0].message.content

    worthless = VerifierSpec(name="half", params={"worth": 0.0})
    rows = [attrs.evolve(task, verifier=worthless) if i < 2 else task for i, task in enumerate(tasks(6))]
    run = new_run()
    async with trained_teacher(tmp_path, steps=1) as teacher:
        teacher.max_length = 200
        await learn(run, teacher, {**TURNS, "batch_size": 6, "steps": 1}, rows=Rows(rows), agent=wordy)
    assert values(run, "rejected/too_long") == [4.0]
    assert values(run, "reward") == [0.5]


async def test_too_few_tasks_for_a_batch_are_an_error(tmp_path, new_run):
    async with trained_teacher(tmp_path, steps=1) as teacher:
        with pytest.raises(DataError, match="fewer than one batch of 4"):
            await learn(new_run(), teacher, rows=tasks(3))


@pytest.mark.parametrize("name", ["max_turns", "system_prompt", "agent_import_path", "environment"])
def test_what_is_for_rollouts_is_refused_without_them(name):
    value = {"max_turns": 2}.get(name, "some")
    with pytest.raises(Exception, match=f"'{name}' is for rollouts: true"):
        structure(OPD.Config, {name: value})
    assert structure(OPD.Config, {name: value, "rollouts": True})


def test_rows_are_tasks_where_agents_act_and_no_one_can_preview_what_they_will_say():
    assert OPD(rollouts=True).shape == "task"
    assert getattr(OPD(rollouts=True), "preview", None) is None
    assert OPD().shape == "prompt"
    assert OPD().preview is not None


FILE = """
run:
  data: {{source_kind: jsonl, path: tasks.jsonl}}
  model: {{name: evsys/tiny}}
  teacher: {{model: {{name: evsys/tiny}}}}
  agent: {{import_path: 'src.agents:twice'}}
  algorithm:
    kind: opd
    params: {{rollouts: true, max_turns: 2, steps: 2, batch_size: 2, group_size: 2, lora_rank: 4, max_tokens: 6, learning_rate: 1e-5}}
  backend: {{kind: {backend}}}
"""

AGENTS = '''
from evsys.types import Message


async def twice(task, model, ctx):
    """Asks, and asks again."""
    messages = [Message(role="user", content=task.instruction)]
    for _ in range(2):
        [found] = await model.generate(messages, ctx.sampling)
        messages += [found.message, Message(role="user", content="are you sure?")]
    return found.message.content
'''


@pytest.mark.parametrize("backend", ["mock", "local"])
def test_an_experiment_trains_with_the_agent_that_it_names(tmp_path, backend):
    project = Project(tmp_path)
    project.code("agents", AGENTS)
    [arm] = project.experiment(FILE.format(backend=backend)).run().arms
    assert (arm.status, arm.run.steps) == ("completed", 2)
    # Teacher and student begin with the same weights. What rounding leaves of the first gradient, Adam makes a step of the full rate
    # of, in a direction that differs between processors, so the rate is small.
    assert abs(arm.run.metrics["reverse_kl"]) < 0.1
    assert arm.run.metrics["turns_mean"] == 2.0
    assert arm.run.metrics["rejected_share"] == 0.0
    assert any("there is nothing to learn from it" in warning for warning in arm.run.warnings)
