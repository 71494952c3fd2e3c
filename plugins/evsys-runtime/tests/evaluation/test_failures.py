"""A failure points at the line that somebody can change, and at none where its message says it all."""

import json
from pathlib import Path

import pytest

from evsys.errors import AlgorithmError, DataError, EvsysError, boundary
from evsys.types import NoScore, Rollout
from evsys_runtime.data.json_rows import bad_json
from evsys_runtime.evaluation.failures import failure_of
from evsys_runtime.evaluation.results import _invalid


def caught(function) -> Exception:
    with pytest.raises(Exception) as info:
        function()
    return info.value


def test_the_place_is_the_plugins_line_and_not_the_librarys_that_it_called():
    def plugin():
        with boundary("algorithm", "mine"):
            json.loads("{")

    failure = failure_of(caught(plugin))
    assert failure.place.startswith(f"{__file__}:")
    assert (
        "json.loads"
        in Path(__file__).read_text(encoding="utf-8").splitlines()[int(failure.place.rpartition(":")[2]) - 1]
    )
    assert (failure.boundary, failure.error_type) == ("algorithm", "JSONDecodeError")


def from_evsys(code: str) -> EvsysError:
    """The error that `code` raises as if it were a module of evsys."""
    return caught(
        lambda: exec(compile(code, "evsys_thing.py", "exec"), {"__name__": "evsys_thing", "E": DataError})
    )


def test_an_error_that_evsys_raises_itself_has_no_place_but_its_own():
    error = from_evsys("raise E('holds no rows', source='a.jsonl', line=3)")
    error.__traceback__ = error.__traceback__.tb_next.tb_next  # what remains of it in a run
    failure = failure_of(error)
    assert (failure.message, failure.place) == ("a.jsonl:3: holds no rows", None)


def test_a_line_of_an_installed_plugin_is_told_where_the_project_has_none():
    path = "/venv/lib/python3.13/site-packages/theirs/algorithm.py"
    try:
        exec(compile("raise ValueError('odd')", path, "exec"), {"__name__": "theirs.algorithm"})
    except ValueError as exc:
        exc.__traceback__ = exc.__traceback__.tb_next
        error = AlgorithmError("algorithm 'theirs' failed: ValueError: odd")
        error.__cause__ = exc
    assert failure_of(error).place == f"{path}:1"


def test_what_a_decoder_said_is_told_with_the_files_line_alone():
    def read():
        try:
            json.loads('{"a": ')
        except ValueError as exc:
            raise DataError(str(bad_json(exc)), source="a.jsonl", line=2) from exc

    assert failure_of(caught(read)).message.startswith("a.jsonl:2: not valid JSON")


def test_a_service_that_is_down_is_one_reason_however_long_it_has_been():
    rollouts = [
        Rollout(
            task_id=f"t{seconds}",
            sample_index=0,
            score=NoScore(
                reason=f"it has failed for {seconds} s, at last with: HTTP 503", boundary="backend"
            ),
        )
        for seconds in (39, 48, 1052)
    ]
    failure = _invalid(rollouts)
    assert failure is not None
    assert failure.message.endswith("(3 x backend: it has failed for 1052 s, at last with: HTTP 503)")
