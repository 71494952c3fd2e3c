"""A change is announced once it can be read."""

import asyncio

import pytest

from evsys.errors import StoreError
from evsys_dashboard.api.service import Shared, project_version
from evsys_dashboard.api.stream import _changes
from evsys_dashboard.push.follow import LocalTarget
from evsys_dashboard.push.pusher import Pusher


@pytest.fixture
def changes(database):
    def changes(after):
        with database.reading() as connection:
            return _changes(connection, name="lab", after=after)

    return changes


@pytest.fixture
def push(lab, ingest):
    """Takes in a whole experiment; its record."""

    def push(name):
        record = lab.whole(name)
        pusher = Pusher(record.directory, LocalTarget(ingest, "lab"))
        while pusher.push():
            pass
        return record

    return push


def test_a_project_is_at_the_version_that_its_lists_show(database, push, changes, summaries):
    """A page that follows from there misses no change that its lists don't show yet."""
    push("one")
    with database.reading() as connection:
        known = project_version(connection, "lab")
    summaries.refresh()
    assert changes(known) is not None


def test_a_record_that_cannot_be_read_holds_no_later_change_back(
    push, changes, summaries, records, monkeypatch
):
    unread = push("one").experiment_id
    find = records.experiment

    def experiment(project, name):
        if name == unread:
            raise StoreError("it can't be read")
        return find(project, name)

    monkeypatch.setattr(records, "experiment", experiment)
    summaries.refresh()
    assert summaries.refresh() == 0
    later = push("two")
    summaries.refresh()
    assert later.experiment_id in [each["id"] for each in changes(0)["experiments"]]


def test_a_change_is_announced_when_lists_show_it(push, changes, summaries):
    record = push("one")
    assert changes(0) is None
    summaries.refresh()
    found = changes(0)
    assert [each["id"] for each in found["experiments"]] == [record.experiment_id]
    assert changes(found["version"]) is None


def test_a_question_that_many_ask_at_once_is_answered_once():
    """A reader that leaves meanwhile ends it for no other."""
    asked = []

    async def main():
        shared, go = Shared(), asyncio.Event()

        async def answer():
            asked.append(1)
            await go.wait()
            return len(asked)

        readers = [asyncio.create_task(shared.result("versions", answer)) for _ in range(100)]
        await asyncio.sleep(0)
        readers[0].cancel()
        go.set()
        first = await asyncio.gather(*readers[1:])
        return first, await shared.result("versions", answer)

    assert asyncio.run(main()) == ([1] * 99, 2)
