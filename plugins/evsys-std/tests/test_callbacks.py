"""Callbacks: what they show, where, and how often."""

import asyncio
import contextvars
import io
import re
from types import SimpleNamespace

import attrs
import pytest

from evsys import Registry
from evsys.errors import ConfigError
from evsys.hooks import HookManager
from evsys.types import ArmResult, EvaluationResult, Failure, MetricValue, RunResult
from evsys_runtime.live_lines import LiveLines, current_live_lines, leave_live_lines
from evsys_runtime.logging import Console
from evsys_std.callbacks import LocalLogger, PrintProgress

CTX = SimpleNamespace(run_id="sft-s0")


class Screen(io.StringIO):
    """Standard error that may be a terminal."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


class Clock:
    """Time that passes when told."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(PrintProgress, "clock", clock)
    return clock


@pytest.fixture
def screen(monkeypatch):
    def make(terminal):
        found = Screen(terminal)
        monkeypatch.setattr("sys.stderr", found)
        monkeypatch.setenv("TERM", "xterm")
        return found

    return make


def train(progress, clock, steps, *, total, seconds=1.0, first=1, **metrics):
    progress.evsys_run_started(CTX, total)
    for step in range(first, steps + 1):
        clock.now += seconds
        progress.evsys_step_finished(CTX, step, {"loss": 2.0 / step, "tokens": 500.0, **metrics})


def test_in_a_pipe_a_tenth_of_the_run_gives_a_plain_line(screen, clock, capsys):
    pipe = screen(terminal=False)
    train(PrintProgress(), clock, 20, total=20)
    lines = pipe.getvalue().splitlines()
    assert lines[0] == "sft-s0: 20 steps"
    assert lines[1] == "sft-s0: step 2/20, loss 1, 500 tokens/s, 18 s left"
    assert lines[-1] == "sft-s0: step 20/20, loss 0.1, 500 tokens/s, 0.0 s left"
    assert len(lines) == 11
    assert "\r" not in pipe.getvalue()
    assert "\x1b" not in pipe.getvalue()


def test_what_the_backend_expects_is_told_at_the_start(screen, clock):
    pipe = screen(terminal=False)
    for scoring in ({}, {"scoring_seconds": 0.0}, {"scoring_seconds": 15.0}):
        PrintProgress().evsys_run_started(CTX, 100, {"seconds": 75.0, "peak_bytes": 1.25e9, **scoring})
    assert pipe.getvalue().splitlines() == [
        "sft-s0: 100 steps, about 1:15 without evaluation and 1.2 GB on this machine",
        "sft-s0: 100 steps, about 1:15 and 1.2 GB on this machine",
        "sft-s0: 100 steps, about 1:30 including evaluation and 1.2 GB on this machine",
    ]


def test_the_interval_can_be_given_and_the_last_step_is_always_shown(screen, clock):
    pipe = screen(terminal=False)
    train(PrintProgress(every=4), clock, 10, total=10)
    assert [line.split(",")[0] for line in pipe.getvalue().splitlines()[1:]] == [
        f"sft-s0: step {step}/10" for step in (4, 8, 10)
    ]


def test_a_run_of_unknown_length_promises_no_end(screen, clock):
    pipe = screen(terminal=False)
    train(PrintProgress(), clock, 10, total=None)
    assert pipe.getvalue().splitlines() == [
        "sft-s0: an open number of steps",
        "sft-s0: step 10, loss 0.2, 500 tokens/s",
    ]


def test_on_a_terminal_one_line_is_redrawn_and_not_too_often(screen, clock):
    terminal = screen(terminal=True)
    train(PrintProgress(redraw_seconds=0.25), clock, 101, total=101, seconds=0.125)
    drawn = terminal.getvalue().split("\r\x1b[K")[1:]
    assert len(drawn) == 51
    assert drawn[-1].startswith("sft-s0: step 101/101, loss 0.0198, 4k tokens/s")
    assert "\n" not in "".join(drawn)


