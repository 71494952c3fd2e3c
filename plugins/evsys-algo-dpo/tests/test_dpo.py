"""`dpo` on the mock backend: it learns what is preferred, it resumes, and it says what it left out."""

import json

import attrs
import numpy as np
import pytest
from training_runs import HELD_OUT, TEMPLATES, Rows, questions

from evsys.errors import AlgorithmError, ConfigError, DataError, StoreError
from evsys.types import AdamParams, ChatMessagesRow, Message, StopFlag
from evsys_algo_dpo import DPO
from evsys_backend_mock import MockBackend
from evsys_conformance import toy
from evsys_runtime.data.parse import parse_rows
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_runtime.training import trainable_rows

ANSWERS = sorted({answer for _, answer in questions()})


def pair(question, better, worse, row_id="row"):
    asked = Message(role="user", content=question)
    chosen, rejected = (Message(role="assistant", content=text) for text in (better, worse))
    return ChatMessagesRow(messages=(asked, chosen), rejected=(asked, rejected), row_id=row_id)


def of(templates):
    """Each question with its right answer, preferred to the next one in the alphabet."""
    return Rows(
        pair(question, answer, ANSWERS[(ANSWERS.index(answer) + 1) % len(ANSWERS)], f"row-{i}")
        for i, (question, answer) in enumerate(questions(templates))
    )


async def preferred(client, rows):
    """Share of pairs whose chosen side is likelier, on rows that needn't be those of the training."""
    sampler = await client.sampling_client()
    right = 0
    for row in rows:
        totals = []
        for messages in (row.messages, row.rejected):
            ((tokens, weights),) = client.renderer.render_training(messages, (), "all_assistant")
            logprobs = await sampler.compute_logprobs(tokens)
            totals.append(float(np.nansum(np.where(np.array(weights) > 0, logprobs, 0.0))))
        right += totals[0] > totals[1]
    return right / len(rows)


def preferences():
    """The pairs of most tests."""
    return of(TEMPLATES)


SHORT = {"batch_size": 8, "steps": 6, "learning_rate": 3e-3}


@pytest.mark.parametrize("loss", ["dpo", "ipo", "simpo"])
async def test_it_learns_what_is_preferred(run, loss):
    async with run.attempt(preferences()) as ctx:
        result = await DPO(loss=loss, batch_size=12, steps=20, learning_rate=5e-3).train(ctx)
    first, *_, last = [values for _, values in run.metrics()]
    assert result.status == "completed"
    assert last["accuracy"] == 1.0
    assert last["margin"] > first["margin"] + 0.1
    assert last["loss"] < 0.9 * first["loss"]
    assert last["chosen_reward"] > last["rejected_reward"]


async def test_sides_that_differ_in_nothing_that_is_rendered_say_the_same(run):
    asked = Message(role="user", content="why?")
    one, other = (Message(role="assistant", content="so", weight=weight) for weight in (None, 0.5))
    alike = ChatMessagesRow(messages=(asked, one), rejected=(asked, other), row_id="alike")
    async with run.attempt(Rows([*preferences(), alike])) as ctx:
        result = await DPO(**SHORT).train(ctx)
    assert "1 of 37 pairs were left out: both sides are equal" in result.warnings


class Unsure:
    """A reference whose logprobs of some data aren't finite."""

    def __init__(self, client, odd):
        self._client, self._odd = client, odd

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def forward(self, data):
        result = await self._client.forward(data)
        for datum, logprobs in zip(data, result.logprobs, strict=True):
            if datum.meta["row_id"] in self._odd:
                logprobs[-1] = self._odd[datum.meta["row_id"]]
        return result


@pytest.mark.parametrize("loss", ["dpo", "ipo"])
async def test_pairs_that_the_reference_finds_impossible_have_no_loss_and_are_counted(
    new_run, tmp_path, loss
):
    backend = MockBackend()
    rows, runs = preferences(), []
    for name, stop, resume in (
        ("whole", None, False),
        ("halved", StopFlag(reason="the test"), False),
        ("halved", None, True),
    ):
        run = new_run(name) if not resume else runs[-1]
        runs.append(run)
        reference = await backend.prepare(run.model, tmp_path, 0)
        unsure = Unsure(reference, {"row-1": -np.inf, "row-2": np.nan})
        fields = {"stop": stop} if stop else {}
        async with run.attempt(rows, roles={"reference": unsure}, resume=resume, **fields) as ctx:
            result = await DPO(loss=loss, **{**SHORT, "steps": 9}).train(ctx)
    told = "2 of 36 pairs have no loss: the reference finds a side of theirs impossible"
    assert any(warning.startswith(told) for warning in result.warnings)
    lines = [values for _, values in runs[0].metrics()]
    assert sum(line["pairs"] for line in lines) == 2 * (36 - 2)  # two epochs
    assert all(np.isfinite([*line.values()]).all() for line in lines)
    assert runs[0].weights() == runs[1].weights()


