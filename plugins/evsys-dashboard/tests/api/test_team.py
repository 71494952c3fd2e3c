"""A team's server: keys grant what they say, in their project alone, and browsers sign in without giving their key away."""

import asyncio
import json

import pytest
from click.testing import CliRunner
from clients import Client, served

from evsys_cli.main import cli
from evsys_dashboard.api import stream
from evsys_dashboard.ingest.pieces import Piece, pack
from evsys_dashboard.push.pusher import Pusher
from evsys_dashboard.push.server import ServerTarget
from evsys_dashboard.store.database import Database
from evsys_dashboard.store.keys import Keys
from evsys_dashboard.team import team_dashboard


@pytest.fixture
def url(new_store):
    return new_store()


@pytest.fixture
def keys(url):
    database = Database(url)
    yield Keys(database)
    database.close()


@pytest.fixture
def serve(tmp_path, keys, url):
    """The result of `work(client)` on a team's server."""

    def run(work):
        return served(team_dashboard(url, tmp_path / "team"), work)

    return run


def as_key(client, text):
    return Client(client.address, client.session, text)


def send(address: str, text: str, *directories, project=None):
    target = ServerTarget(address, text, project)
    for directory in directories:
        pusher = Pusher(directory, target)
        while pusher.push():
            pass
    target.close()


def test_a_record_that_was_sent_is_shown(serve, keys, lab):
    _, text = keys.create(["read", "write"], project="lab")
    record = lab.whole("one")

    async def work(client):
        mine = as_key(client, text)
        await asyncio.to_thread(send, client.address, text, record.directory)
        listed = await mine.ask("/projects/lab/experiments")
        found = await mine.ask(
            f"/projects/lab/experiments/{record.experiment_id}/runs/a-s0/rollouts?phase=validation"
        )
        return listed, found

    listed, found = serve(work)
    assert [(row["name"], row["status"], row["verdict"]) for row in listed["experiments"]] == [
        ("one", "completed", "SUPPORTED")
    ]
    assert found["total"] == 2


READ = [
    "",
    "/one",
    "/one/curves",
    "/one/events",
    "/one/log",
    "/one/runs/a-s0",
    "/one/runs/a-s0/log",
    "/one/runs/a-s0/rollouts",
]


def test_a_key_of_one_project_sees_nothing_of_another(serve, keys, lab):
    _, ours = keys.create(["read", "write", "admin"], project="ours")
    _, theirs = keys.create(["read", "write", "admin"], project="theirs")
    record = lab.whole("one", tags=["secret"])

    async def work(client):
        await asyncio.to_thread(send, client.address, ours, record.directory)
        other = as_key(client, theirs)
        assert (await other.ask("/projects"))["projects"] == []
        for path in READ:
            path = path.replace("one", record.experiment_id)
            await other.ask(f"/projects/ours/experiments{path}", status=403)
        await other.ask("/projects/ours/stream", status=403)
        await other.ask(f"/projects/ours/experiments/{record.experiment_id}/files", status=403)
        body = pack([Piece(file="config.yaml", data=b"x")])
        await other.ask(
            f"/projects/ours/experiments/{record.experiment_id}/batch", method="POST", data=body, status=403
        )
        listed = [key["project"] for key in (await other.ask("/keys"))["keys"]]
        assert listed == ["theirs"]
        await other.ask("/audit", status=403)
        await other.ask("/keys", method="POST", json={"scopes": ["read"], "project": "ours"}, status=403)
        await other.ask("/keys", method="POST", json={"scopes": ["read"]}, status=403)
        mine = keys.all()[0].prefix
        await other.ask(f"/keys/{mine}", method="DELETE", status=404)
        # The answer is the same for a project that isn't there.
        assert await other.ask("/projects/ours/experiments", status=403) == await other.ask(
            "/projects/none/experiments", status=403
        )

    serve(work)


