import math
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys.errors import DataError, StoreError
from evsys_record.hashing import canonical_json, digest, file_digest

trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def reordered(tree):
    if isinstance(tree, dict):
        return {key: reordered(tree[key]) for key in reversed(list(tree))}
    return [reordered(item) for item in tree] if isinstance(tree, list) else tree


@given(trees)
@settings(deadline=None)
def test_the_order_of_keys_does_not_matter(tree):
    assert canonical_json(tree) == canonical_json(reordered(tree))


@given(trees, trees)
@settings(deadline=None)
def test_different_trees_have_different_texts(first, second):
    same = canonical_json(first) == canonical_json(second)
    # Python takes 1, 1.0 and True for equal; JSON tells them apart, as a config does.
    assert same == (repr(reordered_keys(first)) == repr(reordered_keys(second)))


def reordered_keys(tree):
    if isinstance(tree, dict):
        return {key: reordered_keys(tree[key]) for key in sorted(tree)}
    return [reordered_keys(item) for item in tree] if isinstance(tree, list) else tree


@given(trees)
@settings(deadline=None)
def test_canonical_json_is_json(tree):
    import json

    assert json.loads(canonical_json(tree)) == tree


def test_the_text_is_pinned():
    assert canonical_json({"b": [1, 2.5, None, True], "a": "é\u2028"}) == (
        '{"a":"é\u2028","b":[1,2.5,null,true]}'.encode()
    )
    assert digest({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_objects_count_as_their_fields():
    @attrs.frozen
    class Config:
        rank: int
        path: Path

    assert canonical_json(Config(8, Path("a"))) == b'{"path":"a","rank":8}'
    assert canonical_json((1, {"x"})) == b'[1,["x"]]'


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {1: 2, "1": 3}, b"x"])
def test_what_has_no_single_text_is_refused(value):
    with pytest.raises(DataError, match="no canonical JSON"):
        digest({"value": value})


def test_a_lone_surrogate_has_a_text_of_its_own():
    assert canonical_json("\ud800") == b'"\\ud800"'
    assert canonical_json("\\ud800") != canonical_json("\ud800")


def test_a_files_hash_is_that_of_its_bytes(tmp_path):
    import hashlib

    path = tmp_path / "rows"
    path.write_bytes(b"abc" * 1_000_000)
    assert file_digest(path) == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    with pytest.raises(StoreError, match="can't read"):
        file_digest(tmp_path / "none")
