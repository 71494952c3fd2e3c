"""The figures of the repository's order count what they say."""

import ast
import textwrap

import pytest
from figures import _words, body_lines, circles, complexity, figures, import_graph, is_participle_name, main
from house import distributions


def function(source: str) -> ast.FunctionDef:
    return ast.parse(textwrap.dedent(source)).body[0]


def test_a_circle_is_found_with_all_its_members():
    edges = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": [], "f": ["f"]}
    assert circles(edges) == [["a", "b", "c"]]


def test_two_circles_are_two_groups():
    assert circles({"a": ["b"], "b": ["a", "c"], "c": ["d"], "d": ["c"]}) == [["a", "b"], ["c", "d"]]


def test_a_docstring_makes_no_function_longer():
    assert body_lines(function('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n')) == 2


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("def f(): return 1", 1),
        ("def f(x): return 1 if x else 2", 2),
        ("def f(x): return x and x.y and x.y.z", 3),
        ("def f(x): return [y for y in x if y]", 3),
        ("def f(x):\n    for y in x:\n        if y: return y\n    else: return x", 3),
        ("def f(x):\n    def g():\n        if x: return 1\n    return g", 1),
        ("def f(x):\n    match x:\n        case 1: return 2\n        case _: return 3", 2),
    ],
)
def test_complexity_counts_decisions(source: str, number: int):
    assert complexity(function(source)) == number


@pytest.mark.parametrize(
    "name", ["told", "_said", "asked", "taken_up", "so_far", "made_again", "_used_by", "of", "why"]
)
def test_a_name_that_says_when_something_happened_is_found(name: str):
    assert is_participle_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "format_error",
            "seed",
            "set_up",
            "kept_rows",
            "is_known",
            "on_step_end",
            "embed",
            "read",
            "from_rows",
        ),
        *("as_json", "in_flight", "padded"),
    ],
)
def test_a_noun_a_verb_or_a_predicate_is_passed(name: str):
    assert not is_participle_name(name)


def test_a_module_imports_the_module_and_not_the_package_that_it_is_in():
    edges = import_graph(distributions())
    assert "evsys_stats.recipe" in edges
    assert all(
        "evsys_stats" not in targets for name, targets in edges.items() if name.startswith("evsys_stats.")
    )


def test_a_figure_is_printed_with_its_goal(capsys):
    assert main(["folders", "upwards", "lines-runtime"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["folders", "upwards", "lines-runtime"]
    assert lines[0][-4:] == lines[1][-4:] == ["0", "at", "most", "0"]
    assert int(lines[2][-1].replace(",", "")) > 10_000


def test_the_places_of_a_figure_are_printed(capsys):
    main(["circles", "--list"])
    title, *places = capsys.readouterr().out.splitlines()
    assert int(title.split()[-4]) == len(places)
    assert all(" <-> " in place for place in places)


def test_an_unknown_figure_is_an_error(capsys):
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "unknown figures: nothing" in capsys.readouterr().err


def test_words_are_counted_without_code_comments_and_the_marks_of_tables():
    assert _words("# A page\n\n<!-- no -->\n```python\nx = 1\n```\n\n| two | words |\n| --- | --- |\n") == 4


@pytest.mark.parametrize(
    "name", ["folders", "upwards", "circles", "members", "is-no", "participles", "dashboard"]
)
def test_a_figure_that_has_met_its_goal_keeps_it(name: str):
    figure = figures()[name]
    counted = figure.count()
    assert len(counted) <= figure.at_most, counted
