"""A server is upgraded, and its database with it, while clients try to send."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sides import Server, free_port
from stored_curves import stored_curve

from evsys_dashboard.ingest.ingest import Ingest
from evsys_dashboard.push.follow import LocalTarget
from evsys_dashboard.push.pusher import Pusher
from evsys_dashboard.push.sender import Sender
from evsys_dashboard.push.server import ServerTarget
from evsys_dashboard.store import migrations
from evsys_dashboard.store.database import Database
from evsys_dashboard.store.keys import Keys
from evsys_dashboard.store.tables import rollout, series

SCRIPTS = ScriptDirectory(str(Path(migrations.__file__).parent))


def first_version_of(store: Database, url: str) -> None:
    """Fill a new database as the first version of the schema had it with the contents of a store."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:

        def steps(revision, _):
            return SCRIPTS._upgrade_revs("0001", revision)

        with EnvironmentContext(Config(), SCRIPTS, fn=steps) as environment:
            environment.configure(connection=connection)
            environment.run_migrations()
        tables = sa.MetaData()
        tables.reflect(connection)
        with store.reading() as source:
            for table in tables.sorted_tables:
                if table.name != "alembic_version":
                    columns = ", ".join(f'"{column.name}"' for column in table.c)
                    rows = source.exec_driver_sql(f'SELECT {columns} FROM "{table.name}"').mappings().all()
                    if rows:
                        connection.execute(table.insert(), [dict(row) for row in rows])
            for row in source.execute(sa.select(series).where(series.c.tail.is_not(None))).mappings():
                tail = {"number": row["blocks"], "attempt": row["tail_attempt"], "data": row["tail"]}
                count = len(row["tail"]) // 16
                connection.execute(
                    tables.tables["block"].insert().values(series_id=row["id"], count=count, **tail)
                )
        if engine.dialect.name == "postgresql":
            for name in ("project", "experiment", "run", "file", "series", "api_key", "audit"):
                connection.exec_driver_sql(
                    f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), (SELECT coalesce(max(id), 1) FROM {name}))"
                )
    engine.dispose()


@pytest.mark.timeout(600)
def test_an_upgraded_server_has_each_line_once(tmp_path, lab, new_store):
    first, url = Database(new_store()), new_store()
    record = lab.begin("one")
    run = lab.run(record, steps=700, rollouts=40)
    pusher = Pusher(record.directory, LocalTarget(Ingest(first), "lab"))
    assert pusher.push()  # what the server of the first version took in
    _, key = Keys(first).create(["read", "write"], project="lab")
    first_version_of(first, url)
    first.close()

    server = Server(tmp_path, url, free_port())
    target = ServerTarget(server.address, key, "lab")
    sender = Sender(Pusher(record.directory, target), seconds=0.05, at_end=target.close)
    sender.start()
    while sender.failure is None:  # the server is being upgraded
        pass
    for step in range(701, 1401):
        run.metrics(step, {"loss": 1 / step, "grad_norm": float("nan")})
    run.close()
    lab.end(record)
    server.start()
    try:
        assert sender.finish(300)
        server.kill()
        server.start()  # once more, now that the schema is the newest
        sender.close(30)
    finally:
        server.kill()

    store = Database(url)
    with store.reading() as connection:
        version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        rows = connection.execute(sa.select(series).where(series.c.name == "loss")).mappings().all()
        curve = stored_curve(connection, rows[0]["id"])
        rollouts = connection.execute(sa.select(sa.func.count()).select_from(rollout)).scalar()
    store.close()
    assert version == SCRIPTS.get_current_head()
    assert [row["count"] for row in rows] == [1400]
    assert curve.steps == list(range(1, 1401))
    assert curve.low == [1 / step for step in range(1, 1401)]
    assert rollouts == 40
