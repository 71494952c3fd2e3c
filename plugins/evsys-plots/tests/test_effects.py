import numpy as np
import pytest
from matplotlib.colors import to_hex

from evsys_plots.effects import MOST_PANELS, differences, effects, task_differences

pytestmark = pytest.mark.usefixtures("drawing")


def drawn_at(axes):
    """The points of each arm, as (effect, place)."""
    points = [container.lines[0] for container in axes.containers]
    return [(float(p.get_xdata()[0]), float(p.get_ydata()[0])) for p in points]


def test_arms_stand_at_their_effects_with_their_intervals_beside_the_minimum_effect(material, compared):
    comparisons = [compared("a", 0.4, 0.3, 0.5, outcome="win"), compared("b", -0.1, -0.3, 0.1)]
    (plot,) = effects(material(comparisons=comparisons, minimum_effect=0.2))
    (axes,) = plot.figure.axes
    assert drawn_at(axes) == [(0.4, 0.0), (-0.1, 1.0)]
    bars = [container.lines[2][0].get_segments()[0] for container in axes.containers]
    assert [[round(x, 9) for x, _ in bar] for bar in bars] == [[0.3, 0.5], [-0.3, 0.1]]
    (band,) = axes.patches
    assert (band.get_x(), band.get_width()) == (-0.2, 0.4)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_an_outcome_is_told_by_colour_and_by_shape(material, compared):
    outcomes = ["win", "loss", "tie", "inconclusive"]
    comparisons = [compared(name, 0.1, 0.0, 0.2, outcome=name) for name in outcomes]
    (plot,) = effects(material(comparisons=comparisons))
    points = [container.lines[0] for container in plot.figure.axes[0].containers]
    assert len({to_hex(point.get_color()) for point in points}) == 4
    assert len({point.get_marker() for point in points}) == 4


def test_an_arm_without_a_score_keeps_its_place_and_says_so(material, compared):
    (plot,) = effects(material(comparisons=[compared("a", None), compared("b", 0.1, 0.0, 0.2)]))
    (axes,) = plot.figure.axes
    assert drawn_at(axes) == [(0.1, 1.0)]
    assert [text.get_text().strip() for text in axes.texts] == ["unscored"]


def test_models_and_recipes_are_told_apart(material, compared):
    recipe = compared("a", 0.1, -0.2, 0.4, claim="recipe")
    checkpoint = compared("a", 0.1, 0.05, 0.15, claim="checkpoint", outcome="win")
    (plot,) = effects(material(comparisons=[recipe], checkpoints=[checkpoint]))
    assert len(plot.figure.axes[0].containers) == 2


def test_twenty_arms_each_have_a_row(material, compared):
    names = [f"arm-{n}" for n in range(20)]
    (plot,) = effects(
        material(comparisons=[compared(name, 0.01 * n, -0.1, 0.3) for n, name in enumerate(names)])
    )
    (axes,) = plot.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == names
    assert plot.figure.get_figheight() > 7


def test_nothing_compared_is_no_plot(material):
    assert list(effects(material(comparisons=[]))) == []


@pytest.mark.parametrize("name", ["$x$ $", "_hidden", "a_b^c"])
def test_a_name_is_drawn_as_it_is(material, compared, name):
    (plot,) = effects(material(comparisons=[compared(name, 0.1, 0.0, 0.2)]))
    plot.figure.canvas.draw()
    (label,) = plot.figure.axes[0].get_yticklabels()
    assert label.get_text().replace("\\$", "$").strip("\N{ZERO WIDTH SPACE}") == name


def test_differences_are_those_of_common_tasks_sorted(run, material, scoring):
    before = scoring(0, {"t1": 0.0, "t2": 1.0, "t3": 0.5, "only-before": 1.0})
    after = scoring(9, {"t1": 1.0, "t2": 0.5, "t3": 0.5, "only-after": 1.0})
    found = task_differences(material(run("a", evaluations=[before, after])))
    assert {arm: values.tolist() for arm, values in found.items()} == {"a": [-0.5, 0.0, 1.0]}
    (plot,) = differences(material(run("a", evaluations=[before, after])))
    (axes,) = plot.figure.axes
    assert [bar.get_height() for bar in axes.patches] == [-0.5, 0.0, 1.0]
    assert "1 up, 1 down, 1 equal; mean +0.167" in axes.get_title(loc="left")


