"""Records on this machine: what is written is in the database after the next look."""

import pytest
import sqlalchemy as sa

from evsys_dashboard.ingest.ingest import Ingest
from evsys_dashboard.push.follow import Follower, LocalTarget
from evsys_dashboard.push.pusher import Pusher
from evsys_dashboard.store.listing import ExperimentsQuestion, find_experiments
from evsys_dashboard.store.records import LocalRecords
from evsys_dashboard.store.summaries import Summaries
from evsys_dashboard.store.tables import series


@pytest.fixture
def follower(lab, database) -> Follower:
    ingest = Ingest(database, keep_bytes=False)
    summaries = Summaries(database, LocalRecords(lab.experiments), local=True)
    return Follower(lab.experiments, LocalTarget(ingest, "lab"), summaries)


@pytest.fixture
def listed(database):
    def find() -> list[tuple[str, str]]:
        with database.reading() as connection:
            _, rows = find_experiments(connection, "lab", ExperimentsQuestion())
        return [(row["name"].partition("-")[2].partition("-")[2], row["status"]) for row in rows]

    return find


def test_experiments_that_are_there_are_listed_the_newest_first(lab, follower, listed):
    lab.whole("one")
    lab.whole("two")
    follower.catch_up()
    assert listed() == [("two", "completed"), ("one", "completed")]


def test_an_experiment_that_runs_grows_until_it_ends(lab, follower, listed, database):
    def points() -> int:
        with database.reading() as connection:
            return connection.execute(sa.select(sa.func.sum(series.c.count))).scalar()

    record = lab.begin("live")
    with record.lock:
        run = lab.run(record, steps=2)
        follower.catch_up()
        assert (listed(), points()) == ([("live", "running")], 4)
        run.metrics(3, {"loss": 0.1})
        follower.look()
        assert points() == 5
        run.close()
        lab.end(record)
    follower.look()
    assert listed() == [("live", "completed")]


def test_an_experiment_whose_process_is_gone_is_listed_as_crashed(lab, follower, listed):
    record = lab.begin("live")
    with record.lock:
        lab.run(record)
        follower.catch_up()
    follower.look()
    assert listed() == [("live", "crashed")]


class Forgetful(LocalTarget):
    """A target that takes a batch and fails to say so, every other time."""

    calls = 0

    def take(self, experiment, pieces):
        held = super().take(experiment, pieces)
        self.calls += 1
        if self.calls % 2:
            raise OSError("the connection is lost")
        return held


def test_a_pusher_goes_on_after_answers_that_were_lost(lab, ingest, records, monkeypatch):
    monkeypatch.setattr("evsys_dashboard.push.pusher.BATCH_BYTES", 700)
    record = lab.whole("one")
    pusher = Pusher(record.directory, Forgetful(ingest, "lab"))
    sent = True
    while sent:
        try:
            sent = pusher.push()
        except OSError:
            sent = True
    for path in record.directory.rglob("*.json*"):
        held = records.experiment("lab", record.experiment_id) / path.relative_to(record.directory)
        assert held.read_bytes() == path.read_bytes()


def test_a_file_that_lost_its_end_is_sent_again(lab, ingest, records):
    record = lab.begin("one")
    run = lab.run(record)
    run.close()
    target = LocalTarget(ingest, "lab")
    while Pusher(record.directory, target).push():
        pass
    path = run.directory / "training" / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-30] + b"\x18\n")
    while Pusher(record.directory, target).push():
        pass
    held = records.experiment("lab", record.experiment_id) / path.relative_to(record.directory)
    assert held.read_bytes() == path.read_bytes()


def test_weights_and_rows_that_were_trained_on_stay_on_this_machine(lab, ingest):
    record = lab.begin("one")
    run = lab.run(record)
    for name in ("checkpoints/3/adapter.safetensors", "data/training_data.jsonl"):
        path = run.directory / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"secret")
    pusher = Pusher(record.directory, LocalTarget(ingest, "lab"))
    while pusher.push():
        pass
    held = {each.file for each in ingest.held("lab", record.experiment_id)}
    assert "runs/a-s0/run.json" in held
    assert not {file for file in held if "checkpoints/" in file or "data/" in file}


def test_files_that_links_lead_to_outside_of_the_record_stay_on_this_machine(lab, ingest, tmp_path):
    record = lab.whole("one")
    secret = tmp_path / "secret.jsonl"
    secret.write_text("secret", encoding="utf-8")
    for name in ("hypothesis.md", "notes.jsonl"):
        (record.directory / name).unlink(missing_ok=True)
        (record.directory / name).symlink_to(secret)
    (record.directory / "same.yaml").symlink_to("config.yaml")
    pusher = Pusher(record.directory, LocalTarget(ingest, "lab"))
    while pusher.push():
        pass
    held = {each.file for each in ingest.held("lab", record.experiment_id)}
    assert "same.yaml" in held
    assert not held & {"hypothesis.md", "notes.jsonl"}
    assert pusher.files.linked == {"hypothesis.md", "notes.jsonl"}


def test_batches_have_no_more_pieces_than_are_taken(lab, ingest, records, monkeypatch):
    from evsys_dashboard.push import record_files

    monkeypatch.setattr(record_files, "MOST_PIECES", 2)
    record = lab.whole("one")
    target = LocalTarget(ingest, "lab")
    sizes = []
    monkeypatch.setattr(
        target, "take", lambda name, pieces, take=target.take: sizes.append(len(pieces)) or take(name, pieces)
    )
    pusher = Pusher(record.directory, target)
    while pusher.push():
        pass
    assert max(sizes) == 2
    held = {each.file for each in ingest.held("lab", record.experiment_id)}
    assert {"experiment.json", "runs/a-s0/run.json"} <= held