@pytest.mark.parametrize(
    "command",
    [["history"], ["history", "--runs"], ["show", "one"], ["show", "one", "a-s0"], ["why", "one"], ["next"]],
)
def test_commands_on_past_experiments_answer_as_they_do_locally(serve, keys, lab, command):
    _, text = keys.create(["read", "write"], project="lab")
    first, second = lab.whole("one"), lab.whole("two", verdict="REFUTED")
    local = CliRunner().invoke(cli, [*command, "--records", str(lab.project), "--json"])
    name, *rest = command
    query = {"runs": "true"} if rest == ["--runs"] else dict(zip(("experiment", "part"), rest, strict=False))

    async def work(client):
        await asyncio.to_thread(send, client.address, text, first.directory, second.directory)
        return await as_key(client, text).ask(f"/projects/lab/memory/{name}", params=query)

    assert serve(work) == json.loads(local.stdout.replace(f"{lab.project}/", ""))


@pytest.mark.parametrize(
    ("scope", "path", "method"),
    [
        ("write", "/projects/lab/experiments", "GET"),
        ("read", "/projects/lab/experiments/x/files", "GET"),
        ("read", "/projects/lab/experiments/x/batch", "POST"),
        ("read", "/keys", "GET"),
        ("write", "/keys", "POST"),
        ("test", "/audit", "GET"),
    ],
)
def test_a_key_does_only_what_it_grants(serve, keys, scope, path, method):
    _, text = keys.create([scope], project="lab")
    serve(lambda client: as_key(client, text).ask(path, method=method, status=403))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer evk_0000000000_x"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer \u00e9"},
        {"Cookie": "evsys_session=nothing"},
    ],
)
def test_without_a_valid_key_nothing_is_shown(serve, headers):
    serve(lambda client: client.ask("/projects", status=401, headers=headers))


def test_a_key_in_an_address_is_refused(serve, keys):
    _, text = keys.create(["read"], project="lab")
    serve(lambda client: client.ask(f"/projects?key={text}", status=401))


def test_a_revoked_key_and_its_sessions_are_over(serve, keys):
    key, text = keys.create(["read"], project="lab")

    async def work(client):
        mine = as_key(client, text)
        await mine.ask("/projects")
        await client.ask("/session", method="POST", json={"key": text})
        await client.ask("/projects")
        keys.revoke(key.prefix)
        await mine.ask("/projects", status=401)
        await client.ask("/projects", status=401)

    serve(work)


def test_a_revoked_key_reads_no_stream_on(serve, keys, lab, monkeypatch):
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.01)
    key, text = keys.create(["read", "write"], project="lab")
    record = lab.whole("one")

    async def work(client):
        await asyncio.to_thread(send, client.address, text, record.directory)
        url = f"{client.address}/api/v1/projects/lab/stream"
        async with client.session.get(url, headers=as_key(client, text).headers) as response:
            await response.content.readuntil(b"\n\n")
            keys.revoke(key.prefix)
            return await response.content.read()

    assert serve(work) == b""


def test_a_record_that_cannot_be_read_holds_up_no_other_and_no_start(serve, keys, lab, tmp_path):
    _, text = keys.create(["read", "write"], project="lab")
    bad, good = lab.whole("bad"), lab.whole("good")
    folder = tmp_path / "team" / "records" / "lab" / ".evsys" / "experiments"
    folder.mkdir(parents=True)
    (folder / bad.experiment_id).write_text("in the way", encoding="utf-8")

    async def work(client):
        await asyncio.to_thread(send, client.address, text, bad.directory, good.directory)
        return await as_key(client, text).ask("/projects/lab/experiments")

    async def again(client):
        return await as_key(client, text).ask("/projects/lab/experiments")

    assert [row["name"] for row in serve(work)["experiments"]] == ["good"]
    assert [row["name"] for row in serve(again)["experiments"]] == ["good"]


