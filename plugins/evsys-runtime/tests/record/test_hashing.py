import functools
import importlib
import math
import subprocess
import sys
import textwrap
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys.errors import DataError, StoreError
from evsys_runtime.record.hashing import canonical_json, digest, file_digest, source_hash

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


# --- source ------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Writes modules of a package `proj` and imports one of them afresh."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    folder = tmp_path / "proj"
    folder.mkdir()
    (folder / "__init__.py").write_text("", encoding="utf-8")

    def load(name="verifiers", **sources):
        for module in [module for module in sys.modules if module.partition(".")[0] == "proj"]:
            del sys.modules[module]
        for module, source in sources.items():
            (folder / f"{module}.py").write_text(textwrap.dedent(source), encoding="utf-8")
        importlib.invalidate_caches()
        return importlib.import_module(f"proj.{name}")

    yield load
    for module in [module for module in sys.modules if module.partition(".")[0] == "proj"]:
        del sys.modules[module]


VERIFIERS = """
    import re
    from proj.text import clean
    from .text import fold as lower

    WORD = re.compile("[a-z]+")
    unrelated = 1
    seen = {}

    def same(a, b):
        return clean(a) == clean(b)

    def verify(output, expected, params):
        seen[output] = True
        return float(same(output, expected) and WORD.match(lower(output)) is not None)

    class Verifier:
        def __call__(self, output, expected, params):
            return verify(output, expected, params)
"""
TEXT = """
    def clean(text):
        return text.strip()

    def fold(text):
        return text.lower()

    def unused(text):
        return text
"""


def changed(load, *, module, old, new, obj="verify"):
    sources = {"verifiers": VERIFIERS, "text": TEXT}
    before = source_hash(getattr(load(**sources), obj))
    again = source_hash(getattr(load(**sources), obj))
    assert before == again
    sources[module] = sources[module].replace(old, new)
    assert sources[module] != {"verifiers": VERIFIERS, "text": TEXT}[module]
    return source_hash(getattr(load(**sources), obj)) != before


@pytest.mark.parametrize("obj", ["verify", "Verifier"])
@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("verifiers", "return float(same", "return 1 - float(same"),
        ("verifiers", "clean(a) == clean(b)", "clean(a) != clean(b)"),
        ("verifiers", "[a-z]+", "[a-z0-9]+"),
        ("text", "text.strip()", "text.rstrip()"),
        ("text", "text.lower()", "text.casefold()"),
    ],
)
def test_what_a_function_does_changes_its_hash(project, obj, module, old, new):
    assert changed(project, module=module, old=old, new=new, obj=obj)


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("verifiers", "unrelated = 1", "unrelated = 2"),
        ("text", "return text\n", "return text * 2\n"),
        ("verifiers", "import re\n", "import re\n\n\n"),
    ],
)
def test_what_it_does_not_reach_leaves_its_hash_alone(project, module, old, new):
    assert not changed(project, module=module, old=old, new=new)


@pytest.mark.parametrize(
    ("importing", "used"),
    [
        ("from proj import text", "text.clean"),
        ("from . import text as t", "t.clean"),
        ("import proj.text", "proj.text.clean"),
        ("import proj.text as t", "t.clean"),
        ("from proj.text import *", "clean"),
    ],
)
def test_helpers_count_however_they_were_imported(project, importing, used):
    verifiers = f"{importing}\n\ndef verify(output, expected, params):\n    return {used}(output)\n"
    before = source_hash(project(verifiers=verifiers, text=TEXT).verify)
    assert source_hash(project(verifiers=verifiers, text=TEXT).verify) == before
    after = source_hash(project(verifiers=verifiers, text=TEXT.replace("strip()", "rstrip()")).verify)
    assert after != before


def test_using_a_function_leaves_its_hash_alone(project):
    module = project(verifiers=VERIFIERS, text=TEXT)
    before = source_hash(module.verify)
    module.verify("a", "a", {})
    assert module.seen
    assert source_hash(module.verify) == before


def test_a_class_its_instances_and_its_bound_methods(project):
    module = project(verifiers=VERIFIERS, text=TEXT)
    assert source_hash(module.Verifier) == source_hash(module.Verifier())
    assert source_hash(module.Verifier().__call__) != source_hash(module.verify)


def test_a_closures_values_count():
    def above(threshold):
        def verify(output, expected, params):
            return float(len(output) > threshold)

        return verify

    assert source_hash(above(1)) == source_hash(above(1))
    assert source_hash(above(1)) != source_hash(above(2))


def test_what_a_partial_holds_counts():
    def verify(output, expected, params, strict=False):
        return float(output == expected)

    strict = functools.partial(verify, strict=True)
    assert source_hash(strict) == source_hash(functools.partial(verify, strict=True))
    assert len({source_hash(verify), source_hash(strict), source_hash(functools.partial(verify))}) == 3


def test_a_recursive_function_has_a_hash():
    def depth(tree):
        return 1 + max((depth(item) for item in tree), default=0)

    assert source_hash(depth).startswith("sha256:")


def test_decorated_functions_count_as_what_is_inside():
    def loud(function):
        @functools.wraps(function)
        def wrapper(*arguments):
            return function(*arguments)

        return wrapper

    @loud
    def first(output):
        return 1.0

    @loud
    def second(output):
        return 0.0

    assert source_hash(first) != source_hash(second)


def test_lambdas_on_one_line_are_told_apart():
    first, second = (lambda x: x + 1), (lambda x: x + 2)
    same = lambda x: x + 1  # noqa: E731
    assert source_hash(first) != source_hash(second)
    assert source_hash(first) == source_hash(same)


def test_a_lambdas_helpers_count(project):
    source = "def helper(x):\n    return x\n\ncheck = lambda x: helper(x)\n"
    before = source_hash(project(verifiers=source).check)
    assert source_hash(project(verifiers=source).check) == before
    assert source_hash(project(verifiers=source.replace("return x", "return -x")).check) != before


def test_code_without_a_file_counts_as_its_byte_code():
    def made(source):
        scope = {"__name__": "nowhere"}
        exec(source, scope)
        return scope

    one = made("def f(x):\n    return x in {'a', 'b'}\nclass C:\n    def g(self):\n        return 1\n")
    two = made("def f(x):\n    return x in {'a', 'c'}\nclass C:\n    def g(self):\n        return 2\n")
    assert source_hash(one["f"]) != source_hash(two["f"])
    assert source_hash(one["C"]) != source_hash(two["C"])


def test_compiled_code_counts_as_its_name_and_version():
    assert source_hash(len) == source_hash(len)
    assert source_hash(len) != source_hash(sum)
    assert source_hash(dict) != source_hash(list)


def test_a_hash_does_not_depend_on_the_process():
    script = (
        "from evsys_runtime.record.hashing import source_hash;"
        "print(source_hash(lambda x: x in {'a', 'b', 'c', 'd'}), source_hash(source_hash), source_hash(len))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
