"""`sft` on the mock backend: it learns, it resumes, it says what it left out, and it can be subclassed."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_runs import HELD_OUT, Rows, accuracy, chat_rows, questions

from evsys import Registry, register_algorithm, use_registry
from evsys.errors import ConfigError, DataError
from evsys.types import ChatMessagesRow, LoraSpec, Message, ModelSpec
from evsys_algo_sft import SFT
from evsys_algo_sft.holdout import holdout_mask
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_runtime.training import trainable_rows

SHORT = {"batch_size": 8, "steps": 6, "learning_rate": 3e-3}


async def test_true_labels_end_better_on_held_out_wordings_than_shuffled_ones(new_run):
    pairs = questions()
    shuffled = list(
        zip([q for q, _ in pairs], np.random.default_rng(1).permutation([a for _, a in pairs]), strict=True)
    )
    scores = {}
    for name, rows in (("true", pairs), ("shuffled", shuffled)):
        run = new_run(name)
        async with run.attempt(chat_rows(rows)) as ctx:
            result = await SFT(batch_size=16, steps=100, learning_rate=5e-3).train(ctx)
            scores[name] = await accuracy(ctx.clients.policy, questions(HELD_OUT))
        losses = [values["loss"] for _, values in run.metrics()]
        assert losses[-1] < 0.2 * losses[0]
        assert (result.status, result.steps) == ("completed", 100)
    assert scores["true"] >= 0.9
    assert scores["shuffled"] <= 0.5


async def test_the_loss_is_the_mean_over_the_trained_tokens_of_the_whole_batch(run):
    async with run.attempt(chat_rows([("q", "a"), ("longer question", "a longer answer")])) as ctx:
        algorithm = SFT(batch_size=2, steps=1, learning_rate=1e-3)
        await algorithm.setup(ctx)
        batch = await algorithm.build_batch(0)
        weights = np.concatenate([datum.loss_inputs["weights"] for datum in batch.data])
        assert weights.sum() == pytest.approx(1.0)
        trained = weights[weights > 0]
        np.testing.assert_allclose(
            trained, trained[0]
        )  # each token has the same say, whatever the row's length
        forward = await ctx.clients.policy.forward(batch.data)
        logprobs = np.concatenate(forward.logprobs)
        step = await ctx.clients.policy.forward_backward(batch.data, batch.loss_fn)
        assert step.loss == pytest.approx(-logprobs[weights > 0].mean())
        assert algorithm.step_metrics(0, batch, step)["nll"] == pytest.approx(step.loss)


async def test_what_is_trained_is_the_assistant_and_its_end_token(run):
    async with run.attempt(chat_rows([("the question", "the answer")])) as ctx:
        algorithm = SFT(batch_size=1, steps=1, learning_rate=1e-3)
        await algorithm.setup(ctx)
        (datum,) = (await algorithm.build_batch(0)).data
        targets = datum.loss_inputs["target_tokens"][datum.loss_inputs["weights"] > 0]
        assert ctx.clients.policy.tokenizer.decode(targets) == "the answer<|im_end|>"
        assert datum.meta["row_id"] == "row-0"


TWO_TURNS = ChatMessagesRow(
    messages=(
        Message(role="user", content="one"),
        Message(role="assistant", content="first"),
        Message(role="user", content="two"),
        Message(role="assistant", content="second"),
    )
)


@pytest.mark.parametrize(
    ("train_on", "trained"),
    [("all_assistant", "first<|im_end|>second<|im_end|>"), ("last_assistant", "second<|im_end|>")],
)
async def test_train_on_chooses_the_turns(run, train_on, trained):
    async with run.attempt(Rows([TWO_TURNS])) as ctx:
        algorithm = SFT(batch_size=1, steps=1, learning_rate=1e-3, train_on=train_on)
        await algorithm.setup(ctx)
        (datum,) = (await algorithm.build_batch(0)).data
        targets = datum.loss_inputs["target_tokens"][datum.loss_inputs["weights"] > 0]
        assert ctx.clients.policy.tokenizer.decode(targets) == trained


async def test_train_on_custom_trains_the_turns_that_have_a_weight(run):
    asked = TWO_TURNS.messages[0]
    told = [
        Message(role="assistant", content=text, weight=weight)
        for text, weight in (("left out", None), ("half", 0.5), ("whole", 1.0))
    ]
    row = ChatMessagesRow(messages=(asked, told[0], asked, told[1], asked, told[2]), row_id="row")
    unweighted = ChatMessagesRow(messages=(asked, told[0]), row_id="none")
    async with run.attempt(Rows([row, unweighted])) as ctx:
        algorithm = SFT(batch_size=1, steps=1, learning_rate=1e-3, train_on="custom")
        await algorithm.setup(ctx)
        (rendered,) = algorithm._rendered
        ((tokens, weights),) = rendered.sequences
        text = ctx.clients.policy.tokenizer.decode
        assert text(tokens[weights == 0.5].tolist()) == "half<|im_end|>"
        assert text(tokens[weights == 1.0].tolist()) == "whole<|im_end|>"
    assert algorithm.warnings.lines() == ("1 of 2 rows were left out: without a trainable token",)


async def test_rows_beyond_the_bound_are_rendered_when_they_are_needed(new_run, monkeypatch):
    """Batches, warnings and held-out metrics don't depend on how much is kept rendered."""
    found, renders = [], []
    render = ChatTemplateRenderer.render_training
    monkeypatch.setattr(
        ChatTemplateRenderer, "render_training", lambda *args: renders.append(1) or render(*args)
    )
    rows = Rows([*chat_rows(), *chat_rows([("a question", "an answer " * 500)])])
    for bound in (10_000_000, 100, 0):
        monkeypatch.setattr(trainable_rows, "MAX_TOKENS_KEPT", bound)
        renders.clear()
        run = new_run(f"bound-{bound}", base_seed=3)
        algorithm = SFT(**SHORT, max_length=400, held_out=3)
        result = await run.train(algorithm, rows)
        rows_kept = len(algorithm._rendered._looks.kept)
        found.append((run.weights(), run.metrics(), run.batches(), result.warnings))
        assert rows_kept == {10_000_000: len(rows) - 1, 0: 0}.get(bound, rows_kept)
        assert (len(renders) == len(rows)) == (bound == 10_000_000)
    assert found[0] == found[1] == found[2]
    assert any("longer than max_length" in line for line in found[0][3])


