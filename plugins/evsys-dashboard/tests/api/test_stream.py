"""A change is announced once it can be read."""

from lab_records import Lab

from evsys_dashboard.api.stream import _changes
from evsys_dashboard.push.pusher import Pusher


def test_a_change_is_announced_when_lists_show_it(lab: Lab, ingest, database, summaries):
    def changes(after):
        with database.reading() as connection:
            return _changes(connection, name="lab", after=after)

    from evsys_dashboard.push.follow import LocalTarget

    record = lab.whole("one")
    pusher = Pusher(record.directory, LocalTarget(ingest, "lab"))
    while pusher.push():
        pass
    assert changes(0) is None
    summaries.refresh()
    found = changes(0)
    assert [each["id"] for each in found["experiments"]] == [record.experiment_id]
    assert changes(found["version"]) is None