def test_a_terminal_that_can_not_redraw_gets_plain_lines(screen, clock, monkeypatch):
    terminal = screen(terminal=True)
    monkeypatch.setenv("TERM", "dumb")
    train(PrintProgress(), clock, 2, total=2)
    assert [line[:17] for line in terminal.getvalue().splitlines()] == [
        "sft-s0: 2 steps",
        "sft-s0: step 1/2,",
        "sft-s0: step 2/2,",
    ]


def test_the_live_line_fits_the_terminal(screen, clock, monkeypatch):
    terminal = screen(terminal=True)
    monkeypatch.setenv("COLUMNS", "30")
    train(PrintProgress(), clock, 1, total=1)
    assert len(terminal.getvalue().split("\x1b[K")[-1]) == 29


def test_lines_that_stay_come_below_the_live_line(screen, clock):
    terminal = screen(terminal=True)
    progress = PrintProgress()
    train(progress, clock, 2, total=2)
    progress.evsys_run_finished(
        CTX,
        ArmResult(
            run_id="sft-s0",
            arm="sft",
            repeat=0,
            seed=0,
            status="completed",
            identity="x",
            run=RunResult(status="completed", steps=2),
            seconds=75.4,
        ),
    )
    assert terminal.getvalue().endswith("left\nsft-s0 completed in 1:15, 2 steps\n")


@pytest.mark.parametrize(("total", "why"), [(5, "; val.score has not risen"), (2, "")])
def test_a_run_that_was_ended_early_says_why(screen, clock, total, why):
    pipe = screen(terminal=False)
    progress = PrintProgress()
    train(progress, clock, 2, total=total)
    run = RunResult(status="completed", steps=2, stop_reason="val.score has not risen")
    progress.evsys_run_finished(CTX, attrs.evolve(ended("sft-s0"), run=run))
    assert pipe.getvalue().splitlines()[-1] == f"sft-s0 completed in 4.0 s, 2 steps{why}"


def test_a_resumed_run_counts_its_own_steps_for_the_time_left(screen, clock):
    pipe = screen(terminal=False)
    train(PrintProgress(every=1), clock, 52, total=100, first=51)
    assert "step 52/100, loss 0.03846, 500 tokens/s, 48 s left" in pipe.getvalue()


def test_metrics_are_shown_where_a_step_has_them(screen, clock):
    pipe = screen(terminal=False)
    progress = PrintProgress(every=1, metrics=("reward", "loss", "grad_norm"))
    train(progress, clock, 1, total=1, reward=0.25, tokens_per_second=1234567.0)
    assert "step 1/1, reward 0.25, loss 2, 1.23M tokens/s" in pipe.getvalue()


def test_scores_and_failures_are_told(screen, clock):
    pipe = screen(terminal=False)
    progress = PrintProgress()
    metrics = {"mean_reward": MetricValue(value=0.61234), "pass@5": MetricValue(value=None)}
    done = EvaluationResult(benchmark="held_out", split="val", step=50, status="completed", metrics=metrics)
    progress.evsys_evaluation_finished(CTX, done)
    progress.evsys_evaluation_finished(
        CTX, EvaluationResult(benchmark="held_out", split="val", step=60, status="completed")
    )
    failure = Failure(boundary="evaluation", message="the grader crashed", error_type="KeyError")
    lost = EvaluationResult(benchmark="held_out", split="val", step=70, status="failed", failure=failure)
    progress.evsys_evaluation_finished(CTX, lost)
    progress.evsys_run_failed(CTX, failure)
    assert pipe.getvalue().splitlines() == [
        "sft-s0: held_out at step 50: mean_reward 0.6123",
        "sft-s0: held_out at step 60: no metric is available",
        "sft-s0: held_out at step 70 failed: the grader crashed",
        "sft-s0 failed: the grader crashed",
    ]


def advance(progress, clock, total, *, seconds=1.0, step=50):
    for done in range(total + 1):
        progress.evsys_evaluation_advanced(CTX, "held_out", step, done, total)
        clock.now += seconds


def scored(progress, step=50):
    metrics = {"mean_reward": MetricValue(value=0.5)}
    progress.evsys_evaluation_finished(
        CTX,
        EvaluationResult(benchmark="held_out", split="val", step=step, status="completed", metrics=metrics),
    )


