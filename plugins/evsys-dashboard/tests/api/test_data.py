"""Datasets and benchmarks over HTTP: each key sees what it may, and hostile requests are refused."""

import io
import json
import zlib
from urllib.parse import quote, unquote

import pytest
from clients import Client, served
from team_data import TASKS
from yarl import URL

from evsys_dashboard.data.client import checked_file
from evsys_dashboard.data.shapes import CHUNK
from evsys_dashboard.team import team_dashboard

ROWS = [{"question": f"q{number}", "answer": "<script>alert(1)</script>"} for number in range(5)]
HASH = "0" * 64


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def test_what_each_scope_grants(team):
    write, read = team.key("write"), team.key("read")
    made = team.upload(write, "datasets", "faq", ROWS).version
    path = "/projects/lab/data/datasets"
    for part in ("", "/faq", f"/{made.id}", "/faq/versions", "/faq/rows"):
        team.ask(path + part, **bearer(read))
        team.ask(path + part, status=403, **bearer(write))
    team.ask(f"{path}/faq/chunks/0", status=403, **bearer(write))
    rows = team.ask(f"{path}/faq/rows?limit=2&offset=3", **bearer(read))
    assert [row["row"] for row in rows["rows"]] == ROWS[3:]
    assert (rows["total"], rows["next"]) == (5, None)


def test_a_key_of_another_project_sees_nothing(team):
    made = team.upload(team.key("write"), "benchmarks", "faq", TASKS).version
    other = team.key("read", "write", "test", "admin", project="other")
    for part in ("", "/faq", f"/{made.id}", "/faq/versions", "/faq/rows", "/faq/chunks/0", "/faq/checks"):
        refused = team.ask(f"/projects/lab/data/benchmarks{part}", status=403, **bearer(other))
        assert "faq" not in json.dumps(refused)
    own = team.upload(other, "datasets", "own", ROWS).version
    for ref in ("faq", made.id):
        refused = team.ask(f"/projects/other/data/benchmarks/{ref}", status=404, **bearer(other))
        assert refused["error"]["hint"] == "none was uploaded yet"
    shown = team.ask("/projects/other/data/datasets/own", **bearer(other))
    assert shown["version"]["id"] == own.id
    assert team.ask("/projects/other/data/benchmarks", **bearer(other))["total"] == 0


def test_an_origin_of_another_project_is_unknown(team):
    made = team.upload(team.key("write"), "datasets", "faq", ROWS).version
    with pytest.raises(ValueError, match=rf"no version has the ID '{made.id}'; none was uploaded yet"):
        team.upload(team.key("write", project="other"), "datasets", "mine", ROWS, made_from=[made.id])


def test_rows_of_a_test_set_need_the_scope_test_and_are_counted(team):
    made = team.upload(team.key("write"), "benchmarks", "final", TASKS, split="test").version
    path = "/projects/lab/data/benchmarks/final"
    for key in (team.key("read"), team.key("admin", project=None), team.key("read", "write", "admin")):
        shown = team.ask(path, **bearer(key))
        assert (shown["readable"], shown["reads"], shown["version"]["rows"]) == (False, 0, 12)
        for part in ("/rows", "/chunks/0"):
            refused = team.ask(path + part, status=403, **bearer(key))
            assert "lacks the scope 'test'" in refused["error"]["message"]
    tester = team.key("read", "test")
    assert len(team.ask(f"{path}/rows?limit=3", **bearer(tester))["rows"]) == 3
    assert team.ask(path, **bearer(tester))["reads"] == 1
    assert team.ask("/projects/lab/memory", **bearer(tester))["test_reads"] == {"final": 1}
    audit = team.ask("/audit", **bearer(team.key("admin", project=None)))["entries"]
    assert [(entry["action"], entry["facts"].get("version")) for entry in audit] == [
        ("test.read", made.id),
        ("data.uploaded", made.id),
    ]


def test_bytes_of_a_test_set_are_not_opened_by_uploading_them_as_something_else(team):
    write = team.key("write")
    team.upload(write, "benchmarks", "final", TASKS, split="test")
    team.upload(write, "datasets", "mine", TASKS)
    team.ask("/projects/lab/data/datasets/mine/rows", status=403, **bearer(team.key("read")))


