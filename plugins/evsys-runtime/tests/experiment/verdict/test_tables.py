"""The numbers of an experiment as tables: repeats together, arms apart, nothing made up."""

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
)
from evsys_record.scorings import mean_over_repeats
from evsys_runtime.experiment.verdict.prose import conclusion_markdown, run_markdown
from evsys_runtime.experiment.verdict.tables import (
    breakdown_tables,
    comparison_table,
    confidence,
    markdown_table,
    number,
    score_tables,
)
from evsys_stats.intervals import mean_interval


def scoring(step, value, *, benchmark="val", status="completed", parts=None, **metrics):
    values = {"mean_reward": value, **metrics}
    measured = {
        name: MetricValue(value=v, low=v - 0.1, high=v + 0.1, n=12, method="t") for name, v in values.items()
    }
    return EvaluationResult(
        benchmark=benchmark,
        split="val",
        step=step,
        status=status,
        metrics=measured if status == "completed" else {},
        breakdown={
            key: {label: {"mean_reward": MetricValue(value=v, n=6)} for label, v in labels.items()}
            for key, labels in (parts or {}).items()
        },
        failure=None
        if status == "completed"
        else Failure(boundary="verifier", message="down", error_type="E"),
    )


def run(arm, repeat, *evaluations, status="completed"):
    return ArmResult(
        run_id=f"{arm}-s{repeat}",
        arm=arm,
        repeat=repeat,
        seed=0,
        status=status,
        identity=arm,
        evaluations=evaluations,
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "n/a"), (0.0, "0.000"), (0.5, "0.500"), (0.00012, "0.00012"), (-0.004, "-0.004")]
    + [(99.9, "99.900"), (512.25, "512.2"), (123456.7, "123,457")],
)
def test_a_number_has_the_digits_that_tell_something(value, text):
    assert number(value) == text


def test_repeats_of_an_arm_are_one_line_with_their_mean_and_interval():
    arms = [
        run(name, repeat, scoring(0, 0.1), scoring(8, 0.3), scoring(9, value + 0.1 * repeat))
        for name, value in (("a", 0.4), ("b", 0.6))
        for repeat in range(3)
    ]
    [table] = score_tables(arms)
    assert (table.title, table.columns) == ("val (val), 3 runs", ("mean_reward",))
    assert table.rows == (
        ("untrained", "0.100 [0.000, 0.200]"),
        ("a", "0.500 [0.400, 0.600]"),
        ("b", "0.700 [0.600, 0.800]"),
    )


def test_runs_without_a_score_are_counted_and_do_not_enter():
    arms = [
        run("a", 0, scoring(9, 0.5)),
        run("a", 1, scoring(9, 0.9), status="failed"),
        run("b", 0, scoring(9, 0.0, status="failed")),
        run("b", 1),
    ]
    [table] = score_tables(arms)
    assert table.columns == ("runs", "mean_reward")
    assert table.rows == (("a", "1 of 2", "0.500 [0.400, 0.600]"), ("b", "0 of 2", "not scored"))


def test_runs_that_have_no_result_at_all_are_counted_where_they_are_told_of():
    [table] = score_tables([run("a", 0, scoring(0, 0.1), status="cancelled")], {"a": 2, "b": 3})
    assert (table.title, table.rows[-1]) == ("val (val), 0 of 3 runs", ("a", "not scored"))


def test_arms_that_start_from_different_weights_have_a_line_each_for_them():
    arms = [run("a", 0, scoring(0, 0.1), scoring(9, 0.5)), run("b", 0, scoring(0, 0.2), scoring(9, 0.5))]
    [table] = score_tables(arms)
    assert [row[0] for row in table.rows] == ["a, untrained", "b, untrained", "a", "b"]


def test_every_entry_and_metric_is_shown():
    arms = [run("a", 0, scoring(9, 0.5, **{"pass@2": 0.7}), scoring(9, 0.2, benchmark="goal"))]
    assert [(t.title, t.columns) for t in score_tables(arms)] == [
        ("val (val)", ("mean_reward", "pass@2")),
        ("goal (val)", ("mean_reward",)),
    ]


@given(
    st.integers(2, 5).flatmap(
        lambda repeats: st.lists(
            st.lists(st.floats(0, 1), min_size=repeats, max_size=repeats), min_size=2, max_size=20
        )
    )
)
def test_the_interval_over_repeats_is_at_least_that_of_the_tasks_means(tasks):
    """By Minkowski's inequality, whatever the repeats have in common."""
    repeats = [{str(i): values[r] for i, values in enumerate(tasks)} for r in range(len(tasks[0]))]
    measured = []
    for values in repeats:
        interval = mean_interval(values)
        mean = sum(values.values()) / len(values)
        low, high = (interval.low, interval.high) if interval else (None, None)
        measured.append(MetricValue(value=mean, low=low, high=high, n=len(values), method="t"))
    combined = mean_over_repeats(measured)
    means = {str(i): sum(values) / len(values) for i, values in enumerate(tasks)}
    exact = mean_interval(means)
    assert combined.value == pytest.approx(sum(means.values()) / len(means))
    if exact is not None and exact.method == "t" and combined.low is not None:
        assert combined.high - combined.low >= exact.high - exact.low - 1e-9


