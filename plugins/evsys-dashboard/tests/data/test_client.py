"""Uploads and pulls that are interrupted continue; bytes that aren't those of a version are never used."""

import hashlib
import json
import os

import pytest
import sqlalchemy as sa
from team_data import TASKS

from evsys.errors import StoreError
from evsys_dashboard.data.chunks import pack_chunk, unpack_chunk
from evsys_dashboard.data.client import DataClient, checked_file
from evsys_dashboard.remote import Remote
from evsys_dashboard.store.database import Database
from evsys_dashboard.store.tables import chunk

ROWS = [{"question": f"q{number}", "answer": "x" * number} for number in range(40)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Many chunks of a small file, on both sides."""
    for room in ("data.blobs", "data.chunks", "data.client", "data.catalogue"):
        monkeypatch.setattr(f"evsys_dashboard.{room}.CHUNK", 256)


class Away(Remote):
    """A server that goes away after some requests that match."""

    def __init__(self, *arguments, after, part):
        super().__init__(*arguments)
        self.after, self.part, self.asked = after, part, []

    def fetch(self, method, path, body=None, **options):
        if self.part in path:
            self.asked.append(path)
            if len(self.asked) > self.after:
                raise StoreError("the server can't be reached")
        return super().fetch(method, path, body, **options)


def away(team, key, *, after, part="chunks"):
    remote = Away(team.address, key, "lab", after=after, part=part)
    return remote, DataClient(remote, wait=lambda seconds: None)


def test_an_upload_continues_after_the_server_went_away(team):
    key = team.key("write")
    remote, gone = away(team, key, after=3)
    with checked_file(ROWS, "rows") as file:
        with pytest.raises(StoreError, match="can't be reached; repeat the command to continue"):
            gone.upload(file, "datasets", "faq")
        gone.close()
        assert len(remote.asked) == 3 + 4  # a request and three tries again
        team.stop()
        team.start()  # another process, on the same database
        again, client = away(team, key, after=10**6)
        done = []
        made = client.upload(file, "datasets", "faq", tell=lambda *progress: done.append(progress))
        client.close()
        chunks = -(-file.size // 256)
    assert len(again.asked) == chunks - 3
    assert done[-1] == (file.size, file.size)
    assert (made.version.rows, made.existed) == (40, False)


def test_what_is_there_is_not_sent_again(team):
    key = team.key("write")
    team.upload(key, "datasets", "faq", ROWS)
    remote, client = away(team, key, after=0)
    with checked_file(ROWS, "rows") as file:
        assert client.upload(file, "datasets", "other").version.name == "other"
    client.close()
    assert remote.asked == []


def test_a_pull_continues_with_the_chunks_that_are_missing(team, tmp_path):
    key = team.key("read", "write")
    team.upload(key, "datasets", "faq", ROWS)
    pulls = tmp_path / "pulls"
    _, gone = away(team, key, after=2)
    with pytest.raises(StoreError, match="can't be reached"):
        list(gone.pull(gone.show("datasets", "faq"), pulls))
    gone.close()
    [folder] = pulls.iterdir()
    (folder / "000001").write_bytes(b"torn")  # as a power cut leaves it
    again, client = away(team, key, after=10**6)
    shown = client.show("datasets", "faq")
    rows = [json.loads(line) for line in client.pull(shown, pulls)]
    client.close()
    assert rows == ROWS
    assert len(again.asked) == len(shown.chunks) - 1
    assert list(pulls.iterdir()) == []


def test_a_chunk_that_arrives_corrupted_is_never_used(team, tmp_path):
    key = team.key("read", "write")
    team.upload(key, "datasets", "faq", ROWS)
    damaged = Database(team.url)
    with damaged.writing() as connection:
        data = connection.execute(sa.select(chunk.c.data).where(chunk.c.number == 2)).scalar_one()
        other = pack_chunk(unpack_chunk(bytes(data), 256)[::-1])
        connection.execute(sa.update(chunk).where(chunk.c.number == 2).values(data=other))
    damaged.close()
    client = team.client(key)
    with pytest.raises(StoreError, match=r"chunk 2 of faq-\w+ arrived corrupted .*; try again"):
        list(client.pull(client.show("datasets", "faq"), tmp_path))
    client.close()


def test_a_server_that_answers_with_another_version_is_refused(team):
    key = team.key("read", "write")
    made = team.upload(key, "datasets", "faq", ROWS).version

    class Lying(Remote):
        def ask(self, *arguments, **options):
            answer = super().ask(*arguments, **options)
            if "version" in answer:
                answer["version"]["id"] = "../../../etc/passwd"
            return answer

    client = DataClient(Lying(team.address, key, "lab"))
    with pytest.raises(StoreError, match="answers with another version"):
        client.show("datasets", made.id)
    with pytest.raises(StoreError, match="answers with another version"):
        client.show("datasets", "faq")
    client.close()


def test_chunks_of_pulls_that_were_interrupted_long_ago_are_removed(team, tmp_path):
    pulls = tmp_path / "pulls"
    old = pulls / hashlib.sha256(b"x").hexdigest()
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    (pulls / "something else").mkdir()
    key = team.key("read", "write", "test")
    team.upload(key, "benchmarks", "final", TASKS, split="test")
    client = team.client(key)
    list(client.pull(client.show("benchmarks", "final"), pulls))
    client.close()
    assert [path.name for path in pulls.iterdir()] == ["something else"]