async def test_a_reference_that_finds_everything_impossible_is_an_error(run, tmp_path):
    rows = preferences()
    reference = await MockBackend().prepare(run.model, tmp_path, 0)
    unsure = Unsure(reference, {row.row_id: -np.inf for row in rows})
    async with run.attempt(rows, roles={"reference": unsure}) as ctx:
        with pytest.raises(AlgorithmError, match="of none of the 8 pairs of step 1"):
            await DPO(**SHORT).train(ctx)


async def test_what_was_preferred_is_likelier_in_other_words_too(new_run):
    scores = {}
    for name in ("right", "turned round"):
        rows = of(TEMPLATES)
        if name != "right":
            rows = Rows(attrs.evolve(row, messages=row.rejected, rejected=row.messages) for row in rows)
        run = new_run(name.replace(" ", "-"))
        async with run.attempt(rows) as ctx:
            await DPO(batch_size=12, steps=25, learning_rate=5e-3).train(ctx)
            scores[name] = await preferred(ctx.clients.policy, of(HELD_OUT))
    assert scores["right"] >= 0.8
    assert scores["turned round"] <= 0.2


async def test_the_first_loss_is_that_of_no_preference(run):
    async with run.attempt(preferences()) as ctx:
        await DPO(**SHORT).train(ctx)
    values = run.metrics()[0][1]
    assert values["loss"] == pytest.approx(np.log(2), abs=1e-6)
    assert values["margin"] == pytest.approx(0.0, abs=1e-6)


async def test_a_run_that_resumes_ends_with_the_same_weights(new_run):
    whole, cut = new_run("whole"), new_run("cut")
    await whole.train(DPO(**SHORT, save_every=2), preferences())
    with pytest.raises(ConnectionError):
        await cut.train(DPO(**SHORT, save_every=2), preferences(), hooks=_Crash(3))
    await cut.train(DPO(**SHORT, save_every=2), preferences(), resume=True)
    assert cut.weights() == whole.weights()
    assert cut.batches() == whole.batches()


class _Crash:
    """Ends the run after a step."""

    def __init__(self, step):
        self.step = step

    async def emit(self, hook, /, **arguments):
        if hook == "evsys_step_finished" and arguments["step"] == self.step:
            raise ConnectionError
        return []


async def test_what_checkpoints_keep_is_made_once_and_taken_over(run):
    async with run.attempt(preferences()) as ctx:
        first, second = DPO(**SHORT), DPO(**SHORT)
        await first.setup(ctx)
        await second.setup(ctx)
        kept = json.loads(json.dumps(first.state()))
        second.load_state(kept)
        assert first.state()["references"] is first.state()["references"]
        assert second.state()["references"] is kept["references"]


async def test_a_checkpoint_of_other_pairs_isnt_taken_up(run):
    async with run.attempt(preferences()) as ctx:
        algorithm, shorter = DPO(**SHORT), DPO(**{**SHORT, "steps": 1})
        await algorithm.setup(ctx)
        await shorter.setup(ctx)
        with pytest.raises(StoreError, match="of 16 sequences, and the run has 72"):
            algorithm.load_state(shorter.state())


async def test_pairs_that_cant_be_trained_are_left_out_and_counted(run):
    rows = Rows(
        [
            *preferences(),
            pair("same?", "yes", "yes"),
            pair("long?", "yes " * 200, "no"),
            pair("empty?", "yes", ""),
        ]
    )
    async with run.attempt(rows) as ctx:
        algorithm = DPO(**SHORT, max_length=200)
        result = await algorithm.train(ctx)
        assert algorithm.rows <= len(rows) - 2
    text = " ".join(result.warnings)
    assert "1 of 39 pairs were left out: both sides are equal" in text
    assert "1 of 39 pairs were left out: longer than max_length (200 tokens)" in text


async def test_rows_that_are_no_pairs_are_refused(run):
    rows = Rows(
        [
            ChatMessagesRow(
                messages=(Message(role="user", content="q"), Message(role="assistant", content="a"))
            )
        ]
    )
    async with run.attempt(rows) as ctx:
        with pytest.raises(DataError, match="row 0 has no rejected answer"):
            await DPO(batch_size=1, steps=1).train(ctx)


async def test_only_what_the_sides_dont_share_is_judged(run):
    asked = Message(role="user", content="one")
    shared = Message(role="assistant", content="shared")
    more = Message(role="user", content="two")
    sides = [(asked, shared, more, Message(role="assistant", content=text)) for text in ("good", "bad")]
    row = ChatMessagesRow(messages=sides[0], rejected=sides[1])
    async with run.attempt(Rows([row])) as ctx:
        algorithm = DPO(batch_size=1, steps=1)
        await algorithm.setup(ctx)
        chosen, rejected = (await algorithm.build_batch(0)).data
        decode = ctx.clients.policy.tokenizer.decode
    for datum, said in ((chosen, "good<|im_end|>"), (rejected, "bad<|im_end|>")):
        assert decode(datum.loss_inputs["target_tokens"][datum.loss_inputs["weights"] > 0]) == said


