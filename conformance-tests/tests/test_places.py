"""Where in a plugin's code something happened."""

import json
from traceback import FrameSummary

import pytest

from evsys_conformance import findings
from evsys_conformance.checks import verifier
from evsys_conformance.places import describe_error, place_in, place_in_package


def raised(function):
    try:
        function()
    except Exception as exc:
        return describe_error(exc)


def test_the_place_is_where_the_plugin_calls_a_library_that_fails():
    told = raised(lambda: json.loads("{"))
    assert told.startswith("JSONDecodeError: Expecting property name")
    assert "test_places.py:" in told
    assert told.endswith("in <lambda>)")


def test_an_exception_without_a_message_has_its_type():
    assert raised(lambda: next(iter(()))).startswith("StopIteration (")


def test_the_innermost_frame_of_the_plugins_package_counts(tmp_path):
    package = tmp_path / "judges"
    package.mkdir()
    for name in ("__init__.py", "inner.py"):
        (package / name).touch()
    frames = [
        FrameSummary("/elsewhere/conftest.py", 1, "runs"),
        FrameSummary(verifier.__file__, 2, "judge"),
        FrameSummary(str(package / "__init__.py"), 3, "__call__"),
        FrameSummary(str(package / "inner.py"), 4, "parsed"),
        FrameSummary(findings.__file__, 5, "shown"),
        FrameSummary(json.__file__, 6, "loads"),
        FrameSummary(str(tmp_path / "library.py"), 7, "other"),
    ]
    assert place_in(frames) == f"{package / 'inner.py'}:4 in parsed"


def test_without_a_frame_of_a_plugin_there_is_no_place():
    assert (
        place_in([FrameSummary(verifier.__file__, 2, "judge"), FrameSummary(json.__file__, 6, "loads")])
        is None
    )


def test_of_an_error_that_came_of_another_the_place_is_where_that_was_raised_in_the_plugin():
    def told():
        try:
            json.loads("{")
        except ValueError as exc:
            raise RuntimeError("the algorithm failed") from exc

    def place(package):
        try:
            told()
        except RuntimeError as exc:
            return place_in_package(exc, package)

    line = told.__code__.co_firstlineno + 2
    assert place(__name__) == f"{__file__}:{line} in told"
    assert place("json").endswith("in raw_decode")
    assert place("evsys_conformance") is None
    assert place("no_such_package") is None


def test_an_error_that_is_its_own_cause_has_a_place():
    error = ValueError()
    with pytest.raises(ValueError) as found:
        raise error from error
    assert place_in_package(found.value, __name__).startswith(__file__)