def test_a_long_scoring_is_told_of_now_and_then_in_a_pipe(screen, clock):
    pipe = screen(terminal=False)
    progress = PrintProgress()
    advance(progress, clock, 35)
    scored(progress)
    assert pipe.getvalue().splitlines() == [
        "sft-s0: evaluating held_out at step 50, 10/35 tasks",
        "sft-s0: evaluating held_out at step 50, 20/35 tasks",
        "sft-s0: evaluating held_out at step 50, 30/35 tasks",
        "sft-s0: held_out at step 50: mean_reward 0.5",
    ]


def test_a_short_scoring_gives_its_result_alone_in_a_pipe(screen, clock):
    pipe = screen(terminal=False)
    progress = PrintProgress()
    for step in (50, 100):  # the time between two scorings isn't theirs
        advance(progress, clock, 5, step=step)
        scored(progress, step)
        clock.now += 60
    assert pipe.getvalue().splitlines() == [
        "sft-s0: held_out at step 50: mean_reward 0.5",
        "sft-s0: held_out at step 100: mean_reward 0.5",
    ]


def test_a_scoring_after_training_is_the_live_line_of_a_terminal_and_its_result_takes_its_place(
    screen, clock
):
    terminal = screen(terminal=True)
    progress = PrintProgress(redraw_seconds=1.5)
    train(progress, clock, 1, total=1)
    advance(progress, clock, 4)
    scored(progress)
    head, *drawn = terminal.getvalue().split("\r\x1b[K")
    assert head == "sft-s0: 1 step\n"
    assert drawn == [
        "sft-s0: step 1/1, loss 2, 500 tokens/s, 0.0 s left\n",
        "sft-s0: evaluating held_out at step 50, 0/4 tasks",
        "sft-s0: evaluating held_out at step 50, 2/4 tasks",
        "sft-s0: evaluating held_out at step 50, 4/4 tasks",
        "sft-s0: held_out at step 50: mean_reward 0.5\n",
    ]


