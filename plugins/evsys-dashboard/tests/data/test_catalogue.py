"""Versions on a database: made of bytes that came in chunks, never changed, found by ID and by name."""

import hashlib
import itertools
import json
import zlib

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evsys.errors import ConfigError, DataError
from evsys_dashboard.data import blobs
from evsys_dashboard.data.catalogue import DataStore
from evsys_dashboard.data.chunks import lines_of, pack_chunk, unpack_chunk
from evsys_dashboard.data.client import checked_file
from evsys_dashboard.data.shapes import is_id, refuse_odd_name, version_id
from evsys_dashboard.store.tables import blob

ROWS = [{"question": f"q{number} \u2028é", "answer": number} for number in range(9)]


@pytest.fixture
def store(database):
    return DataStore(database)


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 64 bytes, so that rows lie across them."""
    for room in ("blobs", "chunks", "catalogue"):
        monkeypatch.setattr(f"evsys_dashboard.data.{room}.CHUNK", 64)
    return 64


def data_of(rows):
    with checked_file(rows, "rows") as file:
        file.stream.seek(0)
        return file.stream.read()


def digest_of(data):
    return hashlib.sha256(data).hexdigest()


def send(store, data, *, project="lab", numbers=None):
    digest = digest_of(data)
    state = store.begin(project, digest, len(data))
    size = blobs.CHUNK
    for number in range((len(data) - 1) // size + 1) if numbers is None else numbers:
        state = store.take(project, digest, number, pack_chunk(data[number * size :][:size]))
    return state


def upload(store, name="faq", rows=ROWS, *, project="lab", kind="datasets", **options):
    data = data_of(rows)
    send(store, data, project=project)
    return store.add(project, kind, name, digest_of(data), **options)


def test_a_version_is_found_by_its_id_and_the_latest_by_its_name(store):
    first = upload(store).version
    second = upload(store, rows=ROWS[:3], made_from=[first.id], note="shorter").version
    assert (first.number, second.number, second.rows) == (1, 2, 3)
    assert first.id == version_id("faq", digest_of(data_of(ROWS)))
    assert store.find("lab", "datasets", "faq").version == second
    assert store.find("lab", "datasets", first.id).version == first
    assert second.made_from == (first.id,)
    shown = store.show("lab", store.find("lab", "datasets", first.id), readable=True)
    assert (shown.made_into, shown.latest) == ((second.id,), second.id)
    [listed] = store.catalogue("lab", "datasets").names
    assert (listed.name, listed.versions, listed.latest) == ("faq", 2, second)


def test_uploading_the_same_bytes_again_makes_nothing(store):
    first = upload(store)
    again = upload(store, note="again")
    assert (first.existed, again.existed) == (False, True)
    assert again.version == first.version
    assert len(store.versions("lab", "datasets", "faq").versions) == 1


def test_the_same_bytes_are_kept_once_under_two_names_and_apart_in_two_projects(store, database):
    upload(store, "a")
    upload(store, "b")
    upload(store, "a", project="other")
    with database.reading() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(blob)).scalar() == 2


def test_an_upload_continues_with_the_chunks_that_are_missing(store, small_chunks):
    data = data_of(ROWS)
    assert send(store, data, numbers=[0, 2]).received == (0, 2)
    with pytest.raises(ConfigError, match="chunks are missing"):
        store.add("lab", "datasets", "faq", digest_of(data))
    assert store.begin("lab", digest_of(data), len(data)).received == (0, 2)
    send(store, data)
    assert store.add("lab", "datasets", "faq", digest_of(data)).version.rows == 9


@pytest.mark.parametrize("first", range(11))
def test_a_page_begins_at_any_row_wherever_chunks_are_cut(store, small_chunks, first):
    upload(store)
    found = store.find("lab", "datasets", "faq")
    rows, after = store.blobs.page(found.blob_id, 9, first, 4)
    assert [row.row for row in rows] == ROWS[first : first + 4]
    assert [row.number for row in rows] == list(range(first, min(first + 4, 9)))
    assert after == (first + 4 if first + 4 < 9 else None)


def test_a_page_of_long_rows_is_short_and_a_row_too_long_is_cut(store):
    rows = [{"text": "x" * 200_000} for _ in range(20)] + [{"text": "y" * 300_000}]
    upload(store, rows=rows)
    found = store.find("lab", "datasets", "faq")
    page, after = store.blobs.page(found.blob_id, 21, 0, 200)
    assert after == len(page) < 20
    [long], _ = store.blobs.page(found.blob_id, 21, 20, 1)
    assert long.row is None
    assert len(long.text) == 20_000


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"a":1}', "no line end"),
        (b'{"a":1}\n[1]\n', "line 2 is a JSON list"),
        (b'{"a":1}\n\n', "line 2 isn't JSON"),
        (b'{"a": 1}\n', "isn't written as"),
        (b'{"a":NaN}\n', "isn't written as"),
        (b"\xff\n", "line 1 isn't JSON"),
        (b'{"a":' + b"[" * 30_000 + b"\n", "line 1 isn't JSON"),
    ],
)
def test_bytes_that_are_not_rows_are_refused_and_forgotten(store, data, problem):
    send(store, data)
    with pytest.raises(ConfigError, match=problem):
        store.add("lab", "datasets", "faq", digest_of(data))
    assert store.begin("lab", digest_of(data), len(data)).received == ()


def test_bytes_of_another_hash_are_refused_and_forgotten(store):
    data = data_of(ROWS)
    wrong = digest_of(b"something else")
    store.begin("lab", wrong, len(data))
    store.take("lab", wrong, 0, pack_chunk(data))
    with pytest.raises(ConfigError, match="have another hash"):
        store.add("lab", "datasets", "faq", wrong)
    with pytest.raises(ConfigError, match="no upload of this hash was begun"):
        store.take("lab", wrong, 0, pack_chunk(data))


@pytest.mark.parametrize(
    ("packed", "size"),
    [
        (zlib.compress(bytes(1 << 26)), 10),
        (b"nonsense", 10),
        (b"", 10),
        (zlib.compress(b"0123456789")[:-1], 10),
        (zlib.compress(b"0123456789") + b"x", 10),
        (zlib.compress(b"012345678"), 10),
    ],
)
def test_a_chunk_unpacks_to_its_size_exactly(packed, size):
    with pytest.raises(ConfigError):
        unpack_chunk(packed, size)


@pytest.mark.parametrize("size", [0, -1, (1 << 30) + 1])
def test_the_size_of_a_version_is_bounded(store, size):
    with pytest.raises(ConfigError, match="bytes can't be taken"):
        store.begin("lab", "0" * 64, size)


@pytest.mark.parametrize("number", [-1, 1, 10**6])
def test_a_chunk_beyond_the_end_is_refused(store, number):
    store.begin("lab", "0" * 64, 10)
    with pytest.raises(ConfigError, match="there is no chunk"):
        store.take("lab", "0" * 64, number, pack_chunk(b"0123456789"))


@pytest.mark.parametrize("digest", ["", "x", "0" * 63, "G" * 64, "../" + "0" * 61, "\x00", "\ud800"])
def test_a_hash_that_is_none_is_refused(store, digest):
    for ask in (
        lambda: store.begin("lab", digest, 10),
        lambda: store.take("lab", digest, 0, pack_chunk(b"x")),
        lambda: store.add("lab", "datasets", "faq", digest),
    ):
        with pytest.raises(ConfigError, match="is not a SHA-256"):
            ask()


def test_only_so_many_uploads_are_incomplete_and_abandoned_ones_make_room(store, database, monkeypatch):
    for number in range(blobs.MOST_PENDING):
        store.begin("lab", f"{number:064x}", 10)
    with pytest.raises(ConfigError, match="uploads of the project are incomplete"):
        store.begin("lab", "f" * 64, 10)
    store.begin("other", "f" * 64, 10)
    with database.writing() as connection:
        connection.execute(sa.update(blob).where(blob.c.digest == f"{3:064x}").values(seen=0.0))
    store.begin("lab", "f" * 64, 10)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a\\b",
        "/etc/passwd",
        "-x",
        ".x",
        "a\n",
        "a b",
        "ä",
        "x" * 81,
        "a:b",
        "a\0",
        "faq-0123456789ab",
    ],
)
def test_a_name_that_could_be_a_path_or_an_id_is_refused(store, name):
    data = data_of(ROWS)
    send(store, data)
    with pytest.raises(ConfigError, match="invalid name"):
        store.add("lab", "datasets", name, digest_of(data))


@pytest.mark.parametrize("project", ["..", "a/b", ".evsys", "a\0b", "x" * 201])
def test_a_project_that_could_be_a_path_is_refused(store, project):
    with pytest.raises(ConfigError, match="invalid project name"):
        store.begin(project, "0" * 64, 10)


@given(
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", fullmatch=True),
    digest=st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
)
def test_an_id_is_never_a_name_and_names_its_name(name, digest):
    version = version_id(name, digest)
    assert is_id(version)
    with pytest.raises(ConfigError):
        refuse_odd_name(version)


@given(
    data=st.lists(st.binary(max_size=20).filter(lambda part: b"\n" not in part)),
    cuts=st.lists(st.integers(0, 200)),
)
def test_lines_are_the_same_however_a_file_is_cut(data, cuts):
    whole = b"".join(part + b"\n" for part in data)
    places = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    parts = [whole[start:end] for start, end in itertools.pairwise(places)]
    assert list(lines_of(iter(parts))) == data


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(rows=st.lists(st.dictionaries(st.text(), VALUES, max_size=3), min_size=1, max_size=4))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_rows_come_back_as_they_were_sent_and_again_as_the_same_bytes(store, rows):
    data = data_of(rows)
    found = upload(store, rows=rows).version
    blob_id = store.find("lab", "datasets", found.id).blob_id
    back = [json.loads(line) for line in store.blobs.lines(blob_id)]
    assert data_of(back) == data


def test_an_unknown_name_id_or_origin_gets_the_nearest_one(store):
    known = upload(store).version.id
    for ref, message in (
        ("fqa", r"no dataset 'fqa'; did you mean 'faq'"),
        (
            "faq-000000000000",
            rf"dataset 'faq' has no version 'faq-0+'; did you mean '{known}'|known: {known}",
        ),
        ("zzzz", "known: faq"),
    ):
        with pytest.raises(DataError, match=message):
            store.find("lab", "datasets", ref)
    with pytest.raises(DataError, match="no benchmark 'faq'; none was uploaded yet"):
        store.find("lab", "benchmarks", "faq")
    with pytest.raises(ConfigError, match=f"no version has the ID '{known[:-1]}'; did you mean '{known}'"):
        upload(store, "other", made_from=[known[:-1]])
    with pytest.raises(DataError, match="no project is called 'nowhere'"):
        store.find("nowhere", "datasets", "faq")


def test_a_test_set_is_sealed_under_every_name_and_never_opened_again(store):
    upload(store, "a", kind="benchmarks", split="val")
    assert store.find("lab", "benchmarks", "a").version.split == "val"
    upload(store, "b", kind="benchmarks", split="test")
    upload(store, "b", kind="benchmarks", split="val")
    upload(store, "c", kind="datasets")
    for kind, name in (("benchmarks", "a"), ("benchmarks", "b"), ("datasets", "c")):
        assert store.find("lab", kind, name).version.split == "test"


def test_reads_of_a_test_set_are_counted_once_a_pull_and_once_a_page(store):
    upload(store, kind="benchmarks", split="test")
    found = store.find("lab", "benchmarks", "faq")
    assert store.count_read(found, key="a", how="rows") == 0
    assert store.count_read(found, key="a", how="pull") == 1
    assert store.count_read(found, key="a", how="chunk") is None
    assert store.count_read(found, key="b", how="chunk") == 2  # a pull whose first chunk came otherwise
    assert store.count_read(found, key=None, how="chunk") == 3
    assert store.count_read(found, key=None, how="chunk") is None
    assert store.show("lab", found, readable=True).reads == 4
    assert store.reads_of_tests("lab") == {"faq": 4}