def test_benchmark_tasks_among_training_rows_are_found(team):
    write, read, tester = team.key("write"), team.key("read"), team.key("read", "test")
    leaked = [{"prompt": task["instruction"], "completion": "a"} for task in TASKS[:4]]
    rows = team.upload(write, "datasets", "train", [*leaked, *ROWS]).version
    open_tasks = [{**task, "instruction": f"{task['instruction']} Say it in French."} for task in TASKS]
    team.upload(write, "benchmarks", "final", TASKS, split="test")
    team.upload(write, "benchmarks", "odd", ROWS)
    team.upload(write, "benchmarks", "open", open_tasks)
    found = team.ask("/projects/lab/data/datasets/train/checks", **bearer(read))
    by_name = {check["benchmark"].rpartition("-")[0]: check for check in found["checks"]}
    assert found["id"] == rows.id
    assert (by_name["final"]["flagged"], by_name["final"]["tasks"]) == (4, [])
    assert by_name["final"]["matches"] == {"equal": 4}
    assert by_name["odd"]["problem"].startswith("its rows are not tasks")
    again = team.ask("/projects/lab/data/datasets/train/checks", **bearer(tester))
    assert next(c for c in again["checks"] if c["flagged"])["tasks"] == [f"t{i:02d}" for i in range(4)]
    back = team.ask("/projects/lab/data/benchmarks/final/checks", **bearer(tester))["checks"]
    assert [(check["dataset"], check["flagged"]) for check in back] == [(rows.id, 4)]


def test_tasks_in_folders_of_the_server_are_not_looked_at(team):
    write = team.key("write")
    team.upload(write, "datasets", "train", ROWS)
    team.upload(write, "benchmarks", "folders", [{"task_id": "x", "path": "/etc"}])
    [check] = team.ask("/projects/lab/data/datasets/train/checks", **bearer(team.key("read")))["checks"]
    assert (
        check["problem"] == "its rows are not tasks: a task that lies in a folder can't be read on a server"
    )


HOSTILE = ["..", "../../etc", "a/b", ".", "%2e%2e", "a\\b", "x" * 81, "faq-0123456789ab", "a\x00b", "<b>"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_makes_nothing(tmp_path, team, name):
    write = team.key("write")
    client = team.client(write)
    with checked_file(ROWS, "x") as file, pytest.raises(ValueError, match="answers 40[04]"):
        client.upload(file, "datasets", name)
    client.close()
    team.ask(f"/projects/lab/data/datasets/{quote(name, safe='')}", status=404, **bearer(team.key("read")))
    assert team.ask("/projects/lab/data/datasets", **bearer(team.key("read")))["total"] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["team"]


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("POST", "blobs", {"json": {"digest": HASH, "size": 1 << 40}}, 400),
        ("POST", "blobs", {"json": {"digest": HASH, "size": "1"}}, 400),
        ("POST", "blobs", {"json": {"digest": HASH}}, 400),
        ("POST", "blobs", {"json": {"digest": "x", "size": 1}}, 400),
        ("POST", f"blobs/{HASH}/chunks/0", {"data": b"x"}, 400),
        ("POST", f"blobs/{HASH}/chunks/-1", {"data": b"x"}, 404),
        ("POST", f"blobs/{HASH}/chunks/99999999999999999999", {"data": b"x"}, 404),
        ("POST", f"blobs/{HASH}/chunks/0", {"data": io.BytesIO(bytes(CHUNK + (1 << 20)))}, 413),
        ("POST", "data/datasets/faq/versions", {"json": {"digest": HASH}}, 400),
        ("POST", "data/datasets/faq/versions", {"json": {"digest": HASH, "split": "val"}}, 400),
        ("POST", "data/nonsense/faq/versions", {"json": {"digest": HASH}}, 404),
        ("GET", "data/nonsense", {}, 404),
        ("GET", "data/datasets/none", {}, 404),
        ("GET", "data/datasets/none/rows?limit=201", {}, 400),
        ("GET", "data/datasets/none/rows?offset=-1", {}, 400),
        ("GET", "data/datasets?limit=0", {}, 400),
    ],
)
def test_a_request_that_is_malformed_is_refused(team, method, path, options, status):
    key = team.key("read", "write")

    async def work(client):
        await Client(team.address, client.session, key).ask(
            f"/projects/lab/{path}", method=method, status=status, **options
        )

    team.upload(key, "datasets", "faq", ROWS)
    served(team_dashboard(team.url, team.directory), work)


