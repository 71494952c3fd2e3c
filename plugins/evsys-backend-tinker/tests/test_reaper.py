"""States that are left on a server."""

import datetime as dt
import json

import pytest
from click.testing import CliRunner
from small_server import small_server

from evsys import Registry, use_registry
from evsys.errors import BackendError
from evsys_backend_tinker import client_version
from evsys_backend_tinker.commands import backend
from evsys_backend_tinker.http_json import JsonApi
from evsys_backend_tinker.reaper import best_states, left_states
from evsys_backend_tinker.state import checkpoint_resource

NOW = dt.datetime(2026, 11, 28, tzinfo=dt.UTC)
LIST = "/api/v1/checkpoints?limit=100&offset={}"


def row(name: str, saved: str, **more) -> dict:
    return {
        "checkpoint_id": f"weights/{name}",
        "tinker_path": f"tinker://run/weights/{name}",
        "time": saved,
        **more,
    }


ROWS = [
    row("step-8-00000001", "2026-11-27T12:00:00Z", size_bytes=7, expires_at="2026-12-04T12:00:00Z"),
    row("step-4-0000000a", "2026-11-01T12:00:00", size_bytes=None),
    row("mine", "2026-01-01T00:00:00Z"),
    {**row("step-4-0000000b", "2026-11-01T12:00:00Z"), "checkpoint_id": "sampler_weights/step-4-0000000b"},
]
PAGES = {
    LIST.format(0): (200, {"checkpoints": ROWS[:3], "cursor": {"offset": 0, "limit": 100, "total_count": 4}}),
    LIST.format(3): (200, {"checkpoints": ROWS[3:], "cursor": {"offset": 3, "limit": 100, "total_count": 4}}),
}


@pytest.mark.parametrize(
    ("days", "expected"), [(0, ["step-4-0000000a", "step-8-00000001"]), (7, ["step-4-0000000a"]), (99, [])]
)
def test_only_states_that_evsys_named_are_found_the_oldest_first(days: int, expected: list[str]):
    with small_server(PAGES) as small:
        found = left_states(JsonApi(base_url=small.base_url), older_than=dt.timedelta(days=days), now=NOW)
    assert [one.path.rpartition("/")[2] for one in found] == expected


@pytest.mark.parametrize("answer", [(404, {}), (200, {"something": "else"}), (200, b"<html>")])
def test_a_server_that_lists_nothing_is_said_so(answer):
    with (
        small_server({LIST.format(0): answer}) as small,
        pytest.raises(BackendError, match="doesn't list its states"),
    ):
        left_states(JsonApi(base_url=small.base_url), older_than=dt.timedelta(0), now=NOW)


@pytest.mark.parametrize("delete", [False, True])
def test_the_command_deletes_only_when_asked_to(monkeypatch: pytest.MonkeyPatch, delete: bool):
    monkeypatch.setattr(client_version, "version", lambda _name: "0.30.4")
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "0.30.4")
    places = [checkpoint_resource(one["tinker_path"]) for one in ROWS[:2]]
    well = {"/api/v1/healthz": (200, {}), "/api/v1/client/config": (200, {})}
    with (
        small_server({**well, **PAGES, places[0]: (200, {}), places[1]: (500, {"error": "no"})}) as small,
        use_registry(Registry()),
    ):
        arguments = [
            "states",
            "--param",
            f"base_url={small.base_url}",
            "--json",
            *(["--delete"] if delete else []),
        ]
        result = CliRunner().invoke(backend, arguments)
        deleted = [path for method, path, _, _ in small.asked if method == "DELETE"]
    assert sorted(deleted) == (sorted(places) if delete else [])
    assert result.exit_code == int(delete)  # one couldn't be deleted
    assert [one["deleted"] for one in json.loads(result.stdout)["states"]] == [False, delete]


def record(root, run: str, best: str | None, *, state: object = None) -> None:
    """A run on record with a checkpoint at step 4."""
    folder = root / "20261128-trial" / "runs" / run
    (folder / "checkpoints/4").mkdir(parents=True)
    (folder / "run_result.json").write_text(json.dumps({"run": {"best_checkpoint": best}}))
    manifest = {"manifest": {"state": state or {"path": ROWS[1]["tinker_path"]}}}
    (folder / "checkpoints/4/manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("best", "state", "found"),
    [
        ("checkpoints/4", None, {"tinker://run/weights/step-4-0000000a"}),
        ("checkpoints/8", None, set()),
        (None, None, set()),
        ("checkpoints/4", {"file": "local.npz"}, set()),
    ],
)
def test_the_record_says_which_states_are_those_of_best_checkpoints(tmp_path, best, state, found):
    record(tmp_path, "run-s0", best, state=state)
    (tmp_path / "20261128-trial/runs/run-s1").mkdir()
    (tmp_path / "20261128-trial/runs/run-s1/run_result.json").write_text("{torn")
    assert best_states(tmp_path) == found


@pytest.mark.parametrize("too", [False, True])
def test_states_of_best_checkpoints_are_deleted_only_when_they_are_meant_too(monkeypatch, tmp_path, too):
    monkeypatch.setattr(client_version, "version", lambda _name: "0.30.4")
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "0.30.4")
    record(tmp_path, "run-s0", "checkpoints/4")
    places = [checkpoint_resource(one["tinker_path"]) for one in ROWS[:2]]
    well = {"/api/v1/healthz": (200, {}), "/api/v1/client/config": (200, {})}
    answers = {**well, **PAGES, **dict.fromkeys(places, (200, {}))}
    with small_server(answers) as small, use_registry(Registry()):
        arguments = ["states", "--param", f"base_url={small.base_url}", "--experiments", str(tmp_path)]
        result = CliRunner().invoke(backend, [*arguments, "--delete", *(["--best-too"] if too else [])])
        deleted = [path for method, path, _, _ in small.asked if method == "DELETE"]
    assert result.exit_code == 0, result.output
    assert sorted(deleted) == sorted(places if too else places[:1])
    [line] = [line for line in result.output.splitlines() if "step-4-0000000a" in line]
    assert line.endswith("deleted" if too else "best")
