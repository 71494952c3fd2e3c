"""The tables, once for SQLite and PostgreSQL.

A record is kept twice: as the bytes of its files (`file`, `piece`), and as rows for the questions of the API, made from these bytes.
Texts that may hold anything are JSON in a text column, written with escapes, since PostgreSQL takes no U+0000. Series hold their
points packed (`block`): a curve of a million points is two thousand rows, and a number may be NaN in any database. The newest points
are in `series` itself, so that a few more of them change one row.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = [
    "api_key",
    "audit",
    "blob",
    "block",
    "chunk",
    "data_check",
    "data_name",
    "data_origin",
    "data_read",
    "data_version",
    "experiment",
    "file",
    "label",
    "metadata",
    "piece",
    "project",
    "rollout",
    "run",
    "series",
    "session",
]

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite numbers its rows by a column of exactly this type.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")


def _id() -> Column[int]:
    return Column("id", _NUMBER, primary_key=True, autoincrement=True)


def _part_of(table: str, *, primary_key: bool = False) -> Column[int]:
    reference = ForeignKey(f"{table}.id", ondelete="CASCADE")
    return Column(f"{table}_id", _NUMBER, reference, primary_key=primary_key, nullable=False)


project = Table(
    "project",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    Column("version", BigInteger, nullable=False, default=0),  # counts the changes to its experiments
)

experiment = Table(
    "experiment",
    metadata,
    _id(),
    _part_of("project"),
    Column("name", Text, nullable=False),  # its folder
    Column("version", BigInteger, nullable=False, default=0),  # of the project, at its last change
    Column("summarised", BigInteger, nullable=False, default=-1),  # the version that the columns below are of
    Column("seen", Float, nullable=False, default=0.0),  # when something last came, seconds since 1970
    Column("title", Text),
    Column("status", Text),
    Column("dry", Boolean, nullable=False, default=False),
    Column("moment", Text),
    Column("verdict", Text),
    Column("effect", Float),
    Column("cost", Float),
    Column("seconds", Float),
    Column("parent", Text),
    Column("words", Text),  # lower case
    Column("document", Text),  # PastExperiment as JSON
    UniqueConstraint("project_id", "name"),
    Index(None, "project_id", "version"),
    Index(None, "project_id", "moment"),
)

label = Table(
    "label",
    metadata,
    _part_of("experiment", primary_key=True),
    Column("kind", Text, primary_key=True),  # tag, goal, plugin
    Column("value", Text, primary_key=True),
    Index(None, "kind", "value"),
)

run = Table(
    "run",
    metadata,
    _id(),
    _part_of("experiment"),
    Column("name", Text, nullable=False),  # its folder
    Column("version", BigInteger, nullable=False, default=0),
    Column("status", Text),
    Column("document", Text),  # PastRun as JSON
    Column("attempts", Text),  # of run.json
    UniqueConstraint("experiment_id", "name"),
)

file = Table(
    "file",
    metadata,
    _id(),
    _part_of("experiment"),
    Column("path", Text, nullable=False),
    Column("size", BigInteger, nullable=False, default=0),  # bytes held
    Column("digest", Text, nullable=False, default=""),  # of these: CRC-32 of lines, SHA-256 of a whole file
    Column("generation", BigInteger, nullable=False, default=0),  # counts how often it began again
    Column("rest", LargeBinary, nullable=False, default=b""),  # of a line that isn't complete yet
    UniqueConstraint("experiment_id", "path"),
)

piece = Table(
    "piece",
    metadata,
    _part_of("file", primary_key=True),
    Column("place", BigInteger, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),  # zlib
)

series = Table(
    "series",
    metadata,
    _id(),
    _part_of("run"),
    Column("phase", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("count", BigInteger, nullable=False, default=0),
    Column("last_step", BigInteger),
    Column("last", Float),
    Column("low", Float),
    Column("high", Float),
    Column("blocks", BigInteger, nullable=False, default=0),
    Column("tail_attempt", Integer),
    Column("tail", LargeBinary),  # the points behind the last block, packed alike
    UniqueConstraint("run_id", "phase", "name"),
)

block = Table(
    "block",
    metadata,
    _part_of("series", primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("count", Integer, nullable=False),
    Column("first_step", BigInteger),  # this and the next four: None in blocks of older versions
    Column("last_step", BigInteger),
    Column("low", Float),  # of the finite values; None without any
    Column("high", Float),
    Column("ascending", Boolean),  # each step is above the one before
    Column("data", LargeBinary, nullable=False),  # steps as int64, then values as float64, little-endian
)

rollout = Table(
    "rollout",
    metadata,
    _part_of("run", primary_key=True),
    Column("phase", Text, primary_key=True),
    Column("place", BigInteger, primary_key=True, autoincrement=False),  # its line's first byte
    Column("length", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("benchmark", Text),
    Column("task", Text, nullable=False),
    Column("sample", Integer, nullable=False),
    Column("score", Float),
    Column("facts", Text, nullable=False),  # more that a table shows, as JSON
    Index(None, "run_id", "benchmark", "task"),
)

api_key = Table(
    "api_key",
    metadata,
    _id(),
    Column("prefix", Text, nullable=False, unique=True),
    Column("digest", LargeBinary, nullable=False),
    Column("scopes", Text, nullable=False),  # separated by spaces
    Column("project", Text),  # None: all projects
    Column("note", Text),
    Column("created", Text, nullable=False),
    Column("revoked", Text),
)

session = Table(
    "session",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    _part_of("api_key"),
    Column("token", Text, nullable=False),  # that a page sends with each change
    Column("expires", Float, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    _id(),
    Column("at", Text, nullable=False),
    Column("key", Text),
    Column("address", Text),
    Column("action", Text, nullable=False),
    Column("project", Text),
    Column("facts", Text, nullable=False),
)

# --- datasets and benchmarks ---

blob = Table(
    "blob",
    metadata,
    _id(),
    _part_of("project"),
    Column("digest", Text, nullable=False),  # SHA-256 of its bytes: JSON lines
    Column("size", BigInteger, nullable=False),
    Column("rows", BigInteger),  # None until all of it is there and was checked
    Column("sealed", Boolean, nullable=False, default=False),  # of a test set
    Column("seen", Float, nullable=False),  # when something last came of it, seconds since 1970
    UniqueConstraint("project_id", "digest"),
)

chunk = Table(
    "chunk",
    metadata,
    _part_of("blob", primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", Text, nullable=False),  # SHA-256 of its bytes
    Column("first_row", BigInteger),  # the row that its first byte belongs to
    Column("data", LargeBinary, nullable=False),  # zlib
)

data_name = Table(
    "data_name",
    metadata,
    _id(),
    _part_of("project"),
    Column("kind", Text, nullable=False),  # datasets, benchmarks
    Column("name", Text, nullable=False),
    UniqueConstraint("project_id", "kind", "name"),
)

data_version = Table(
    "data_version",
    metadata,
    _id(),
    _part_of("data_name"),
    Column("number", Integer, nullable=False),  # from 1
    Column("ref", Text, nullable=False),  # the ID, which experiment files name
    _part_of("blob"),
    Column("created", Text, nullable=False),
    Column("key", Text),  # the printable part of the one that made it
    Column("note", Text),
    Column("file", Text),  # its name where it was uploaded
    UniqueConstraint("data_name_id", "number"),
    UniqueConstraint("data_name_id", "blob_id"),
)

data_origin = Table(
    "data_origin",
    metadata,
    _part_of("data_version", primary_key=True),
    Column(
        "origin_id", _NUMBER, ForeignKey("data_version.id", ondelete="CASCADE"), primary_key=True, index=True
    ),
)

data_read = Table(
    "data_read",
    metadata,
    _id(),
    _part_of("blob"),
    Column("at", Float, nullable=False),  # seconds since 1970
    Column("key", Text),
    Column("how", Text, nullable=False),  # rows, pull
    Index(None, "blob_id", "key"),
)

data_check = Table(
    "data_check",
    metadata,
    Column("dataset_id", _NUMBER, ForeignKey("blob.id", ondelete="CASCADE"), primary_key=True),
    Column("benchmark_id", _NUMBER, ForeignKey("blob.id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("document", Text, nullable=False),  # a BenchmarkCheck as JSON
)
