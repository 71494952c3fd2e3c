"""However a record is cut into batches, sent again or interrupted, the store ends with the same bytes and rows."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab_records import Lab
from stored_curves import stored_curve

from evsys.errors import ConfigError
from evsys_dashboard.ingest.ingest import Ingest
from evsys_dashboard.ingest.pieces import Piece, digest_of, is_lines, pack, unpack
from evsys_dashboard.store.database import Database
from evsys_dashboard.store.records import HeldRecords
from evsys_dashboard.store.tables import experiment, project, rollout, run, series

METRICS = "runs/a/training/metrics.jsonl"


def rows_of(database: Database) -> list:
    """What the store says of a record, without the numbers of rows."""
    with database.reading() as connection:
        curves = [
            (row.phase, row.name, row.count, row.last_step, row.low, row.high, *_points(connection, row.id))
            for row in connection.execute(sa.select(series).order_by(series.c.phase, series.c.name))
        ]
        names = [column for column in rollout.c if column.name != "run_id"]
        return [*curves, *connection.execute(sa.select(*names).order_by(rollout.c.place)).all()]


def _points(connection: sa.Connection, number: int) -> tuple[list[int], list[float | str]]:
    """The steps and values of a series; NaN, which equals nothing, by its name."""
    found = stored_curve(connection, number)
    return list(found.steps), [value if value == value else "nan" for value in found.low]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.stat().st_size
    }


def line(step: int, attempt: int = 1, **values: object) -> bytes:
    return json.dumps({"attempt": attempt, "step": step, "values": values}).encode() + b"\n"


@pytest.fixture(scope="module")
def record(tmp_path_factory, new_store):
    """A record, and the rows and bytes that it has in a store that took it at once."""
    lab = Lab(tmp_path_factory.mktemp("lab"))
    folder = lab.whole("one", hypothesis="It holds.").directory
    files = contents(folder)
    store = Database(new_store())
    Ingest(store).take("lab", "one", [Piece(file=name, data=data) for name, data in files.items()])
    yield files, rows_of(store)
    store.close()


def test_a_record_comes_back_byte_for_byte(record, ingest, records):
    files, _ = record
    ingest.take("lab", "one", [Piece(file=name, data=data) for name, data in files.items()])
    assert contents(records.experiment("lab", "one")) == files


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_split_into_batches_with_any_resends_gives_the_same_rows(
    record, tmp_path_factory, new_store, data
):
    files, rows = record
    store = Database(new_store())
    ingest = Ingest(store)
    pieces = []
    for name, whole in files.items():
        if not is_lines(name):
            pieces.append(Piece(file=name, data=whole))
            continue
        cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
        starts = [0, *(max(0, cut - data.draw(st.integers(0, 40))) for cut in cuts)]
        pieces += [
            Piece(file=name, place=start, data=whole[start:end])
            for start, end in zip(starts, [*cuts, len(whole)], strict=True)
        ]
    while pieces:
        count = data.draw(st.integers(1, len(pieces)))
        ingest.take("lab", "one", pieces[:count])
        if data.draw(st.booleans()):
            ingest.take("lab", "one", pieces[:count])
        pieces = pieces[count:]
    held = {each.file: (each.size, each.digest) for each in ingest.held("lab", "one")}
    assert held == {name: (len(whole), digest_of(name, whole)) for name, whole in files.items()}
    assert rows_of(store) == rows
    records = HeldRecords(store, tmp_path_factory.mktemp("held"))
    assert contents(records.experiment("lab", "one")) == files
    store.close()


def test_a_batch_that_changes_nothing_leaves_the_version(ingest):
    pieces = [Piece(file=METRICS, data=line(1, loss=0.5))]
    first = ingest.take("lab", "one", pieces)
    again = ingest.take("lab", "one", pieces)
    assert (first.version, first.changed) == (1, (METRICS,))
    assert (again.version, again.changed, again.held) == (1, (), first.held)


def test_a_piece_that_would_leave_a_gap_is_not_taken(ingest):
    whole = line(1, loss=0.5) + line(2, loss=0.25)
    taken = ingest.take("lab", "one", [Piece(file=METRICS, place=20, data=whole[20:])])
    assert [each.size for each in taken.held] == [0]


def test_a_file_that_begins_again_replaces_its_rows(ingest, database):
    ingest.take("lab", "one", [Piece(file=METRICS, data=line(1, loss=0.5, old=1.0))])
    ingest.take("lab", "one", [Piece(file=METRICS, data=line(1, loss=0.75), restart=True)])
    assert [(row[1], row[2], row[-1]) for row in rows_of(database)] == [("loss", 1, [0.75])]


def test_a_file_that_was_renamed_is_gone(ingest, records):
    ingest.take("lab", "one", [Piece(file="conclusion.json", data=b"{}")])
    folder = records.experiment("lab", "one")
    ingest.take(
        "lab", "one", [Piece(file="conclusion.json", gone=True), Piece(file="conclusion.1.json", data=b"{}")]
    )
    assert contents(records.experiment("lab", "one")) == contents(folder) == {"conclusion.1.json": b"{}"}


def test_torn_and_foreign_lines_have_no_rows_but_keep_their_bytes(ingest, database, records):
    odd = [
        b'{"attempt": 1, "st\x18\n',
        b"[]\n",
        b'"text"\n',
        b"\xff\n",
        line(10**30, loss=1.0),
        line(2, loss="no", odd=True),
    ]
    whole = b"".join([*odd, line(3, loss=None)])
    ingest.take("lab", "one", [Piece(file=METRICS, data=whole)])
    assert [row[1:6] for row in rows_of(database)] == [("loss", 1, 3, None, None)]
    assert contents(records.experiment("lab", "one")) == {METRICS: whole}


def test_blocks_are_filled_over_many_batches(ingest, database):
    place = 0
    for step in range(1, 1301, 100):
        data = b"".join(line(each, loss=float(each)) for each in range(step, step + 100))
        ingest.take("lab", "one", [Piece(file=METRICS, place=place, data=data)])
        place += len(data)
    (row,) = rows_of(database)
    assert row[2:6] == (1300, 1300, 1.0, 1300.0)
    assert row[6] == list(range(1, 1301))
    with database.reading() as connection:
        extents = connection.exec_driver_sql(
            "SELECT count, first_step, last_step, low, high FROM block ORDER BY number"
        ).all()
    assert extents == [(512, 1, 512, 1.0, 512.0), (512, 513, 1024, 513.0, 1024.0)]


@pytest.mark.parametrize(
    ("name", "piece"),
    [
        ("../one", Piece(file="experiment.json")),
        ("one", Piece(file="../experiment.json")),
        ("one", Piece(file="/etc/passwd")),
        ("one", Piece(file="runs/.lock")),
        ("one", Piece(file="a\x00b")),
        ("one", Piece(file="a\\b")),
        ("one", Piece(file="\ud800")),
        ("one", Piece(file="\u00e9" * 150)),
        ("one", Piece(file="experiment.json", place=3)),
        ("one", Piece(file="events.jsonl", place=-3)),
    ],
)
def test_names_that_lead_elsewhere_are_refused_and_nothing_is_taken(ingest, database, name, piece):
    with pytest.raises(ConfigError, match="invalid"):
        ingest.take("lab", name, [Piece(file="config.yaml", data=b"x"), piece])
    with database.reading() as connection:
        counted = [
            connection.execute(sa.select(sa.func.count()).select_from(table)).scalar()
            for table in (project, experiment, run)
        ]
    assert counted == [0, 0, 0]


@given(
    st.lists(
        st.builds(
            Piece,
            file=st.text(),
            place=st.integers(),
            data=st.binary(),
            restart=st.booleans(),
            gone=st.booleans(),
        )
    )
)
def test_batches_travel_unchanged(pieces):
    assert unpack(pack(pieces)) == pieces


@given(st.binary())
def test_any_other_body_is_refused(body):
    with pytest.raises(ConfigError):
        unpack(body)


@pytest.mark.parametrize("change", [lambda body: body[:-3], lambda body: body + b"x"])
def test_a_body_that_is_cut_off_is_refused(change):
    import zlib

    with pytest.raises(ConfigError):
        unpack(
            change(pack([Piece(file="a", data=b"abc")]))
            if change(b"abcd") == b"a"
            else zlib.compress(b'[{"file":"a","place":0,"bytes":9}]\nabc')
        )


def test_a_batch_that_unpacks_to_too_much_is_refused(monkeypatch):
    from evsys_dashboard.ingest import pieces

    monkeypatch.setattr(pieces, "MOST_UNPACKED", 1000)
    with pytest.raises(ConfigError, match="more than 1000 bytes"):
        unpack(pack([Piece(file="a", data=b"x" * 1000)]))


@pytest.mark.parametrize(
    "name", ["..", "../../other", "/etc", "a/b", "a\\b", "a\0b", ".hidden", "\u00e9" * 150, ""]
)
def test_a_project_that_would_lead_elsewhere_is_refused(ingest, records, name):
    with pytest.raises(ConfigError, match="invalid project name"):
        ingest.take(name, "one", [Piece(file="config.yaml", data=b"x")])
    with pytest.raises(ConfigError, match="invalid project name"):
        records.experiment(name, "one")


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a"), ("a", "a/b/c")])
@pytest.mark.parametrize("together", [True, False])
def test_a_file_where_another_has_a_folder_is_refused(ingest, records, names, together):
    first, second = (Piece(file=name, data=b"x") for name in names)
    with pytest.raises(ConfigError, match="one is a folder of the other"):
        if together:
            ingest.take("lab", "one", [first, second])
        else:
            ingest.take("lab", "one", [first])
            ingest.take("lab", "one", [second])
    records.experiment("lab", "one")


def test_a_line_without_end_is_refused(ingest, monkeypatch):
    from evsys_dashboard.ingest import ingest as room

    monkeypatch.setattr(room, "LONGEST_LINE", 1000)
    ingest.take("lab", "one", [Piece(file="events.jsonl", data=b"x" * 900 + b"\n" + b"x" * 900)])
    with pytest.raises(ConfigError, match="a line of more than 1000 bytes"):
        ingest.take("lab", "one", [Piece(file="events.jsonl", place=1801, data=b"x" * 200)])


def test_a_batch_of_too_many_pieces_is_refused(monkeypatch):
    from evsys_dashboard.ingest import pieces

    monkeypatch.setattr(pieces, "MOST_PIECES", 2)
    with pytest.raises(ConfigError, match="at most 2"):
        unpack(pack([Piece(file="a")] * 3))


def test_a_list_of_pieces_that_is_too_long_is_refused_before_it_is_read(monkeypatch):
    from evsys_dashboard.ingest import pieces

    monkeypatch.setattr(pieces, "MOST_LISTED", 10)
    with pytest.raises(ConfigError, match="more than 10 bytes"):
        unpack(pack([Piece(file="a")]))


def test_a_batch_with_numbers_that_are_not_whole_is_refused():
    import zlib

    with pytest.raises(ConfigError, match="list of its pieces"):
        unpack(zlib.compress(b'[{"file": "a", "place": 0, "bytes": 1e999}]\n'))


def test_batches_that_come_at_once_share_a_transaction(database, monkeypatch):
    """A batch that is refused among them leaves the others as they are."""
    ingest, entered, go = Ingest(database), threading.Event(), threading.Event()
    transactions, writing = [], Database.writing

    def counted(self):
        transactions.append(1)
        if len(transactions) == 1:
            entered.set()
            assert go.wait(30)
        return writing(self)

    monkeypatch.setattr(Database, "writing", counted)
    sent = {name: [Piece(file=METRICS, data=line(1, loss=float(name)))] for name in "01234"}
    sent["refused"] = [Piece(file="a", data=b"1"), Piece(file="a/b", data=b"1")]
    with ThreadPoolExecutor(len(sent)) as pool:
        first = pool.submit(ingest.take, "lab", "0", sent.pop("0"))
        assert entered.wait(30)
        others = {name: pool.submit(ingest.take, "lab", name, pieces) for name, pieces in sent.items()}
        while len(ingest._waiting) < 1 + len(others):
            pass
        go.set()
        assert first.result().changed == (METRICS,)
        with pytest.raises(ConfigError, match="one is a folder of the other"):
            others.pop("refused").result()
        assert {future.result().changed for future in others.values()} == {(METRICS,)}
    assert len(transactions) == 1 + 1 + 5  # the first; all others, undone; each by itself
    with database.reading() as connection:
        assert connection.execute(
            sa.select(experiment.c.name).order_by(experiment.c.name)
        ).scalars().all() == [*"01234"]
        assert connection.execute(sa.select(sa.func.sum(series.c.count))).scalar() == 5


@pytest.mark.parametrize("name", ["run.json", "training/rollouts.jsonl"])
def test_only_files_that_summaries_are_made_from_make_them_stale(ingest, database, name):
    def stale() -> bool:
        with database.reading() as connection:
            row = connection.execute(sa.select(experiment)).one()
        return row.summarised < row.version

    ingest.take("lab", "one", [Piece(file="experiment.json", data=b"{}")])
    with database.writing() as connection:
        connection.execute(sa.update(experiment).values(summarised=experiment.c.version))
    ingest.take("lab", "one", [Piece(file=f"runs/a/{name}", data=b"{}\n")])
    assert stale() == (name == "run.json")
    ingest.take("lab", "one", [Piece(file="retractions.jsonl", data=b"{}\n")])
    assert stale()
