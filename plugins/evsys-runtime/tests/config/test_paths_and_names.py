import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys._plugins.structuring import json_path
from evsys_runtime.config import paths, placeholders, trees
from evsys_runtime.config.names import MAX_LENGTH, slug

KEYS = st.one_of(st.text(max_size=8), st.integers(0, 99))


@given(st.lists(KEYS, min_size=1, max_size=5))
def test_a_path_is_split_into_what_it_was_joined_from_and_spelt_as_structuring_spells_it(keys: list):
    path = paths.join(keys)
    assert paths.parse(path) == tuple(keys)
    assert path == json_path("$", *keys)
    assert list(paths.ancestors(path)) == [paths.join(keys[:n]) for n in range(len(keys), -1, -1)]


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("run.seed", ("run", "seed")),
        ("$.run.seed", ("run", "seed")),
        ("data.transforms[0].params.n", ("data", "transforms", 0, "params", "n")),
        ("data.transforms.0", ("data", "transforms", "0")),
        ("params.max-length", ("params", "max-length")),
        ("axes['run.seed'][1]", ("axes", "run.seed", 1)),
        ('a["b\\"c"]', ("a", 'b"c')),
    ],
)
def test_users_write_paths_with_dots_and_brackets(text: str, segments: tuple):
    assert paths.parse(text) == segments


@pytest.mark.parametrize(
    "text", ["", "$", ".", "a..b", ".a", "a.", "a[", "a[x]", "a[-1]", "a]b", "a['b]", "a[0]b"]
)
def test_what_is_no_path_is_refused(text: str):
    with pytest.raises(ValueError, match="is not a path; write it like run.algorithm"):
        paths.parse(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("My First Run!", "my-first-run"),
        ("lr=1e-4", "lr-1e-4"),
        ("val/pass@1", "val-pass-1"),
        ("10:30:00", "10-30-00"),
        ("..", None),
        ("-x-", "x"),
        ("CON", "x-con"),
        ("nul.txt", "x-nul.txt"),
        ("Zoë", "zoe"),
        ("", None),
    ],
)
def test_names_become_portable(text: str, name: str | None):
    assert slug(text) == name if name else slug(text)


def test_names_in_other_scripts_stay_apart():
    assert slug("实验一") != slug("实验二")
    assert slug("模型 lr 1") != slug("模形 lr 1")


@given(st.text(max_size=200))
def test_every_name_is_a_folder_name_everywhere(text: str):
    name = slug(text)
    assert 1 <= len(name) <= MAX_LENGTH + 2
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
    assert name[0] not in ".-"
    assert name[-1] not in ".-"
    assert name.partition(".")[0] not in {"con", "nul", "aux", "prn", "com1", "lpt9"}
    assert slug(text) == name


TREES = st.recursive(
    st.integers() | st.text(max_size=3) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=3), TREES, max_size=3),
    st.lists(st.text(max_size=3), min_size=1, max_size=4),
)
def test_setting_a_value_changes_that_path_and_shares_the_rest(tree: dict, path: list[str]):
    before = repr(tree)
    try:
        amended = trees.put(tree, path, 42)
    except ValueError:
        amended = None
    assert repr(tree) == before
    if amended is not None:
        assert trees.get(amended, path) == 42
        for key in tree:
            assert key == path[0] or amended[key] is tree[key]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("name", "x"), "name is text, so 'x' can't be set in it"),
        (("items", "5"), "items is a list of 2; '5' is none of its positions"),
        (("items", "x"), "items is a list of 2; 'x' is none of its positions"),
        (("run", 0), "run is a mapping, so 0 can't be set in it"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path: tuple, message: str):
    with pytest.raises(ValueError, match=message):
        trees.put({"name": "a", "items": [1, 2], "run": {}}, path, 0)


def test_setting_makes_missing_mappings_and_reaches_into_lists():
    assert trees.put({}, ("a", "b"), 1) == {"a": {"b": 1}}
    assert trees.put({"a": None}, ("a", "b"), 1) == {"a": {"b": 1}}
    assert trees.put({"a": [{"x": 1}, 2]}, ("a", 0, "x"), 3) == {"a": [{"x": 3}, 2]}
    assert trees.put({"a": [1, 2]}, ("a", "1"), 3) == {"a": [1, 3]}


def test_numbers_that_are_equal_are_the_same_in_canonical_text():
    assert trees.canonical({"b": 1.0, "a": [2e5, 1e20]}) == trees.canonical({"a": [200000, 10**20], "b": 1})
    assert trees.canonical({"a": True}) != trees.canonical({"a": 1})
    assert trees.canonical({"a": "1.0"}) != trees.canonical({"a": "1"})
    assert trees.canonical(0.1) == "0.1"


def test_placeholders_are_found_resolved_and_escaped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVSYS_A", "one")
    monkeypatch.delenv("EVSYS_B", raising=False)
    tree = {"x": ["${EVSYS_A}-${EVSYS_B}", "$${EVSYS_A}", "${lower}", 1], "y": {"z": "${EVSYS_A}"}}
    assert list(placeholders.find(tree)) == [
        ("$.x[0]", "EVSYS_A"),
        ("$.x[0]", "EVSYS_B"),
        ("$.y.z", "EVSYS_A"),
    ]
    assert placeholders.mentions(tree)
    assert not placeholders.mentions({"x": [1, None, "$EVSYS_A"]})
    assert placeholders.resolve(tree) == {
        "x": ["one-${EVSYS_B}", "${EVSYS_A}", "${lower}", 1],
        "y": {"z": "one"},
    }
    assert placeholders.redact("got 'one'", tree) == "got '${EVSYS_A}'"