LONG = "an answer " * 500
SOME_TOO_LONG = [(f"question {n}", LONG if n % 5 == 3 else f"answer {n}") for n in range(40)]


async def test_few_rows_are_rendered_before_the_first_step(run, monkeypatch):
    monkeypatch.setattr(trainable_rows, "SAMPLE_ROWS", 6)
    renders = []
    render = ChatTemplateRenderer.render_training
    monkeypatch.setattr(
        ChatTemplateRenderer, "render_training", lambda *args: renders.append(1) or render(*args)
    )
    async with run.attempt(chat_rows([(f"question {n}", f"answer {n}") for n in range(500)])) as ctx:
        algorithm = SFT(batch_size=8, learning_rate=1e-3)
        await algorithm.setup(ctx)
        assert (len(renders), algorithm.rows, algorithm.total_steps()) == (6, 500, 63)
        for step in range(3):
            assert len((await algorithm.build_batch(step)).data) == 8
        assert len(renders) <= 6 + 3 * 8
    assert algorithm.warnings.lines() == ()


async def test_where_no_row_is_left_out_the_sample_changes_nothing(new_run, monkeypatch):
    found = []
    for sample in (4096, 6):
        monkeypatch.setattr(trainable_rows, "SAMPLE_ROWS", sample)
        run = new_run(f"sample-{sample}", base_seed=3)
        result = await run.train(SFT(**SHORT, held_out=3), chat_rows())
        found.append((run.weights(), run.metrics(), run.batches(), result.warnings))
    assert found[0] == found[1]


