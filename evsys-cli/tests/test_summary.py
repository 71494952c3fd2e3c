"""The end of `evsys run` on a terminal of any width: everything that was compared, in few lines."""

import re

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.types import (
    ArmResult,
    Comparison,
    Conclusion,
    EvaluationResult,
    ExperimentResult,
    Failure,
    MetricValue,
    OutOfBand,
    RunResult,
    Usage,
    WithoutFlagged,
)
from evsys_cli.output import folded, for_terminal, table_lines
from evsys_cli.summary import summary_lines

ENTRIES = ("routing", "safety", "manners")
ARMS = [f"lora_rank-{rank}-learning_rate-{rate}" for rank in (4, 8) for rate in (0.01, 0.1)]


def scoring(benchmark, step, value, **fields):
    metric = MetricValue(value=value, low=value - 0.05, high=value + 0.05, n=60)
    return EvaluationResult(
        benchmark=benchmark,
        split="val",
        step=step,
        status="completed",
        metrics={"mean_reward": metric},
        **fields,
    )


def run(arm, repeat, *, steps=(0, 10, 20, 30), breakdown=None):
    return ArmResult(
        run_id=f"{arm}-s{repeat}",
        arm=arm,
        repeat=repeat,
        seed=0,
        status="completed",
        identity=arm,
        evaluations=tuple(
            scoring(name, step, step / 60, breakdown=breakdown or {}) for name in ENTRIES for step in steps
        ),
    )


def experiment(arms, comparisons=(), **fields):
    conclusion = Conclusion(
        verdict="CANDIDATE",
        reason="one of several arms",
        metric="routing.mean_reward",
        direction="max",
        baseline="base_model",
        correction="bonferroni",
        comparisons=tuple(comparisons),
    )
    return ExperimentResult(
        experiment_id="e",
        name="n",
        status="completed",
        directory="/record",
        conclusion=conclusion,
        arms=tuple(arms),
        **fields,
    )


def compared(arm):
    return Comparison(
        arm=arm,
        outcome="win",
        before=0.0,
        after=0.5,
        effect=0.5,
        low=0.4,
        high=0.6,
        p_value=0.001,
        p_corrected=0.004,
        method="wild bootstrap",
        n_tasks=60,
        n_seeds=3,
        reason="3 training runs per recipe",
    )


@pytest.fixture
def sweep():
    """4 arms, 3 repeats, 3 entries scored before, twice during and after training."""
    return experiment([run(arm, repeat) for arm in ARMS for repeat in range(3)], map(compared, ARMS))


def test_a_sweep_has_a_line_an_arm_and_entry_with_the_mean_over_its_repeats(sweep):
    lines = summary_lines(sweep, width=100)
    assert len(lines) <= 32
    for arm in ARMS:
        scores = [line for line in lines if line.startswith(f"  {arm} ") and "+" not in line]
        assert len(scores) == len(ENTRIES)
        assert all("0.500 [0.450, 0.550]" in line for line in scores)
        assert any(
            line.startswith(f"  {arm} ") and "+0.500" in line and line.endswith("win") for line in lines
        )
    assert "-s1" not in "\n".join(lines)


def test_verbose_lists_every_scoring_of_every_run(sweep):
    lines = summary_lines(sweep, width=100, verbose=True)
    listed = [line for line in lines if re.search(r"-s1 +routing \(val\), step 10: mean_reward 0\.167", line)]
    assert len(listed) == len(ARMS)


@pytest.mark.parametrize("width", [40, 60, 79])
def test_tables_fit_a_narrow_terminal_and_no_arm_is_mistaken_for_another(sweep, width):
    lines = summary_lines(sweep, width=width)
    tables = [line for line in lines if line.startswith("  ") and "wild bootstrap" not in line]
    assert max(map(len, tables)) <= width
    shown = "\n".join(lines)
    for line in (line for line in tables if not line.startswith("    ")):
        assert line.strip().split("  ")[0] in {*ARMS, "untrained"} or ".." in line
    assert shown.count("0.500 [0.450, 0.550]") == len(ARMS) * len(ENTRIES)
    assert len(lines) <= 75


