"""Where in a plugin's code something happened."""

import json
from traceback import FrameSummary

from evsys_conformance import findings
from evsys_conformance.checks import verifier
from evsys_conformance.places import place_in, told_of


def raised(function):
    try:
        function()
    except Exception as exc:
        return told_of(exc)


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