async def test_each_epoch_has_each_trainable_row_once_though_few_are_known_beforehand(run, monkeypatch):
    monkeypatch.setattr(trainable_rows, "SAMPLE_ROWS", 6)
    async with run.attempt(chat_rows(SOME_TOO_LONG)) as ctx:
        algorithm = SFT(batch_size=8, steps=8, learning_rate=1e-3, max_length=400)
        await algorithm.setup(ctx)
        trained = [row_id for step in range(8) for row_id in (await algorithm.build_batch(step)).row_ids]
    good = {f"row-{n}" for n in range(40) if n % 5 != 3}
    assert set(trained[:32]) == set(trained[32:]) == good
    assert trained[:32] != trained[32:]


async def test_a_batch_depends_on_its_step_alone_though_rows_are_left_out_on_the_way(new_run, monkeypatch):
    monkeypatch.setattr(trainable_rows, "SAMPLE_ROWS", 6)
    found = []
    for steps in ((0, 1, 2, 3), (3, 1, 2, 0)):
        async with new_run(f"steps-{steps[0]}").attempt(chat_rows(SOME_TOO_LONG)) as ctx:
            algorithm = SFT(batch_size=5, steps=4, learning_rate=1e-3, max_length=400)
            await algorithm.setup(ctx)
            found.append({step: (await algorithm.build_batch(step)).row_ids for step in steps})
    assert found[0] == found[1]


async def test_a_resumed_run_leaves_out_the_same_rows_on_the_way(new_run, monkeypatch):
    monkeypatch.setattr(trainable_rows, "SAMPLE_ROWS", 6)
    params = {"batch_size": 5, "steps": 9, "learning_rate": 3e-3, "max_length": 400, "save_every": 4}
    rows, whole, cut = chat_rows(SOME_TOO_LONG), new_run("whole"), new_run("cut")
    expected = await whole.train(SFT(**params), rows)
    await cut.train(SFT(**params), rows, max_steps=4)
    resumed = await cut.train(SFT(**params), rows)
    assert (cut.weights(), cut.metrics(), cut.batches()) == (
        whole.weights(),
        whole.metrics(),
        whole.batches(),
    )
    assert resumed.warnings == expected.warnings
    assert any(
        line.startswith("a row was left out when its turn came: longer than") for line in resumed.warnings
    )


async def test_rendered_rows_are_read_like_a_list(run):
    async with run.attempt(chat_rows()) as ctx:
        algorithm = SFT(batch_size=2, steps=1, learning_rate=1e-3)
        await algorithm.setup(ctx)
        ids = [row.row_id for row in algorithm._rendered]
        assert [row.row_id for row in algorithm._rendered[2:5]] == ids[2:5]
        assert algorithm._rendered[-1].row_id == ids[-1] == f"row-{len(ids) - 1}"


async def test_train_on_all_trains_every_prediction_without_a_warning(run):
    result = await run.train(
        SFT(batch_size=1, steps=1, learning_rate=1e-3, train_on="all"), Rows([TWO_TURNS])
    )
    assert result.metrics["loss_tokens"] == result.metrics["tokens"]
    assert result.warnings == ()


async def test_same_seed_same_bits_another_seed_another_order(new_run):
    found = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run = new_run(name, base_seed=seed)
        await run.train(SFT(**SHORT), chat_rows())
        found[name] = (run.weights(), run.metrics(), run.batches())
    assert found["a"] == found["b"]
    assert found["a"][2] != found["c"][2]
    assert found["a"][0] != found["c"][0]


async def test_an_epoch_takes_each_row_once_and_the_next_in_another_order(run):
    rows = chat_rows()
    result = await run.train(SFT(batch_size=10, epochs=2, learning_rate=1e-3), rows)
    assert result.steps == 8  # 72 rows by tens: the last batch is smaller
    taken = [row_id for _, _, row_ids in run.batches() for row_id in row_ids]
    everything = sorted(row.row_id for row in rows)
    assert sorted(taken[:36]) == sorted(taken[36:]) == everything
    assert taken[:36] != taken[36:]
    assert run.metrics()[-1][1]["rows"] == 2


# --- rows that can't be trained ------------------------------------------------------------------------------------------