def test_a_repeat_without_a_value_or_interval_is_not_made_up():
    full = MetricValue(value=0.5, low=0.4, high=0.6, n=9, method="t")
    missing, bare = MetricValue(value=None, method="not available"), MetricValue(value=0.7, n=9)
    assert mean_over_repeats([missing, full]) == full
    assert mean_over_repeats([missing, missing]).value is None
    combined = mean_over_repeats([full, bare])
    assert (combined.value, combined.low, combined.high) == (pytest.approx(0.6), None, None)


PARTS = {"topic": {"food": 0.2, "travel": 0.8}}


def test_a_breakdown_has_a_line_a_label_and_a_column_an_arm():
    later = {"topic": {"food": 0.4, "travel": 1.0}}
    arms = [
        run("a", i, scoring(0, 0.1, parts=PARTS), scoring(9, 0.5, parts=p))
        for i, p in enumerate((PARTS, later))
    ]
    [table] = breakdown_tables([*arms, run("b", 0, scoring(9, 0.0, status="failed"))])
    assert (table.title, table.columns) == ("val by topic: mean_reward", ("tasks", "untrained", "a"))
    assert table.rows == (("food", "6", "0.200", "0.300"), ("travel", "6", "0.800", "0.900"))


def test_a_breakdown_is_told_by_the_success_metric():
    parts = {"topic": {"x": 0.25}}
    scored = scoring(9, 0.5, parts=parts, other=0.75)
    scored = attrs.evolve(scored, breakdown={"topic": {"x": {"other": MetricValue(value=1.0, n=3)}}})
    [table] = breakdown_tables([run("a", 0, scored)], success="val.other")
    assert (table.title, table.rows) == ("val by topic: other", (("x", "3", "1.000"),))


def test_entries_without_breakdown_keys_have_no_such_table():
    assert breakdown_tables([run("a", 0, scoring(9, 0.5))]) == []


def test_an_arm_that_could_not_be_compared_stays_in_the_table():
    comparisons = (
        Comparison(arm="a", outcome="win", effect=0.25, low=0.1, high=None, p_corrected=0.004),
        Comparison(arm="b", outcome="unscored", reason="it never ran"),
    )
    table = comparison_table(
        Conclusion(verdict="CANDIDATE", reason="", baseline="base_model", comparisons=comparisons)
    )
    assert table.title == "against base_model"
    assert table.rows == (
        ("a", "+0.250", "[0.100, n/a]", "0.004", "win"),
        ("b", "n/a", "", "", "unscored"),
    )


def test_the_conclusion_page_has_the_tables_and_a_label_with_a_bar_breaks_none():
    parts = {"topic": {"a|b": 0.5}}
    arms = (run("a", 0, scoring(9, 0.5, parts=parts)), run("a", 1, scoring(9, 0.7, parts=parts)))
    conclusion = Conclusion(verdict="REFUTED", reason="no", metric="val.mean_reward")
    result = ExperimentResult(
        experiment_id="e", name="n", status="completed", directory="d", conclusion=conclusion, arms=arms
    )
    page = conclusion_markdown(result, conclusion, hypothesis=None, prose=None)
    assert "| val (val), 2 runs | mean_reward |\n| --- | --- |\n| a | 0.600 [0.500, 0.700] |\n" in page
    assert "| val by topic: mean_reward | tasks | a |\n| --- | --- | --- |\n| a\\|b | 6 | 0.500 |\n" in page
    assert "| val by topic: mean_reward | tasks | a |" in run_markdown(arms[0])


def test_a_markdown_table_has_as_many_cells_in_each_line():
    lines = markdown_table(comparison_table(Conclusion(verdict=None, reason="", baseline="b")))
    assert {line.count("|") for line in lines} == {6}


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (None, "95 %"),
        (0.04, "96 %"),
        (0.0125, "98.8 %"),
        (0.0005, "99.95 %"),
        (0.00024, "99.976 %"),
        (1e-6, "99.9999 %"),
    ],
)
def test_no_interval_has_a_confidence_of_100(level, text):
    compared = Comparison(arm="a", before=0.5, outcome="inconclusive", level=level)
    assert confidence(compared) == text
