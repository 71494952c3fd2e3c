import pytest

from evsys_plots.forgetting import forgetting

pytestmark = pytest.mark.usefixtures("drawing")

MATRIX = {"benchmarks": ["one", "two"], "stages": ["s1", "s2"], "values": [[0.9, 0.4], [None, 0.8]]}


def test_each_benchmark_has_a_row_and_each_stage_a_column(material):
    (plot,) = forgetting(material(forgetting=MATRIX))
    axes = plot.figure.axes[0]
    assert axes.images[0].get_array().filled(-1).tolist() == [[0.9, 0.4], [-1, 0.8]]
    assert [text.get_text() for text in axes.texts] == ["0.90", "0.40", "not scored", "0.80"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["s1", "s2"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["one", "two"]


def test_the_weights_that_it_started_from_are_the_first_column_where_they_were_scored(material):
    matrix = {**MATRIX, "values": [[0.0, 0.9, 0.4], [0.1, 0.2, 0.8]]}
    (plot,) = forgetting(material(forgetting=matrix))
    assert [label.get_text() for label in plot.figure.axes[0].get_xticklabels()] == ["start", "s1", "s2"]


def test_intervals_are_written_below_the_scores(material):
    matrix = {**MATRIX, "low": [[0.8, 0.3], [None, 0.7]], "high": [[1.0, 0.5], [None, 0.9]]}
    (plot,) = forgetting(material(forgetting=matrix))
    assert plot.figure.axes[0].texts[0].get_text() == "0.90\n[0.80, 1.00]"


def test_a_score_that_isnt_of_all_seeds_says_of_how_many(material):
    matrix = {**MATRIX, "seeds": 3, "scored": [[3, 1], [0, 3]]}
    (plot,) = forgetting(material(forgetting=matrix))
    texts = [text.get_text() for text in plot.figure.axes[0].texts]
    assert texts == ["0.90", "0.40\n1 of 3 seeds", "not scored", "0.80"]


@pytest.mark.parametrize("nothing", [{}, {"forgetting": None}, {"forgetting": []}])
def test_without_stages_there_is_no_matrix(material, nothing):
    assert list(forgetting(material(**nothing))) == []


def test_a_matrix_of_which_nothing_was_scored_is_drawn(material):
    matrix = {**MATRIX, "values": [[None, None], [None, None]]}
    (plot,) = forgetting(material(forgetting=matrix))
    plot.figure.canvas.draw()
    assert {text.get_text() for text in plot.figure.axes[0].texts} == {"not scored"}


def test_each_arm_has_a_matrix_of_its_own_in_the_same_colours(material):
    other = {**MATRIX, "arm": "b", "values": [[0.1, 0.1], [0.1, 0.1]]}
    (plot,) = forgetting(material(forgetting=[{**MATRIX, "arm": "a"}, other]))
    matrices = [axes for axes in plot.figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in matrices] == ["a", "b"]
    assert {axes.images[0].get_clim() for axes in matrices} == {(0.0, 1.0)}


def test_of_twenty_arms_the_best_have_matrices_and_the_rest_is_counted(run, material, compared):
    names = [f"a{n:02}" for n in range(20)]
    told = material(
        *map(run, names),
        comparisons=[compared(name, n / 20) for n, name in enumerate(names)],
        forgetting=[{**MATRIX, "arm": name} for name in names],
    )
    (plot,) = forgetting(told)
    titles = [title for axes in plot.figure.axes if (title := axes.get_title(loc="left"))]
    assert titles == names[8:]
    assert plot.figure._supxlabel.get_text().endswith("12 of 20 arms")


@pytest.mark.parametrize(("value", "ends"), [(3.0, (3.0, 4.0)), (-1.0, (-1.0, 0.0))])
def test_scores_beyond_0_and_1_have_colours_of_their_own(material, value, ends):
    (plot,) = forgetting(material(forgetting={**MATRIX, "values": [[value, value], [value, value]]}))
    assert plot.figure.axes[0].images[0].get_clim() == ends
