"""What holds for every transform: input untouched, repeatable, empty in and empty out, mappings, other columns kept."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys import Registry, use_registry
from evsys.errors import ConfigError
from evsys_runtime.data.scope import DataScope, use_scope

REGISTRY = Registry()

# Parameters with which each transform takes any row that has the columns below.
CASES = [
    ("identity", {}),
    ("rename", {"columns": {"question": "asked"}}),
    ("template", {"template": "Q: {question}", "column": "text"}),
    ("jsonl_to_chat", {"user_column": "question", "assistant_column": "answer"}),
    ("jsonl_to_tasks", {"verifier_params": {"case": {"fold": True}}}),
    ("map", {"set": {"flag": {"nested": [1]}}, "lower": ["question"], "rename": {"answer": "said"}}),
    ("map", {"cast": {"n": "float"}, "drop": ["answer"]}),
    ("filter", {"conditions": [{"column": "n", "op": ">=", "value": 3}]}),
    ("filter", {"match": "any", "min_length": {"question": 4}, "max_length": {"answer": 2}}),
    ("dedupe", {"key": "answer"}),
    ("dedupe", {}),
    ("split", {"parts": {"a": 0.5, "b": 0.5}, "keep": "a"}),
    ("split", {"parts": {"a": 0.3, "b": 0.7}, "keep": "b", "method": "ratio"}),
    ("shuffle", {"seed": 3}),
    ("sample", {"n": 3, "seed": 1}),
    ("sample", {"fraction": 0.5, "seed": 1}),
    ("mix", {"sources": [{"path": "more.jsonl", "ratio": 0.5}], "seed": 2}),
]
each = pytest.mark.parametrize(
    ("kind", "params"), CASES, ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(CASES)]
)

TEXT = st.text(min_size=1, max_size=6).filter(lambda text: not text.isspace() and max(text) < "\ud800")
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "question": TEXT,
            "answer": TEXT,
            "n": st.integers(0, 9),
            "other": st.lists(st.integers(), max_size=2),
        }
    ),
    max_size=8,
)


@pytest.fixture(scope="module", autouse=True)
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    (root / "more.jsonl").write_text(
        "\n".join(
            json.dumps({"question": f"more {n}", "answer": "x", "n": n, "other": []}) for n in range(3)
        ),
        encoding="utf-8",
    )
    with use_scope(DataScope(project_root=root)), use_registry(REGISTRY):
        yield root


@each
@settings(max_examples=25)
@given(rows=ROWS)
def test_input_is_untouched_and_the_same_input_gives_the_same_output(kind, params, rows):
    transform = REGISTRY.build("transform", kind, params)
    before = copy.deepcopy(rows)
    first = list(transform(rows))
    assert rows == before
    assert list(transform(rows)) == first
    assert list(REGISTRY.build("transform", kind, params)(rows)) == first


@each
@settings(max_examples=25)
@given(rows=ROWS)
def test_rows_share_nothing_that_a_later_transform_could_change(kind, params, rows):
    transform = REGISTRY.build("transform", kind, params)
    expected = copy.deepcopy(list(transform(copy.deepcopy(rows))))
    spoilt = list(transform(copy.deepcopy(rows)))
    for row in spoilt:
        for value in list(row.values()):
            if isinstance(value, dict):
                value.clear()
    assert list(transform(copy.deepcopy(rows))) == expected


@each
def test_nothing_in_gives_nothing_out(kind, params):
    assert list(REGISTRY.build("transform", kind, params)([])) == []


@each
@settings(max_examples=25)
@given(rows=ROWS)
def test_mappings_come_out_and_other_columns_are_kept(kind, params, rows):
    for row in REGISTRY.build("transform", kind, params)(rows):
        assert isinstance(row, dict)
        assert "other" in row
        assert "n" in row


@each
@settings(max_examples=25)
@given(rows=ROWS)
def test_every_row_that_is_left_out_has_a_reason(kind, params, rows):
    if kind == "mix":
        return
    transform = REGISTRY.build("transform", kind, params)
    out = sum(1 for _ in transform(rows))
    assert out + sum(getattr(transform, "dropped", {}).values()) == len(rows)


@each
def test_a_row_is_asked_for_only_when_it_is_needed(kind, params):
    """Transforms that say they are streaming hand on what they can before they ask for more."""
    transform = REGISTRY.build("transform", kind, params)
    if not getattr(transform, "streaming", False):
        return
    asked = []

    def source():
        for n in range(1000):
            asked.append(n)
            yield {"question": f"q{n}", "answer": f"a{n}", "n": 9, "other": []}

    next(iter(transform(source())))
    assert len(asked) < 60


@each
def test_an_unknown_parameter_is_refused(kind, params):
    with pytest.raises(ConfigError, match="unknown key 'colour'"):
        REGISTRY.build("transform", kind, {**params, "colour": "red"})


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in CASES}))
def test_every_parameter_is_explained(kind):
    for name, schema in REGISTRY.schema("transform", kind)["properties"].items():
        assert schema.get("description"), f"{kind}.{name}"