async def test_rows_that_are_too_long_are_dropped_and_counted(run):
    pairs = [*questions(), ("word " * 60, "x"), ("q", "y" * 300)]
    result = await run.train(SFT(**SHORT, max_length=120), chat_rows(pairs))
    assert result.warnings == ("2 of 38 rows were left out: longer than max_length (120 tokens)",)
    assert not {"row-36", "row-37"} & {row_id for _, _, row_ids in run.batches() for row_id in row_ids}


async def test_when_all_rows_are_too_long_it_says_so(run):
    with pytest.raises(
        DataError, match=r"no row is left.*of 36 rows 36 longer than max_length \(20 tokens\)"
    ):
        await run.train(SFT(**SHORT, max_length=20), chat_rows())
    assert run.warned == ["36 of 36 rows were left out: longer than max_length (20 tokens)"]


async def test_the_limit_of_the_backends_model_counts_too(run):
    class Limited:
        def __init__(self, client):
            self._client = client
            self.max_length = 120

        def __getattr__(self, name):
            return getattr(self._client, name)

    result = await run.train(SFT(**SHORT), chat_rows([*questions(), ("word " * 60, "x")]), client=Limited)
    assert "1 of 37 rows were left out: longer than max_length (120 tokens)" in result.warnings


async def test_fewer_rows_than_a_batch_is_an_error_with_the_largest_batch_that_fits(run):
    with pytest.raises(DataError, match=r"36 rows are fewer than one batch of 40.*at most 36"):
        await run.train(SFT(steps=1, learning_rate=1e-3, batch_size=40), chat_rows())


async def test_the_default_batch_is_all_rows_if_there_are_fewer_and_says_so(run):
    result = await run.train(SFT(steps=2, learning_rate=1e-3), chat_rows())
    assert result.warnings == (
        "there are fewer rows than the default batch_size of 128; each batch has all 36",
    )
    assert [line["values"]["rows"] for line in run.record.read_metrics()] == [36.0, 36.0]


async def test_rows_without_an_answer_are_dropped_and_counted_and_without_any_it_is_an_error(new_run):
    silent = ChatMessagesRow(messages=(Message(role="user", content="hello?"),), row_id="silent")
    result = await new_run("some").train(SFT(**SHORT), Rows([*chat_rows(), silent]))
    assert result.warnings == ("1 of 37 rows were left out: without a trainable token",)
    with pytest.raises(DataError, match="of 3 rows 3 without a trainable token"):
        await new_run("none").train(SFT(batch_size=1, steps=1, learning_rate=1e-3), Rows([silent] * 3))


async def test_no_rows_at_all_is_an_error(run):
    with pytest.raises(DataError, match="there are no rows to train on"):
        await run.train(SFT(**SHORT), Rows())


async def test_a_row_that_can_not_be_rendered_is_named(run):
    broken = ChatMessagesRow(
        messages=(Message(role="user", content="\ud800"), Message(role="assistant", content="x")),
        row_id="odd",
    )
    with pytest.raises(DataError, match=r"row odd: .*surrogate"):
        await run.train(SFT(**SHORT), Rows([*chat_rows(), broken]))


async def test_a_mask_that_covers_everything_is_told(run):
    class Unmasked:
        """A renderer of a template without generation markers."""

        def __init__(self, renderer):
            self._renderer = renderer

        def render_training(self, messages, tools=(), train_on="all_assistant"):
            return [
                (tokens, [1.0] * len(tokens))
                for tokens, _ in self._renderer.render_training(messages, tools, train_on)
            ]

    class Client:
        def __init__(self, client):
            self._client = client
            self.renderer = Unmasked(client.renderer)

        def __getattr__(self, name):
            return getattr(self._client, name)

    result = await run.train(SFT(**SHORT), chat_rows(), client=Client)
    assert len(result.warnings) == 1
    assert "the mask seems to cover everything" in result.warnings[0]


# --- learning rate ----------------------------------------------------------------------------------------------------