def test_one_arm_is_told_in_a_sentence():
    result = experiment([run("run", 0, steps=(0, 30))], [compared("run")])
    lines = summary_lines(result, width=100)
    assert lines[1].startswith(
        "run: routing.mean_reward 0.000 -> 0.500, effect +0.500 (95 % interval 0.400 to 0.600"
    )


def test_scores_by_label_are_shown_and_a_long_list_is_cut():
    few = {"topic": {name: {"mean_reward": MetricValue(value=0.25, n=5)} for name in ("food", "travel")}}
    many = {"topic": {f"t{i:02d}": {"mean_reward": MetricValue(value=0.25, n=5)} for i in range(40)}}
    lines = summary_lines(experiment([run("a", 0, steps=(30,), breakdown=few)]), width=100)
    place = next(i for i, line in enumerate(lines) if line.startswith("routing by topic: mean_reward"))
    assert [line.split() for line in lines[place + 1 : place + 3]] == [
        ["food", "5", "0.250"],
        ["travel", "5", "0.250"],
    ]
    lines = summary_lines(experiment([run("a", 0, steps=(30,), breakdown=many)]), width=100)
    assert "  and 28 more in conclusion.md" in lines


def failed(arm, repeat, message="out of memory"):
    failure = Failure(boundary="backend", message=message, error_type="E", place="x.py:3", hint="buy some")
    return attrs.evolve(run(arm, repeat, steps=()), status="failed", failure=failure)


def test_what_went_wrong_in_several_runs_is_told_once():
    lines = summary_lines(
        experiment([*(failed("a", i) for i in range(6)), failed("b", 0, "other")]), width=100
    )
    assert "a-s0, a-s1, a-s2, a-s3 and 2 more: failed: out of memory (x.py:3)" in lines
    assert "b-s0: failed: other (x.py:3)" in lines
    assert lines.count("  buy some") == 2


def test_a_place_that_stands_in_the_message_is_not_told_twice():
    message = "nothing moved (at x.py:3); see stacks.txt"
    assert f"a-s0: failed: {message}" in summary_lines(experiment([failed("a", 0, message)]), width=100)


def test_a_run_that_ended_early_without_a_failure_says_why_and_so_does_a_scoring():
    stopped = attrs.evolve(run("a", 0), status="cancelled")
    broken = attrs.evolve(
        scoring("routing", 30, 0.0),
        status="invalid",
        metrics={},
        failure=Failure(boundary="verifier", message="9 of 10 have no score", error_type="NoScore"),
    )
    invalid = [attrs.evolve(run("b", i), evaluations=(broken,)) for i in range(2)]
    lines = summary_lines(experiment([stopped, *invalid]), width=100)
    assert "a-s0: cancelled: no reason given" in lines
    assert "routing of b-s0 at step 30, b-s1 at step 30: invalid: 9 of 10 have no score" in lines


def test_a_complete_run_that_a_listener_ended_says_so():
    ended = [
        attrs.evolve(run("a", i), run=RunResult(status="completed", steps=21, stop_reason=f"no better {i}"))
        for i in range(6)
    ]
    lines = summary_lines(experiment([*ended, run("b", 0)]), width=100)
    assert [line for line in lines if "ended" in line] == [
        *(f"a-s{i} ended at step 21: no better {i}" for i in range(4)),
        "and 2 more ended early, as conclusion.md shows",
    ]
    dry = attrs.evolve(experiment(ended), dry=True)  # which ends every run early
    assert not [line for line in summary_lines(dry, width=100) if "ended" in line]