def test_a_baseline_that_is_an_arm_has_no_panel_and_is_what_others_differ_from(run, material, scoring):
    old = run("old", evaluations=[scoring(0, {"t": 0.0}), scoring(9, {"t": 0.25})])
    new = run("new", evaluations=[scoring(0, {"t": 0.0}), scoring(9, {"t": 1.0})])
    found = task_differences(material(old, new, baseline="old"))
    assert {arm: values.tolist() for arm, values in found.items()} == {"new": [0.75]}


def test_repeats_are_averaged_task_by_task(run, material, scoring):
    runs = [run("a", n, evaluations=[scoring(0, {"t": 0.0}), scoring(9, {"t": n + 0.0})]) for n in (0, 1)]
    assert task_differences(material(*runs))["a"].tolist() == [0.5]


def test_a_run_that_did_not_complete_has_no_differences(run, material, scoring):
    scorings = [scoring(0, {"t": 0.0}), scoring(9, {"t": 1.0})]
    assert list(differences(material(run("a", evaluations=scorings, status="failed")))) == []


def test_of_twenty_arms_those_that_differ_most_are_shown_and_the_rest_is_told(run, material, scoring):
    runs = [
        run(f"arm-{n:02}", evaluations=[scoring(0, {"t": 0.0}), scoring(9, {"t": n / 20})]) for n in range(20)
    ]
    (plot,) = differences(material(*runs))
    titles = [axes.get_title(loc="left").splitlines()[0] for axes in plot.figure.axes]
    assert titles == [f"arm-{n:02}" for n in range(20 - MOST_PANELS, 20)]
    assert "9 of 20 arms" in plot.figure._supxlabel.get_text()


def test_of_many_arms_those_that_differ_on_no_task_have_no_panel(run, material, scoring):
    runs = [
        run(f"arm-{n:02}", evaluations=[scoring(0, {"t": 0.0}), scoring(9, {"t": float(n < 4)})])
        for n in range(20)
    ]
    (plot,) = differences(material(*runs))
    titles = [axes.get_title(loc="left").splitlines()[0] for axes in plot.figure.axes]
    assert titles == [f"arm-{n:02}" for n in range(4)]
    assert "the 4 of 20 arms that differ most" in plot.figure._supxlabel.get_text()
    labelled = [(bool(axes.get_ylabel()), bool(axes.get_xlabel())) for axes in plot.figure.axes]
    assert labelled == [(True, False), (False, True), (False, True), (True, True)]


def test_equal_scores_are_drawn_flat(run, material, scoring):
    scorings = [scoring(0, {"t1": 1.0, "t2": 1.0}), scoring(9, {"t1": 1.0, "t2": 1.0})]
    (plot,) = differences(material(run("a", evaluations=scorings)))
    assert [bar.get_height() for bar in plot.figure.axes[0].patches] == [0.0, 0.0]
    assert np.isfinite(plot.figure.axes[0].get_ylim()).all()


def test_an_arm_with_stages_is_told_by_what_it_started_from_and_its_last_stage(run, material, scoring):
    runs = [
        run("a", stage=".1-one", evaluations=[scoring(0, {"t": 0.0}), scoring(9, {"t": 1.0})]),
        run("a", stage=".2-two", evaluations=[scoring(9, {"t": 0.25})]),
    ]
    assert task_differences(material(*runs, last=["a-s0.2-two"]))["a"].tolist() == [0.25]
    assert task_differences(material(runs[0], last=["a-s0.2-two"])) == {}


@pytest.mark.parametrize("purpose", ["control", "confirm"])
def test_runs_that_are_not_compared_have_no_part_in_the_differences(run, material, scoring, purpose):
    runs = [
        run("a", evaluations=[scoring(0, {"t": 0.0}), scoring(9, {"t": 1.0})]),
        run("a", 1, purpose=purpose, evaluations=[scoring(0, {"t": 0.0}), scoring(9, {"t": 0.0})]),
    ]
    assert task_differences(material(*runs))["a"].tolist() == [1.0]