async def test_the_default_learning_rate_follows_the_rule_and_an_unknown_model_needs_one(new_run):
    result = await new_run("known").train(SFT(batch_size=8, steps=100, lr_schedule="constant"), chat_rows())
    assert result.metrics["learning_rate"] == pytest.approx(4.3e-3)
    unknown = ModelSpec(name="somebody/secret-7b", lora=LoraSpec(rank=4))
    with pytest.raises(ConfigError, match=r"learning_rate.*somebody/secret-7b"):
        await new_run("unknown", model=unknown).train(SFT(batch_size=8, steps=1), chat_rows())
    assert list(SFT().validate_model(unknown))
    assert not list(SFT(learning_rate=1e-3).validate_model(unknown))
    assert not list(SFT().validate_model(ModelSpec(name="evsys/tiny")))


# --- a user's own algorithm -------------------------------------------------------------------------------------------


def focal(data, logprobs, gamma=2.0):
    """Focal loss in plain numpy: tokens that are right already count less."""
    total = 0.0
    for datum, lp in zip(data, logprobs, strict=True):
        total += np.sum(-datum.loss_inputs["weights"] * (1 - np.exp(lp)) ** gamma * lp)
    return total, {"confidence": np.mean(np.exp(logprobs[0]))}


async def test_a_subclass_that_sets_its_own_loss_on_the_batch_trains_with_it(new_run):
    registry = Registry(entry_points=())
    with use_registry(registry):

        @register_algorithm("focal_sft")
        class FocalSFT(SFT):
            """As a user writes it in a project's src/algorithms.py."""

            async def build_batch(self, step_idx):
                batch = await super().build_batch(step_idx)
                batch.loss_fn = focal
                return batch

        algorithm = registry.build(
            "algorithm", "focal_sft", {"batch_size": 16, "steps": 100, "learning_rate": 5e-3}
        )
        run = new_run("focal")
        async with run.attempt(chat_rows()) as ctx:
            result = await algorithm.train(ctx)
            assert await accuracy(ctx.clients.policy, questions(HELD_OUT)) >= 0.9
    assert result.status == "completed"
    assert 0 < result.metrics["confidence"] <= 1
    assert result.metrics["loss"] < result.metrics["nll"]  # focal is the smaller of the two
    plain = new_run("plain")
    await plain.train(SFT(batch_size=16, steps=100, learning_rate=5e-3), chat_rows())
    assert [batch for _, batch, _ in plain.batches()] == [batch for _, batch, _ in run.batches()]
    assert plain.weights() != run.weights()


async def test_a_subclass_may_use_another_batch_without_weights(run):
    class Everything(SFT):
        async def build_batch(self, step_idx):
            batch = await super().build_batch(step_idx)
            for datum in batch.data:
                del datum.loss_inputs["weights"]
            batch.loss_fn = lambda data, logprobs: -sum(lp.mean() for lp in logprobs)
            return batch

    result = await run.train(Everything(**SHORT), chat_rows())
    assert result.steps == 6
    assert "nll" not in result.metrics


# --- preview ----------------------------------------------------------------------------------------------------------


async def test_preview_shows_tokens_with_weights_and_counts_what_would_be_dropped(run):
    async with run.attempt(chat_rows()) as ctx:
        dropped: dict[str, int] = {}
        algorithm = SFT(max_length=50)
        rows = chat_rows([("hi", "there"), ("x" * 80, "y")])
        (shown,) = list(algorithm.preview(rows, ctx.clients.policy.renderer, dropped))
        assert shown.row_id == "row-0"
        ((tokens, weights),) = shown.sequences
        decode = ctx.clients.policy.tokenizer.decode
        assert decode(tokens[weights > 0]) == "there<|im_end|>"
        assert decode(tokens).startswith("<|im_start|>user\nhi<|im_end|>")
        assert dropped == {"longer than max_length (50 tokens)": 1}


async def test_a_rejected_answer_isnt_passed_over_in_silence(run):
    (row,) = chat_rows([("q", "a")])
    pair = ChatMessagesRow(
        messages=row.messages, rejected=(*row.messages[:1], Message(role="assistant", content="b"))
    )
    async with run.attempt(Rows([pair])) as ctx:
        result = await SFT(batch_size=1, steps=1, learning_rate=1e-3).train(ctx)
    assert (
        "1 of 1 rows have a rejected answer, which sft doesn't use; dpo learns from both" in result.warnings
    )