def test_a_metric_that_left_its_band_is_told_with_the_runs_and_the_reason():
    out = OutOfBand(
        metric="nll", low=None, high=15.0, why="it diverged", first_step=9, last_step=20, steps=12, share=0.4
    )
    conclusion = Conclusion(verdict=None, reason="r", health={f"a-s{i}": (out,) for i in range(6)})
    told = attrs.evolve(experiment([run("a", 0)]), conclusion=conclusion)
    (line,) = (line for line in summary_lines(told, width=100) if line.startswith("health: "))
    assert line.startswith(
        "health: nll left its band of at most 15 in a-s0 (40% of its steps, from step 9), "
    )
    assert line.endswith(" and 2 more: it diverged")


CELLS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=12)


@given(st.data(), st.integers(20, 120))
def test_a_table_of_any_shape_shows_every_cell_and_fits_where_that_is_possible(data, width):
    columns = data.draw(st.lists(CELLS, min_size=1, max_size=4))
    row = st.tuples(CELLS, *([CELLS] * len(columns)))
    rows = data.draw(st.lists(row, min_size=1, max_size=5, unique_by=lambda row: row[0]))
    lines = table_lines("title", columns, rows, width=width)
    text = "\n".join(lines)
    assert all(cell in text for row in rows for cell in row[1:])
    longest = max(
        4 + len(name) + 1 + len(cell) for row in rows for name, cell in zip(columns, row[1:], strict=True)
    )
    assert max(map(len, lines)) <= max(width, longest, 2 + max(len(row[0]) for row in rows))


# --- lines of a terminal ---------------------------------------------------------------------------------------------


def test_no_line_is_wider_than_the_terminal_but_for_words_that_are(sweep):
    long = attrs.evolve(
        sweep,
        directory="/a/path/" + "x" * 90,
        warnings=("word " * 40 + "end", "first\n  second " + "word " * 30),
    )
    lines = list(folded(summary_lines(long, width=80), 80))
    assert [line.strip() for line in lines if len(line) > 80] == [long.directory]
    assert " ".join(" ".join(lines).split()).count("word word end") == 1


@given(st.text(alphabet="ab  \n-", max_size=120), st.integers(5, 40))
def test_folding_loses_no_word_and_leaves_what_fits(text, width):
    lines = list(folded([text], width))
    assert " ".join(lines).split() == text.split()
    if all(len(line) <= width for line in text.split("\n")):
        assert lines == text.split("\n")
    for line in lines:
        assert len(line) <= width or len(line.split()) <= 1


def test_lines_are_folded_for_a_terminal_only(monkeypatch):
    line = "word " * 30
    assert for_terminal([line, "end"]) == f"{line}\nend"
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert max(map(len, for_terminal([line, "end"]).split("\n"))) <= 80


def test_a_process_without_standard_output_is_no_fault(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert for_terminal(["word " * 30]) == "word " * 30


@pytest.mark.parametrize(
    ("usage", "line"),
    [
        (Usage(trained_tokens=9, cost_usd=0.0), None),
        (Usage(cost_usd=1.5), "cost: $1.5000"),
        (Usage(cost_usd=1.5, unpriced=2), "cost: at least $1.5000 (2 without a known price)"),
        (Usage(prompt_tokens=9), "cost: unknown"),
    ],
)
def test_what_was_spent_is_told_and_never_as_more_than_is_known(usage, line):
    lines = summary_lines(experiment([run("a", 0)], usage=usage), width=80)
    assert [text for text in lines if text.startswith("cost: ")] == ([] if line is None else [line])


def test_the_verdict_without_tasks_that_were_trained_on_stands_below_the_verdict(sweep):
    rest = WithoutFlagged(
        benchmark="routing",
        tasks=("t1", "t2"),
        verdict="REFUTED",
        reason="every arm ties",
        comparisons=(compared("a"),),
    )
    leaky = attrs.evolve(sweep, conclusion=attrs.evolve(sweep.conclusion, without_flagged=rest))
    lines = summary_lines(leaky, width=100)
    verdict = lines.index("CANDIDATE: one of several arms")
    assert lines[verdict + 1] == (
        "without 2 tasks of routing found among the training rows: REFUTED: every arm ties (effect of a +0.500)"
    )
    assert not any("training rows" in line for line in summary_lines(sweep, width=100))
