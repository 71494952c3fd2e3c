"""A setting that can't take effect before the training is over is warned of."""

import pytest


def text(steps: int | None, warm_up: int = 0, *, run_every: int = 2, callback: str = "") -> str:
    length = "" if steps is None else f"steps: {steps}, "
    return f"""\
version: 1
name: x
metadata:
  benchmark: {{name: word, path: data/val.jsonl, run_every: {run_every}, metrics: [mean_reward]}}
{f"callbacks: [{{kind: watching, params: {callback}}}]" if callback else ""}
run:
  data: {{path: data/train.jsonl}}
  model: {{name: evsys/tiny}}
  algorithm: {{kind: sft, params: {{{length}warmup_steps: {warm_up}}}}}
  backend: {{kind: mock}}
"""


@pytest.mark.parametrize(
    ("given", "warning"),
    [
        (
            text(8, 200),
            "arm 'run' warms up for 200 of its 8 steps, so the learning rate never is what learning_rate says (at most 4% of it)",
        ),
        (
            text(8).replace("warmup_steps: 0", "lr_schedule: constant, schedule_steps: 4"),
            "arm 'run' has schedule_steps and a constant learning rate, which no step changes",
        ),
        (text(8, 8), "arm 'run' warms up for 8 of its 8 steps"),
        (text(6, run_every=500), "'word' is scored every 500 steps, and training has at most 6"),
        (
            text(6, run_every=3, callback="{monitor: word.mean_reward, judgements: 51}"),
            "a callback can't act: it needs 51 values of 'word.mean_reward', and training has at most 3",
        ),
        (
            text(6, callback="{monitor: loss, judgements: 51}"),
            "a callback can't act: it needs 51 values of 'loss', and training has at most 6",
        ),
    ],
)
def test_what_comes_too_late_is_named_with_what_there_is(load, given, warning):
    (found,) = load(given).warnings
    assert found.startswith(warning)


@pytest.mark.parametrize(
    "given",
    [
        text(8, 7),
        text(None, 200, run_every=500),
        text(6, run_every=6),
        text(6, run_every=3, callback="{monitor: word.mean_reward, judgements: 3}"),
        text(6, callback="{monitor: loss, judgements: 6}"),
        text(6, callback="{monitor: loss}"),
    ],
)
def test_what_takes_effect_or_depends_on_the_rows_is_not_warned_of(load, given):
    assert load(given).warnings == ()


@pytest.mark.parametrize("key", ["max_tokens: 1000000000", "temperature: 1.0e+9"])
def test_absurd_limits_are_refused(problems, key):
    assert "must be <=" in " ".join(problems(text(6).replace("run_every: 2", f"run_every: 2, {key}")))
