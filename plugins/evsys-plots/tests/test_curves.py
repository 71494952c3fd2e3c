import math

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from evsys.types import RunResult, SelectedCheckpoint
from evsys_plots.curves import MOST_BANDS, MOST_POINTS, curve_of, scores, training
from evsys_plots.style import FAINT

pytestmark = pytest.mark.usefixtures("drawing")


def test_a_curve_is_the_mean_over_repeats_with_their_range():
    curve = curve_of([((1, 2.0), (2, 4.0)), ((1, 4.0), (2, 8.0))])
    assert curve.steps.tolist() == [1, 2]
    assert curve.mean.tolist() == [3.0, 6.0]
    assert (curve.low.tolist(), curve.high.tolist()) == ([2.0, 4.0], [4.0, 8.0])


def test_a_step_that_only_some_repeats_reached_is_that_of_those():
    curve = curve_of([((1, 2.0), (2, 4.0)), ((1, 4.0),)])
    assert curve.mean.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("odd", [None, math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_leaves_a_gap(odd: float | None):
    curve = curve_of([((1, 2.0), (2, odd), (3, 6.0))])
    assert np.isnan(curve.mean).tolist() == [False, True, False]
    assert np.isnan(curve.low).tolist() == [False, True, False]


@given(st.lists(st.lists(st.floats(-1e6, 1e6) | st.none(), min_size=1, max_size=40), min_size=1, max_size=4))
def test_a_mean_lies_within_its_band(values: list[list[float | None]]):
    curve = curve_of([tuple(enumerate(points, 1)) for points in values])
    known = np.isfinite(curve.mean)
    slack = 1e-9 * np.maximum(1.0, np.abs(curve.mean[known]))
    assert (curve.low[known] <= curve.mean[known] + slack).all()
    assert (curve.high[known] >= curve.mean[known] - slack).all()


def test_a_long_curve_is_thinned_to_means_of_steps_in_a_row():
    curve = curve_of([tuple((step, float(step)) for step in range(1, 1 + 3 * MOST_POINTS))])
    assert len(curve.steps) <= MOST_POINTS
    assert curve.bin == 3
    assert curve.mean[0] == pytest.approx(2.0)
    assert curve.steps[0] == pytest.approx(2.0)


def test_the_loss_of_each_arm_is_a_line_with_its_band(run, material):
    losses = {0: ((1, 2.0), (2, 1.0)), 1: ((1, 4.0), (2, 3.0))}
    runs = [run(arm, n, metrics={"loss": losses[n]}) for arm in ("a", "b") for n in losses]
    (plot,) = training(material(*runs))
    (axes,) = plot.figure.axes
    assert plot.name == "training-loss"
    assert [line.get_ydata().tolist() for line in axes.lines] == [[3.0, 2.0], [3.0, 2.0]]
    assert len(axes.collections) == 2
    assert axes.get_xlabel() == "optimiser steps"
    (legend,) = plot.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


def test_one_step_is_a_point_that_is_seen(run, material):
    (plot,) = training(material(run("a", metrics={"loss": ((1, 2.0),)})))
    (line,) = plot.figure.axes[0].lines
    assert line.get_marker() == "o"


def test_each_of_twenty_arms_has_a_line_of_its_own_look_and_none_hides_another_with_its_band(run, material):
    runs = [run(f"arm-{n}", r, metrics={"loss": ((1, 1.0), (2, n + 0.0))}) for n in range(20) for r in (0, 1)]
    (plot,) = training(material(*runs))
    lines = plot.figure.axes[0].lines
    assert len({(to_hex(line.get_color()), line.get_linestyle()) for line in lines}) == 20
    assert MOST_BANDS < 20
    assert not plot.figure.axes[0].collections


def best_of(count):
    return [
        {"arm": f"arm-{n}", "effect": n / 100, "low": 0.0, "high": 1.0, "outcome": "win", "before": 0.1}
        for n in range(count)
    ]


def test_of_forty_arms_the_best_stand_out_and_the_others_are_grey_behind_them(run, material, scoring):
    runs = [
        run(
            f"arm-{n}",
            metrics={"loss": ((1, 2.0), (2, 1.0 + n))},
            evaluations=[scoring(4, {"t": n / 40}, low=0.0, high=1.0)],
        )
        for n in range(40)
    ]
    told = material(*runs, comparisons=best_of(40), baseline="arm-3")
    wanted = ["arm-3", *(f"arm-{n}" for n in range(34, 40)), "33 other arms"]
    for plot in (*training(told), *scores(told)):
        (legend,) = plot.figure.legends
        assert [text.get_text() for text in legend.get_texts()] == wanted
        colours = {to_hex(line.get_color()) for line in plot.figure.axes[0].lines if len(line.get_xdata())}
        assert FAINT in colours
    (axes,) = plot.figure.axes
    assert len(axes.containers) == 7
    assert "intervals" in plot.figure._supxlabel.get_text()


def test_steps_that_were_scored_have_the_ticks_where_they_are_few(run, material, scoring):
    (plot,) = scores(material(run("a", evaluations=[scoring(step, {"t": 0.5}) for step in (0, 5, 12)])))
    assert plot.figure.axes[0].get_xticks().tolist() == [0, 5, 12]
    (plot,) = scores(material(run("a", evaluations=[scoring(step, {"t": 0.5}) for step in (0, 1, 500)])))
    assert 1 not in plot.figure.axes[0].get_xticks().tolist()


@pytest.mark.parametrize(
    ("losses", "scale"),
    [((1.0, 2.0, 500.0), "log"), ((1.0, 2.0, 3.0), "linear"), ((-1.0, 2.0, 500.0), "linear")],
)
def test_a_loss_that_flies_off_does_not_press_the_others_together(run, material, losses, scale):
    runs = [run(f"a{n}", metrics={"loss": ((1, 1.5), (2, loss))}) for n, loss in enumerate(losses)]
    (plot,) = training(material(*runs))
    (axes,) = plot.figure.axes
    assert (axes.get_yscale(), "log scale" in axes.get_ylabel()) == (scale, scale == "log")


def test_what_else_was_measured_has_a_panel_unless_it_stayed_the_same(run, material):
    metrics = {
        "loss": ((1, 1.0),),
        "grad_norm": ((1, 1.0), (2, 2.0)),
        "rows": ((1, 4.0), (2, 4.0)),
        "ratio_mean": ((1, 1.0), (2, 1.0000001)),
        "lost": ((1, None), (2, None)),
        "epoch": ((1, 0.1), (2, 0.2)),
    }
    _, plot = training(material(run("a", metrics=metrics)))
    assert [axes.get_ylabel() for axes in plot.figure.axes] == ["grad_norm"]


def test_of_many_metrics_those_that_are_looked_at_first_have_a_panel_and_the_rest_is_counted(run, material):
    metrics = {f"m{n:02}": ((1, 0.0), (2, 1.0)) for n in range(14)} | {"reward": ((1, 0.0), (2, 1.0))}
    (plot,) = training(material(run("a", metrics=metrics)))
    titles = [axes.get_title(loc="left") for axes in plot.figure.axes]
    assert titles == ["reward", *(f"m{n:02}" for n in range(11))]
    assert plot.figure._supxlabel.get_text() == "3 more in metrics.jsonl"


def test_a_loss_that_never_was_finite_is_drawn_as_nothing(run, material):
    (plot,) = training(material(run("a", metrics={"loss": ((1, None), (2, None))})))
    assert np.isnan(plot.figure.axes[0].lines[0].get_ydata()).all()


def test_runs_without_metrics_have_no_curves(run, material):
    assert list(training(material(run("a")))) == []


def test_stages_of_an_arm_are_lines_of_their_own(run, material):
    runs = [
        run("a", stage=".0-sft", metrics={"loss": ((1, 2.0),)}),
        run("a", stage=".1-rl", metrics={"loss": ((1, 1.0),)}),
    ]
    (plot,) = training(material(*runs))
    assert [line.get_ydata().tolist() for line in plot.figure.axes[0].lines] == [[2.0], [1.0]]


def test_scores_have_their_intervals_at_the_steps_of_their_weights(run, material, scoring):
    scorings = [
        scoring(0, {"t": 0.0}, low=0.0, high=0.3),
        scoring(10, {"t": 1.0}, low=0.6, high=1.0),
    ]
    (plot,) = scores(material(run("a", evaluations=scorings)))
    assert plot.name == "scores-val"
    (axes,) = plot.figure.axes
    (container,) = axes.containers
    points, _caps, (bars,) = container.lines
    assert points.get_xdata().tolist() == [0, 10]
    assert points.get_ydata().tolist() == [0.0, 1.0]
    assert [[y for _, y in segment] for segment in bars.get_segments()] == [[0.0, 0.3], [0.6, 1.0]]


def test_intervals_of_twenty_arms_would_hide_each_other_and_are_left_out(run, material, scoring):
    runs = [run(f"arm-{n}", evaluations=[scoring(0, {"t": 0.0}, low=0.0, high=0.5)]) for n in range(20)]
    (plot,) = scores(material(*runs))
    assert len(plot.figure.axes[0].lines) == 20
    assert not plot.figure.axes[0].containers
    assert "intervals" not in plot.figure._supxlabel.get_text()


@pytest.mark.parametrize("arms", [1, 3, 20, 60])
def test_what_is_drawn_keeps_its_room_beside_however_long_a_legend(run, material, arms):
    runs = [run(f"{n:03}-{'long' * 9}", metrics={"loss": ((1, 1.0), (2, 2.0))}) for n in range(arms)]
    (plot,) = training(material(*runs))
    plot.figure.draw_without_rendering()
    width, height = plot.figure.get_size_inches()
    box = plot.figure.axes[0].get_position()
    assert 4.5 <= box.width * width <= 8.0
    assert box.height * height >= 2.5


def test_a_scoring_that_failed_is_no_point(run, material, scoring):
    scorings = [scoring(0, {"t": 0.0}), scoring(10, {}, status="failed")]
    (plot,) = scores(material(run("a", evaluations=scorings)))
    points = plot.figure.axes[0].containers[0].lines[0]
    assert points.get_xdata().tolist() == [0]


def test_an_api_model_is_a_line_across(run, material, scoring):
    scorings = [scoring(0, {"t": 0.0}), scoring(0, {"t": 0.7}, model="big")]
    (plot,) = scores(material(run("a", evaluations=scorings)))
    assert plot.figure.axes[0].lines[-1].get_ydata() == [0.7, 0.7]
    (legend,) = plot.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "big"]


def test_nothing_scored_is_no_plot(run, material):
    assert list(scores(material(run("a")))) == []


def test_a_ring_marks_the_selected_checkpoint(run, material, scoring):
    scorings = [scoring(step, {"t": value}) for step, value in ((0, 0.0), (5, 1.0), (10, 0.2))]
    made = run("a", evaluations=[*scorings, scoring(5, {"t": 1.0}, benchmark="val@selected")])
    chosen = SelectedCheckpoint(
        step=5, checkpoint="checkpoints/5", by="val.mean_reward", score=1.0, last_step=10
    )
    ended = attrs.evolve(made.result, run=RunResult(status="completed", steps=10, selected_checkpoint=chosen))
    (plot,) = scores(material(attrs.evolve(made, result=ended)))
    (axes,) = plot.figure.axes
    rings = [line for line in axes.lines if line.get_fillstyle() == "none"]
    assert [(ring.get_xdata()[0], ring.get_ydata()[0]) for ring in rings] == [(5, 1.0)]