def test_training_and_scorings_share_the_live_line_and_only_training_stays_above_a_result(
    screen, clock, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    terminal = screen(terminal=True)
    progress = PrintProgress(redraw_seconds=0.0)
    train(progress, clock, 1, total=3)
    progress.evsys_evaluation_advanced(CTX, "held_out", 1, 0, 4)
    progress.evsys_evaluation_advanced(CTX, "held_out", 2, 0, 4)
    progress.evsys_evaluation_advanced(CTX, "held_out", 1, 3, 4)
    clock.now += 1
    progress.evsys_step_finished(CTX, 2, {"loss": 1.0})
    scored(progress, 1)
    clock.now += 1
    progress.evsys_step_finished(CTX, 3, {"loss": 1.0})
    progress.evsys_evaluation_advanced(CTX, "held_out", 2, 4, 4)
    scored(progress, 2)
    one, two = (
        f"sft-s0: step {step}/3, loss {loss}, {speed} tokens/s"
        for step, loss, speed in ((1, 2, 500), (2, 1, 250))
    )
    assert terminal.getvalue().split("\r\x1b[K")[1:] == [
        f"{one}, 2.0 s left",
        f"{one}, 2.0 s left | evaluating held_out at step 1, 0/4 tasks",
        f"{one}, 2.0 s left | evaluating held_out at step 1, 0/4 tasks; held_out at step 2, 0/4 tasks",
        f"{one}, 2.0 s left | evaluating held_out at step 1, 3/4 tasks; held_out at step 2, 0/4 tasks",
        f"{two}, 1.0 s left | evaluating held_out at step 1, 3/4 tasks; held_out at step 2, 0/4 tasks",
        f"{two}, 1.0 s left\nsft-s0: held_out at step 1: mean_reward 0.5\n",
        "sft-s0: step 3/3, loss 1, 167 tokens/s, 0.0 s left\n",
        "sft-s0: evaluating held_out at step 2, 4/4 tasks",
        "sft-s0: held_out at step 2: mean_reward 0.5\n",
    ]


def test_scorings_side_by_side_are_each_told_of_now_and_then_in_a_pipe(screen, clock):
    pipe = screen(terminal=False)
    progress = PrintProgress()
    for done in range(3):
        for step in (50, 60):
            progress.evsys_evaluation_advanced(CTX, "held_out", step, done, 5)
            clock.now += 6
    assert pipe.getvalue().splitlines() == [
        "sft-s0: evaluating held_out at step 50, 1/5 tasks",
        "sft-s0: evaluating held_out at step 60, 1/5 tasks",
        "sft-s0: evaluating held_out at step 50, 2/5 tasks",
        "sft-s0: evaluating held_out at step 60, 2/5 tasks",
    ]


def test_the_whole_time_is_told_once_the_untrained_model_shows_how_long_scoring_takes(screen, clock):
    known = {}
    evaluate = SimpleNamespace(
        estimate=lambda start, end: 25.0 if known and (start, end) == (0, 100) else None
    )
    ctx = SimpleNamespace(run_id="sft-s0", evaluate=evaluate)
    pipe = screen(terminal=False)
    progress = PrintProgress()
    progress.evsys_run_started(ctx, 100, {"seconds": 75.0, "peak_bytes": 1.25e9})
    for name in ("one", "two"):
        progress.evsys_evaluation_finished(
            ctx, EvaluationResult(benchmark=name, split="val", step=0, status="completed")
        )
        known[name] = True
    progress.evsys_evaluation_finished(
        ctx, EvaluationResult(benchmark="one", split="val", step=50, status="completed")
    )
    assert pipe.getvalue().splitlines() == [
        "sft-s0: 100 steps, about 1:15 without evaluation and 1.2 GB on this machine",
        "sft-s0: one at step 0: no metric is available",
        "sft-s0: two at step 0: no metric is available",
        "sft-s0: about 1:40 including evaluation",
        "sft-s0: one at step 50: no metric is available",
    ]


def test_a_run_that_goes_on_says_how_many_steps_its_estimate_is_of(screen, clock):
    pipe = screen(terminal=False)
    expected = {"seconds": 75.0, "peak_bytes": 1.25e9, "scoring_seconds": 0.0}
    progress = PrintProgress()
    for left in (100, 40):
        progress.evsys_run_started(SimpleNamespace(run_id="sft-s0"), 100, {**expected, "steps": left})
    assert pipe.getvalue().splitlines() == [
        "sft-s0: 100 steps, about 1:15 and 1.2 GB on this machine",
        "sft-s0: 100 steps, 40 of them left, about 1:15 and 1.2 GB on this machine",
    ]


def test_an_estimate_of_longest_answers_is_told_as_the_most_it_takes(screen, clock):
    pipe = screen(terminal=False)
    ctx = SimpleNamespace(run_id="rl-s0", evaluate=SimpleNamespace(estimate=lambda start, end: 25.0))
    progress = PrintProgress()
    expected = {"seconds": 75.0, "peak_bytes": 1.25e9, "sampled_tokens": 2048.0}
    progress.evsys_run_started(ctx, 100, {**expected, "scoring_seconds": 0.0})
    progress.evsys_run_started(ctx, 100, expected)
    scored = EvaluationResult(benchmark="one", split="val", step=0, status="completed")
    progress.evsys_evaluation_finished(ctx, scored)
    assert pipe.getvalue().splitlines() == [
        "rl-s0: 100 steps, at most about 1:15 and 1.2 GB on this machine",
        "rl-s0: 100 steps, at most about 1:15 without evaluation and 1.2 GB on this machine",
        "rl-s0: one at step 0: no metric is available",
        "rl-s0: at most about 1:40 including evaluation",
    ]


def test_the_time_left_is_judged_by_the_later_steps(screen, clock):
    pipe = screen(terminal=False)
    progress = PrintProgress(every=4)
    progress.evsys_run_started(CTX, 12)
    for step, seconds in enumerate((60, 30, 1, 1, 2, 2, 2, 2), 1):
        clock.now += seconds
        progress.evsys_step_finished(CTX, step, {"loss": 1.0})
    lines = pipe.getvalue().splitlines()[1:]
    assert [line.rpartition(", ")[2] for line in lines] == ["8.0 s left", "8.0 s left"]


@pytest.mark.parametrize(
    ("seconds", "left"),
    [(None, "8.0 s left"), (0.0, "8.0 s left"), (4.0, "12 s left including evaluation")],
    ids=["unknown", "nothing to score", "known"],
)
def test_the_time_left_has_the_scoring_of_the_last_weights(screen, clock, seconds, left):
    asked = []

    def estimate(start, end):
        asked.append((start, end))
        return seconds

    pipe = screen(terminal=False)
    progress = PrintProgress(every=2)
    ctx = SimpleNamespace(run_id="sft-s0", evaluate=SimpleNamespace(estimate=estimate))
    progress.evsys_run_started(ctx, 10)
    for step in (1, 2):
        clock.now += 1
        progress.evsys_step_finished(ctx, step, {"loss": 1.0})
    assert pipe.getvalue().splitlines()[-1] == f"sft-s0: step 2/10, loss 1, {left}"
    assert asked == [(9, 10)]


def test_a_process_without_standard_error_is_no_fault(clock, monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    progress = PrintProgress(every=1)
    train(progress, clock, 2, total=2)
    advance(progress, clock, 2)


def test_standard_output_stays_clean(clock, capsys):
    train(PrintProgress(every=1), clock, 3, total=3)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0.2 s"), (59.4, "59 s"), (61, "1:01"), (3599.6, "1:00:00"), (7385, "2:03:05")],
)
def test_durations_are_written_as_people_read_them(screen, clock, seconds, text):
    pipe = screen(terminal=False)
    result = ArmResult(run_id="r", arm="a", repeat=0, seed=0, status="failed", identity="x", seconds=seconds)
    PrintProgress().evsys_run_finished(CTX, result)
    assert pipe.getvalue() == f"sft-s0 failed in {text}\n"


def ended(run_id):
    return ArmResult(
        run_id=run_id, arm=run_id, repeat=0, seed=0, status="completed", identity="x", seconds=4.0
    )


def drawn_on(text):
    """What a terminal shows that got this text."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[\d*[AJK]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\r":
            column = 0
        elif part == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
            assert row >= 0
        elif part in ("\x1b[J", "\x1b[K"):
            lines = [*lines[:row], lines[row][:column], *([] if part == "\x1b[J" else lines[row + 1 :])]
        else:
            lines[row] = lines[row][:column] + part
            column += len(part)
    return lines


def sweep(progresses, clock):
    """Two runs side by side, each with a callback of its own."""
    whole = PrintProgress()
    whole.evsys_experiment_started(["a-s0", "longer-s0", "c-s0"])
    contexts = [SimpleNamespace(run_id=run_id) for run_id in ("a-s0", "longer-s0")]
    for progress, ctx in reversed(list(zip(progresses, contexts, strict=True))):
        progress.evsys_run_started(ctx, 4)
    for step in (1, 2):
        clock.now += 1
        for progress, ctx in zip(progresses, contexts, strict=True):
            progress.evsys_step_finished(ctx, step, {"loss": 1.0 / step})
    return whole, contexts


@pytest.fixture
def alone():
    """Tests leave no table behind for others."""
    context = contextvars.copy_context()
    return context.run


def test_runs_side_by_side_are_a_table_on_a_terminal(screen, clock, alone):
    terminal = screen(terminal=True)
    progresses = PrintProgress(), PrintProgress()
    whole, contexts = alone(sweep, progresses, clock)
    assert drawn_on(terminal.getvalue()) == [
        "a-s0       step 2/4, loss 0.5, 2.0 s left",
        "longer-s0  step 2/4, loss 0.5, 2.0 s left",
    ]
    alone(progresses[1].evsys_evaluation_advanced, contexts[1], "v", 2, 0, 10)
    alone(progresses[0].evsys_run_finished, contexts[0], ended("a-s0"))
    assert drawn_on(terminal.getvalue()) == [
        "a-s0 completed in 4.0 s",
        "longer-s0  step 2/4, loss 0.5, 2.0 s left | evaluating v at step 2, 0/10 tasks",
    ]
    alone(progresses[1].evsys_run_failed, contexts[1], Failure(boundary="run", message="no", error_type="E"))
    alone(whole.evsys_experiment_finished)
    assert drawn_on(terminal.getvalue()) == ["a-s0 completed in 4.0 s", "longer-s0 failed: no", ""]


def test_log_lines_come_above_the_table(screen, clock, alone):
    terminal = screen(terminal=True)
    alone(sweep, (PrintProgress(), PrintProgress()), clock)
    assert alone(Console().show, lambda colours: "a warning") is None
    shown = drawn_on(terminal.getvalue())
    assert shown[0] == "a warning"
    assert [line.split()[0] for line in shown[1:]] == ["a-s0", "longer-s0"]


def test_a_table_is_no_higher_than_the_terminal(screen, alone, monkeypatch):
    monkeypatch.setenv("LINES", "4")
    monkeypatch.setenv("COLUMNS", "12")
    terminal = screen(terminal=True)
    table = LiveLines()
    for n in range(6):
        table.show(f"run-{n}", "a long text")
    assert drawn_on(terminal.getvalue()) == ["run-0  a lo", "run-1  a lo", "and 4 more"]
    table.remove()
    assert drawn_on(terminal.getvalue()) == [""]


def test_what_is_written_after_an_early_end_comes_below_the_table(screen, clock, alone):
    terminal = screen(terminal=True)
    alone(sweep, (PrintProgress(), PrintProgress()), clock)
    alone(leave_live_lines)
    terminal.write("Interrupted")
    shown = drawn_on(terminal.getvalue())
    assert [line.split()[0] for line in shown] == ["a-s0", "longer-s0", "Interrupted"]
    assert alone(current_live_lines) is None


def test_a_table_on_a_terminal_that_was_closed_ends_all_the_same(screen):
    terminal = screen(terminal=True)
    table = LiveLines()
    table.show("a-s0", "1 step")
    terminal.close()
    table.end()


def test_runs_side_by_side_are_plain_lines_with_their_names_in_a_pipe(screen, clock, alone):
    pipe = screen(terminal=False)
    alone(sweep, (PrintProgress(every=2), PrintProgress(every=2)), clock)
    assert "\x1b" not in pipe.getvalue()
    assert [line.split(":")[0] for line in pipe.getvalue().splitlines()] == [
        "longer-s0",
        "a-s0",
        "a-s0",
        "longer-s0",
    ]


def test_one_run_has_a_live_line_and_no_table(screen, clock, alone):
    screen(terminal=True)
    alone(PrintProgress().evsys_experiment_started, ["a-s0"])
    assert alone(current_live_lines) is None


@pytest.mark.parametrize("kind", ["local_logger", "print_progress"])
def test_callbacks_register_with_the_hooks(kind):
    HookManager().register(Registry().build("callback", kind))


def test_progress_hears_what_a_run_emits(screen, clock):
    pipe = screen(terminal=False)
    hooks = HookManager()
    hooks.register(PrintProgress(every=1))
    asyncio.run(hooks.emit("evsys_run_started", ctx=CTX, total_steps=1))
    asyncio.run(hooks.emit("evsys_step_finished", ctx=CTX, step=1, metrics={"loss": 1.0}))
    assert len(pipe.getvalue().splitlines()) == 2
    assert hooks.warnings == []


def test_the_logger_says_which_training_rollouts_are_kept():
    built = Registry().build("callback", "local_logger", {"keep_rollouts": {"every": 5, "share": 0.1}})
    kept = built.config.keep_rollouts
    assert (kept.every, kept.share, kept.errors) == (5, 0.1, True)
    assert LocalLogger().config.keep_rollouts.every == 1
    with pytest.raises(ConfigError, match="share"):
        Registry().build("callback", "local_logger", {"keep_rollouts": {"share": 2}})


def test_the_logger_takes_what_the_record_takes():
    from evsys_record.keep_rollouts import KeepRollouts

    settings = LocalLogger(keep_rollouts=Registry().build("callback", "local_logger").config.keep_rollouts)
    names = {"every", "share", "errors"}
    kept = {name: getattr(settings.config.keep_rollouts, name) for name in names}
    assert KeepRollouts(**kept) == KeepRollouts()