async def test_a_batch_may_have_a_row_twice(run):
    rows = Rows([pair("q", "yes", "no", "same-id"), pair("r", "no", "yes", "same-id"), pair("s", "a", "b")])
    async with run.attempt(rows) as ctx:
        algorithm = DPO(batch_size=2, steps=3)
        await algorithm.setup(ctx)
        for step in range(3):
            batch = await algorithm.build_batch(step)
            assert [(d.meta["pair"], d.meta["side"]) for d in batch.data] == [(0, 0), (0, 1), (1, 0), (1, 1)]


async def test_simpo_asks_no_reference(run):
    async with run.attempt(preferences()) as ctx:
        ctx.clients.policy.forward = None
        assert (await DPO(**SHORT, loss="simpo").train(ctx)).status == "completed"


def test_label_smoothing_is_for_dpo_alone():
    with pytest.raises(ValueError, match="label_smoothing: ipo has none"):
        DPO(loss="ipo", label_smoothing=0.1)


def test_preference_rows_come_in_every_spelling():
    spellings = [
        {"prompt": "q", "chosen": "a", "rejected": "b"},
        {
            "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
            "rejected": "b",
        },
        {
            "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
            "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}],
        },
    ]
    made = list(parse_rows(spellings, "pair"))
    assert (
        len(
            {
                json.dumps([[m.content for m in row.messages], [m.content for m in row.rejected]])
                for row in made
            }
        )
        == 1
    )
    with pytest.raises(DataError, match="no `rejected` answer in addition to the chosen one"):
        list(parse_rows([{"prompt": "q", "completion": "a"}], "pair"))


def test_an_unknown_loss_is_refused():
    from evsys import Registry

    registry = Registry(entry_points=())
    registry.register("algorithm", "dpo", DPO)
    with pytest.raises(ConfigError, match="'dpo', 'ipo', 'simpo'"):
        registry.build("algorithm", "dpo", {"loss": "kto"})


async def test_a_reference_that_the_run_names_is_asked_in_place_of_its_start(new_run, tmp_path):
    backend = MockBackend()
    run, again = new_run("whole"), new_run("halved")
    other = await backend.prepare(run.model, tmp_path, 5)
    for _ in range(5):
        await other.forward_backward(toy.datums(other.renderer), "cross_entropy")
        await other.optim_step(AdamParams(learning_rate=0.01))
    roles = {"reference": other}
    async with run.attempt(preferences(), roles=roles) as ctx:
        result = await DPO(**SHORT).train(ctx)
    took = result.roles["reference"]
    assert took.prompt_tokens > 0
    assert result.usage.prompt_tokens == took.prompt_tokens
    first = run.metrics()[0][1]
    assert first["margin"] != 0.0  # before its first step a model is as far from its own start as nothing
    async with again.attempt(preferences(), roles=roles, stop=StopFlag(reason="the test")) as ctx:
        await DPO(**SHORT).train(ctx)
    async with again.attempt(preferences(), resume=True) as ctx:  # what it thought is in the checkpoint
        resumed = await DPO(**SHORT).train(ctx)
    assert resumed.roles["reference"] == took
    assert again.weights() == run.weights()
    assert set(DPO().roles) == {"reference"}
    assert not DPO(loss="simpo").roles
    await backend.teardown(other)


# --- rendering when a pair's turn comes ---------------------------------------------------------------------------


SOME_THE_SAME = [pair(f"question {n}", "yes", "yes" if n % 5 == 3 else "no", f"row-{n}") for n in range(40)]


async def test_few_pairs_are_rendered_before_the_first_step(run, monkeypatch):
    monkeypatch.setattr(trainable_rows, "SAMPLE_ROWS", 6)
    renders = []
    render = ChatTemplateRenderer.render_training
    monkeypatch.setattr(
        ChatTemplateRenderer, "render_training", lambda *args: renders.append(1) or render(*args)
    )
    rows = Rows([pair(f"question {n}", "yes", "no", f"row-{n}") for n in range(300)])
    async with run.attempt(rows) as ctx:
        algorithm = DPO(batch_size=8, steps=2)
        await algorithm.setup(ctx)
        assert algorithm.rows == 300
        for step in range(2):
            assert len((await algorithm.build_batch(step)).row_ids) == 8
    assert len(renders) <= 2 * (6 + 2 * 8)  # two sides each
    assert algorithm.warnings.lines() == ()


async def test_pairs_left_out_on_the_way_are_the_same_in_a_resumed_run(new_run, monkeypatch):
    monkeypatch.setattr(trainable_rows, "SAMPLE_ROWS", 6)
    params = {"batch_size": 5, "steps": 9, "learning_rate": 3e-3, "save_every": 4}
    whole, cut = new_run("whole"), new_run("cut")
    expected = await whole.train(DPO(**params), Rows(SOME_THE_SAME))
    with pytest.raises(ConnectionError):
        await cut.train(DPO(**params), Rows(SOME_THE_SAME), hooks=_Crash(6))
    resumed = await cut.train(DPO(**params), Rows(SOME_THE_SAME), resume=True)
    assert (cut.weights(), cut.batches()) == (whole.weights(), whole.batches())
    assert "a pair was left out when its turn came: both sides are equal" in " ".join(expected.warnings)
    assert resumed.steps == 9
