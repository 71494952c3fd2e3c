import pytest

from evsys_plots.money import cost, price_of

pytestmark = pytest.mark.usefixtures("drawing")


@pytest.fixture
def scored(scoring):
    return [scoring(0, {"t": 0.0}), scoring(9, {"t": 1.0}, low=0.5, high=1.0)]


def test_an_arm_stands_at_the_mean_cost_of_its_repeats_and_its_score(run, material, compared, scored):
    runs = [run("a", n, evaluations=scored, usd=n + 1.0) for n in (0, 1)]
    (plot,) = cost(material(*runs, comparisons=[compared("a", 1.0, before=0.25)]))
    (axes,) = plot.figure.axes
    (container,) = axes.containers
    assert (container.lines[0].get_xdata().tolist(), container.lines[0].get_ydata().tolist()) == (
        [1.5],
        [1.0],
    )
    across, up = (bars.get_segments()[0].tolist() for bars in container.lines[2])
    assert ([x for x, _ in across], [y for _, y in up]) == ([1.0, 2.0], [0.5, 1.0])
    assert axes.get_xlabel() == "US dollars a run, scoring included"
    assert [line.get_ydata() for line in axes.lines if list(line.get_ydata()) == [0.25, 0.25]]


def test_of_forty_arms_the_best_stand_out_in_front_of_the_others(run, material, compared, scored):
    runs = [run(f"a{n}", evaluations=scored, usd=n + 1.0) for n in range(40)]
    (plot,) = cost(material(*runs, comparisons=[compared(f"a{n}", n / 40) for n in range(40)]))
    (legend,) = plot.figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == [*(f"a{n}" for n in range(33, 40)), "33 other arms", "baseline: base_model"]
    assert len(plot.figure.axes[0].containers) == 7


def test_where_a_price_is_unknown_the_time_is_shown(run, material, scored):
    runs = [run("a", evaluations=scored, usd=1.0, seconds=5.0), run("b", evaluations=scored, seconds=7.0)]
    (plot,) = cost(material(*runs))
    points = [container.lines[0].get_xdata()[0] for container in plot.figure.axes[0].containers]
    assert points == [5.0, 7.0]
    assert plot.figure.axes[0].get_xlabel().startswith("seconds")


def test_what_costs_nothing_is_told_by_its_time(run):
    results = [run("a", usd=0.0, seconds=3.0).result]
    assert price_of(results).unit == "seconds"


def test_stages_of_a_repeat_cost_together(run, material, scored):
    runs = [
        run("a", stage=".0-one", evaluations=scored, seconds=2.0),
        run("a", stage=".1-two", evaluations=scored, seconds=3.0),
    ]
    (plot,) = cost(material(*runs))
    assert plot.figure.axes[0].containers[0].lines[0].get_xdata()[0] == 5.0


def test_arms_without_a_score_are_left_out(run, material, scored):
    assert list(cost(material(run("a"), run("b", status="failed", evaluations=scored)))) == []