def test_a_bomb_is_never_unpacked(team):
    key = team.key("write")
    bomb = zlib.compress(bytes(1 << 28), 9)
    assert len(bomb) < CHUNK

    async def work(client):
        mine = Client(team.address, client.session, key)
        await mine.ask("/projects/lab/blobs", method="POST", json={"digest": HASH, "size": CHUNK})
        path = f"/projects/lab/blobs/{HASH}/chunks/0"
        refused = await mine.ask(path, method="POST", data=io.BytesIO(bomb), status=400)
        assert "doesn't unpack to its" in refused["error"]["message"]

    served(team_dashboard(team.url, team.directory), work)


def test_a_chunk_comes_as_bytes(team):
    key = team.key("read", "write")
    team.upload(key, "datasets", "faq", ROWS)

    async def work(client):
        url = f"{team.address}/api/v1/projects/lab/data/datasets/faq/chunks"
        headers = bearer(key)
        async with client.session.get(f"{url}/0", headers=headers) as response:
            data = zlib.decompress(await response.read())
            assert response.headers["Content-Type"] == "application/octet-stream"
        async with client.session.get(f"{url}/1", headers=headers) as response:
            assert response.status == 404
        return data

    data = served(team_dashboard(team.url, team.directory), work)
    assert [json.loads(line) for line in data.splitlines()] == ROWS


ODD_TEXTS = ["%00", "%ED%A0%80", "%FF", "%F0%9F%98%80", "..%2F..%2Fx", "a%2Fb", "%27%20OR%201=1--", "9" * 400]
ODD_TEXTS += ["-1", "1e9", "nan", "%5B%5D", "faq-000000000000", "faq%00-000000000000"]


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_no_text_in_an_address_or_a_body_makes_the_server_fail(team, text):
    key = team.key("read", "write", "test", "admin", project=None)
    team.upload(team.key("write"), "datasets", "faq", ROWS)
    data = "/projects/lab/data"
    asked = [
        f"/projects/{text}/data/datasets",
        *(f"{data}/{text}{part}" for part in ("", "/faq", "/faq/rows")),
        *(f"{data}/datasets/{text}{part}" for part in ("", "/versions", "/rows", "/checks", "/chunks/0")),
        f"{data}/datasets/faq/chunks/{text}",
        *(f"{data}/datasets?{name}={text}" for name in ("text", "limit", "offset")),
        *(f"{data}/datasets/faq/rows?{name}={text}" for name in ("limit", "offset", "odd")),
    ]
    whole = unquote(text, errors="surrogateescape")
    bodies = [
        ("blobs", {"digest": whole, "size": 10}),
        ("blobs", {"digest": HASH, "size": whole}),
        ("data/datasets/faq/versions", {"digest": whole}),
        ("data/datasets/faq/versions", {"digest": HASH, "made_from": [whole], "note": whole}),
        (f"data/datasets/{text}/versions", {"digest": HASH, "file": whole}),
        (f"blobs/{text}/chunks/0", {}),
    ]

    async def work(client):
        url = f"{team.address}/api/v1"
        found = []
        for path in asked:
            async with client.session.get(URL(url + path, encoded=True), headers=bearer(key)) as response:
                found.append((path, response.status))
        for path, body in bodies:
            place = URL(f"{url}/projects/lab/{path}", encoded=True)
            async with client.session.post(place, headers=bearer(key), json=body) as response:
                found.append((path, response.status))
        return found

    found = served(team_dashboard(team.url, team.directory), work)
    assert [each for each in found if each[1] >= 500] == []