@pytest.mark.parametrize("origin", ["http://[", "null", "", "https://evil.example"])
def test_any_other_origin_is_refused(serve, origin):
    serve(lambda client: client.ask("/health", status=403, headers={"Origin": origin}))


def test_a_browser_signs_in_reads_with_its_cookie_and_changes_only_with_its_token(serve, keys):
    _, text = keys.create(["admin"], project=None)

    async def work(client):
        signed = await client.session.post(f"{client.address}/api/v1/session", json={"key": text})
        cookie = signed.headers["Set-Cookie"]
        token = (await signed.json())["token"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert text not in cookie
        who = await client.ask("/whoami")
        assert (who["scopes"], who["token"]) == (["admin"], token)
        new = {"scopes": ["read"], "project": "lab"}
        await client.ask("/keys", method="POST", json=new, status=403)
        await client.ask(
            "/keys", method="POST", json=new, status=403, headers={"X-CSRF-Token": "x" * len(token)}
        )
        made = await client.ask("/keys", method="POST", json=new, headers={"X-CSRF-Token": token})
        await as_key(client, made["text"]).ask("/projects")
        audit = await client.ask("/audit")
        assert [entry["action"] for entry in audit["entries"]] == ["key.created", "session.begun"]
        await client.ask("/session", method="DELETE", headers={"X-CSRF-Token": token})
        await client.ask("/projects", status=401)

    serve(work)


def test_a_page_of_another_site_is_refused_even_with_a_cookie(serve, keys):
    _, text = keys.create(["read"], project="lab")

    async def work(client):
        await client.ask("/session", method="POST", json={"key": text})
        await client.ask("/projects", status=403, headers={"Origin": "https://evil.example"})
        await client.ask("/projects", headers={"Origin": client.address})

    serve(work)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"nonsense", 400),
        (b"", 400),
        (pack([Piece(file="../x", data=b"x")]), 400),
        (pack([Piece(file=".lock", data=b"x")]), 400),
    ],
)
def test_a_batch_that_is_malformed_is_refused(serve, keys, body, status):
    _, text = keys.create(["write"], project="lab")
    path = "/projects/lab/experiments/one/batch"
    answer = serve(lambda client: as_key(client, text).ask(path, method="POST", data=body, status=status))
    assert answer["error"]["message"]


@pytest.mark.parametrize(
    "options",
    [
        {"data": b"{"},
        {"json": []},
        {"json": {"scopes": "read"}},
        {"json": {"scopes": ["root"]}},
        {"json": {"scopes": ["read"], "x": 1}},
    ],
)
def test_a_body_that_is_malformed_is_refused(serve, keys, options):
    _, text = keys.create(["admin"], project=None)
    headers = {"Content-Type": "application/json"} if "data" in options else {}
    path = "/keys"
    serve(
        lambda client: as_key(client, text).ask(path, method="POST", status=400, headers=headers, **options)
    )


def test_too_many_requests_wait(serve, keys, monkeypatch):
    _, text = keys.create(["read"], project="lab")
    monkeypatch.setattr(
        "evsys_dashboard.api.limits.Rates.__init__.__kwdefaults__",
        {"per_second": 0.1, "burst": 3.0, "clock": lambda: 0.0},
    )

    async def work(client):
        for status in (200, 200, 200, 429):
            await as_key(client, text).ask("/projects", status=status)

    serve(work)


def test_the_database_of_a_server_is_enough_to_start_another(tmp_path, keys, url, lab):
    _, text = keys.create(["read", "write"], project="lab")
    record = lab.whole("one")

    async def send_it(client):
        await asyncio.to_thread(send, client.address, text, record.directory)

    async def ask(client):
        return await as_key(client, text).ask(f"/projects/lab/experiments/{record.experiment_id}")

    served(team_dashboard(url, tmp_path / "first"), send_it)
    found = served(team_dashboard(url, tmp_path / "second"), ask)
    assert found["conclusion"]["verdict"] == "SUPPORTED"
