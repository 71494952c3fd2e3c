"""Hashes of functions and classes by what they do."""

import functools
import importlib
import subprocess
import sys
import textwrap

import pytest

from evsys_runtime.data.sources import source_hash


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


STATE = """
    TABLE = {"k": 1}
    RULES = []

    class Settings:
        level = 1

    def rule(weight):
        def add(function):
            RULES.append((weight, function))
            return function
        return add

    def verify(output, expected, params):
        return sum(weight for weight, _ in RULES) + TABLE["k"] + Settings.level
"""


@pytest.mark.parametrize(
    "statement",
    [
        "TABLE['k'] = {}",
        "TABLE.update(k={})",
        "TABLE |= {{'k': {}}}",
        "RULES.append(({}, None))",
        "RULES += [({}, None)]",
        "RULES[:] = [({}, None)]",
        "Settings.level = {}",
        "setattr(Settings, 'level', {})",
        "for _ in range({}): RULES.append((1, None))",
        "@rule({})\ndef short(output):\n    return True",
        "short = rule({})(len)",
        "del RULES[:{}]",
    ],
)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_statements_that_change_a_modules_state_count(tmp_path, monkeypatch, statement, elsewhere):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "src").mkdir()

    def hashed(value):
        for module in [name for name in sys.modules if name.partition(".")[0] == "src"]:
            del sys.modules[module]
        text = statement.format(value)
        own, other = (
            ("", f"from src.state import RULES, TABLE, Settings, rule\n{text}\n") if elsewhere else (text, "")
        )
        (tmp_path / "src/__init__.py").write_text("from src import more, state\n", encoding="utf-8")
        (tmp_path / "src/state.py").write_text(f"{textwrap.dedent(STATE)}\n{own}\n", encoding="utf-8")
        (tmp_path / "src/more.py").write_text(other, encoding="utf-8")
        importlib.invalidate_caches()
        return source_hash(importlib.import_module("src.state").verify)

    assert hashed(1) == hashed(1)
    assert hashed(1) != hashed(2)


def test_other_plugins_of_a_module_do_not_count(project):
    source = "from evsys import register_verifier\n\n@register_verifier('{}')\ndef other(o, e, p):\n    return {}\n\ndef verify(o, e, p):\n    return 1.0\n"
    before = source_hash(project(verifiers=source.format("a", 1)).verify)
    assert source_hash(project(verifiers=source.format("a", 2)).verify) == before


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


@pytest.mark.parametrize(
    ("importing", "used"),
    [
        ("from proj.text import clean", "clean"),
        ("from .text import clean", "clean"),
        ("from proj import text", "text.clean"),
        ("import proj.text", "proj.text.clean"),
        ("import proj.text as t", "t.clean"),
        ("from proj.between import clean", "clean"),
    ],
)
@pytest.mark.parametrize("called", [False, True])
def test_helpers_count_that_are_imported_where_they_are_used(project, importing, used, called):
    verifiers = f"def verify(output, expected, params):\n    {importing}\n    return {used}(output)\n"
    between = "def clean(text):\n    from proj.text import clean as inner\n    return inner(text)\n"

    def hashed(text):
        verify = project(verifiers=verifiers, text=text, between=between).verify
        if called:
            verify("a", None, {})
        return source_hash(verify)

    assert ("proj.text" in sys.modules) is False
    before = hashed(TEXT)
    assert hashed(TEXT) == before
    assert hashed(TEXT.replace("strip()", "rstrip()")) != before


def test_an_import_counts_before_it_was_executed_as_it_does_afterwards(project):
    verifiers = (
        "def verify(output, expected, params):\n    from proj.text import clean\n    return clean(output)\n"
    )
    verify = project(verifiers=verifiers, text=TEXT).verify
    before = source_hash(verify)
    assert "proj.text" not in sys.modules
    verify("a", None, {})
    assert "proj.text" in sys.modules
    assert source_hash(verify) == before


def test_an_import_that_may_fail_counts(project):
    verifiers = """
        try:
            from proj.text import clean
        except ImportError:
            raise

        def verify(output, expected, params):
            return clean(output)
    """
    before = source_hash(project(verifiers=verifiers, text=TEXT).verify)
    changed = TEXT.replace("strip()", "rstrip()")
    assert source_hash(project(verifiers=verifiers, text=changed).verify) != before


def test_what_is_imported_for_types_alone_does_not_count(project):
    verifiers = """
        from __future__ import annotations
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from proj.text import clean

        def verify(output: clean, expected, params):
            return 1.0
    """
    before = source_hash(project(verifiers=verifiers, text=TEXT).verify)
    changed = TEXT.replace("strip()", "rstrip()")
    assert source_hash(project(verifiers=verifiers, text=changed).verify) == before


def test_a_module_beside_the_package_counts_and_an_installed_one_does_not(project, tmp_path, monkeypatch):
    installed = tmp_path / "site-packages"
    installed.mkdir()
    monkeypatch.syspath_prepend(str(installed))
    importlib.invalidate_caches()

    def hashed(beside, elsewhere):
        (tmp_path / "beside_proj.py").write_text(f"LEVEL = {beside}\n", encoding="utf-8")
        (installed / "installed_proj.py").write_text(f"LEVEL = {elsewhere}\n", encoding="utf-8")
        importlib.invalidate_caches()
        for name in ("beside_proj", "installed_proj"):
            sys.modules.pop(name, None)
        source = "import beside_proj\nimport installed_proj\n\ndef verify(o, e, p):\n    return beside_proj.LEVEL + installed_proj.LEVEL\n"
        try:
            return source_hash(project(verifiers=source).verify)
        finally:
            for name in ("beside_proj", "installed_proj"):
                sys.modules.pop(name, None)

    assert hashed(1, 1) == hashed(1, 2)
    assert hashed(1, 1) != hashed(22, 1)


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
        "from evsys_runtime.data.sources import source_hash;"
        "print(source_hash(lambda x: x in {'a', 'b', 'c', 'd'}), source_hash(source_hash), source_hash(len))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
