"""Either side is killed in the middle of a push, again and again, or ten push at once; in the end each line is there once."""

import random

import pytest
import sqlalchemy as sa
from lab_records import Lab
from sides import Client, Server, free_port

from evsys_dashboard.store.database import Database
from evsys_dashboard.store.keys import Keys
from evsys_dashboard.store.tables import experiment, rollout, run, series


def records_of(tmp_path, lines, *names):
    """The folders of finished experiments with so many steps, and a quarter as many rollouts."""
    folders = []
    for name in names:
        lab = Lab(tmp_path / name)
        record = lab.begin(name)
        lab.run(record, steps=lines, rollouts=lines // 4).close()
        lab.end(record)
        folders.append(record.directory)
    return folders


def rows_of(store):
    """Of each experiment the points of each series, the steps of its last, and its rollouts."""
    of_run = sa.select(sa.func.count()).where(rollout.c.run_id == run.c.id).scalar_subquery()
    query = (
        sa.select(experiment.c.name, series.c.name.label("series"), series.c.count.label("points"), of_run)
        .join(run, run.c.experiment_id == experiment.c.id)
        .join(series, series.c.run_id == run.c.id)
        .order_by(experiment.c.name, series.c.name)
    )
    with store.reading() as connection:
        return [tuple(row) for row in connection.execute(query)]


def expected(folders, lines):
    return [
        (folder.name, name, lines, lines // 4)
        for folder in sorted(folders, key=lambda each: each.name)
        for name in ("grad_norm", "loss")
    ]


@pytest.fixture
def url(new_store):
    return new_store()


@pytest.fixture
def store(url):
    opened = Database(url)
    yield opened
    opened.close()


@pytest.fixture
def server(tmp_path, store, url):
    started = Server(tmp_path, url, free_port())
    started.start()
    yield started
    started.kill()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kills", "lines"), [(2, 400), pytest.param(50, 4000, marks=pytest.mark.slow)], ids=["two", "fifty"]
)
def test_kills_of_either_side_lose_and_double_nothing(tmp_path, store, server, kills, lines):
    rng = random.Random(0)
    _, key = Keys(store).create(["read", "write"], project="lab")
    [record] = records_of(tmp_path, lines, "one")
    met = 0
    for number in range(kills):
        pushing = Client(tmp_path, record, server.address, key)
        met += pushing.batches(rng.randrange(1, 5))
        if number % 2:
            pushing.kill()
        else:
            server.kill()
            pushing.ended()
            server.start()
    assert met == kills  # each in the middle of a push
    assert Client(tmp_path, record, server.address, key).ended() == 0
    assert rows_of(store) == expected([record], lines)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("laptops", "lines"), [(3, 200), pytest.param(10, 2000, marks=pytest.mark.slow)], ids=["three", "ten"]
)
def test_laptops_that_push_at_once_lose_and_double_nothing(tmp_path, store, server, laptops, lines):
    """All into one project; two of them send the same record."""
    _, key = Keys(store).create(["read", "write"], project="lab")
    records = records_of(tmp_path, lines, *(f"laptop{number}" for number in range(laptops - 1)))
    clients = [Client(tmp_path, record, server.address, key) for record in [*records, records[0]]]
    assert all(client.batches(1) for client in clients)
    assert [client.ended() for client in clients] == [0] * laptops
    assert rows_of(store) == expected(records, lines)