async def test_rows_that_are_kept_out_are_measured_and_not_trained(run):
    pairs = questions()
    async with run.attempt(chat_rows(pairs)) as ctx:
        algorithm = SFT(batch_size=8, steps=30, learning_rate=5e-3, held_out=6, held_out_every=10)
        await algorithm.train(ctx)
        measured = [(step, values) for step, values in run.metrics() if "held_out_nll" in values]
        assert [step for step, _ in measured] == [10, 20, 30]
        first, *_, last = [values["held_out_nll"] for _, values in measured]
        assert last < first
        trained = {row for _, _, rows in run.batches() for row in rows}
        assert len(trained) == len(pairs) - 6
        # The end token of each answer has a loss and no text.
        out = [row for i, row in enumerate(chat_rows(pairs)) if f"row-{i}" not in trained]
        count = sum(len(row.messages[1].content.encode()) for row in out)
        tokens = sum(row.weight for row in algorithm._held_out.rows)
        bits = measured[-1][1]["held_out_bits_per_byte"]
        assert bits == pytest.approx(last * tokens / np.log(2) / count)


async def test_copies_of_a_row_are_kept_out_together(run):
    pairs = [(question, f"answer {n}") for n, (question, _) in enumerate(questions()[:16])] * 6
    async with run.attempt(chat_rows(pairs)) as ctx:
        algorithm = SFT(batch_size=8, steps=20, learning_rate=5e-3, held_out=0.25, held_out_every=10)
        await algorithm.train(ctx)
        trained = {pairs[int(row.removeprefix("row-"))] for _, _, rows in run.batches() for row in rows}
        assert len(algorithm._held_out.rows) == 24
        assert len(trained) == 12


@given(
    st.lists(st.integers(0, 8), max_size=60),
    st.one_of(st.floats(0.01, 0.99), st.integers(1, 30)),
    st.integers(0, 5),
)
def test_contents_are_kept_out_whole_and_as_many_rows_as_copies_allow(contents, wanted, seed):
    mask = holdout_mask(contents, wanted, seed)
    assert mask.tolist() == holdout_mask(contents, wanted, seed).tolist()
    out = set(np.flatnonzero(mask).tolist())
    assert not {contents[at] for at in out} & {contents[at] for at in range(len(contents)) if at not in out}
    count = round(wanted * len(contents)) if wanted < 1 else wanted
    largest = max(Counter(contents).values(), default=0)
    assert len(out) <= count + largest / 2
    if len(set(contents)) == len(contents):
        assert len(out) == min(count, len(contents))


async def test_rows_nearly_equal_to_held_out_ones_are_reported(run):
    asked = "Write down the name of the longest river of the land of {}"
    lands = ["Portugal", "Hungary", "Norway", "Chile", "Ghana", "Japan", "Canada", "Poland"]
    pairs = [(asked.format(land), land) for land in lands] + [
        (f"Please: {asked.format(land)}", land) for land in lands
    ]
    async with run.attempt(chat_rows(pairs)) as ctx:
        result = await SFT(batch_size=4, steps=2, learning_rate=1e-3, held_out=4).train(ctx)
    (warning,) = [text for text in result.warnings if "held-out" in text]
    assert re.match(r"[2-4] of 4 held-out rows are nearly equal to training rows", warning)


async def test_rows_that_are_all_copies_are_not_kept_out(run):
    async with run.attempt(chat_rows([("a", "b")] * 12)) as ctx:
        result = await SFT(batch_size=4, steps=2, learning_rate=1e-3, held_out=3).train(ctx)
    assert any("keeps no row out: too many rows are copies" in text for text in result.warnings)


async def test_measuring_changes_nothing_of_the_training(new_run):
    weights = []
    for every in (1, 100):
        run = new_run(f"every-{every}")
        await run.train(SFT(**SHORT, held_out=0.25, held_out_every=every), chat_rows())
        weights.append(run.weights())
    assert weights[0] == weights[1]


async def test_keeping_everything_out_is_an_error(run):
    with pytest.raises(DataError, match=r"36 kept out \(held_out: 40\)"):
        await run.train(SFT(**SHORT, held_out=40), chat_rows())
