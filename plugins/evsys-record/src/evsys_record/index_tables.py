"""The tables of the index of past experiments, and how a record gets into them."""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import attrs

from evsys_record.changes import Changed, KnownExperiment
from evsys_record.encoding import as_tree
from evsys_record.experiment_record import RUNNING, running_or_crashed
from evsys_record.past import PastExperiment, PastRun
from evsys_record.past_files import (
    ReadExperiment,
    ReadRun,
    planned_run,
    read_experiment,
    read_run,
)
from evsys_record.task_contents import TaskContents

__all__ = ["empty", "forget", "full_text", "known_marks", "put", "statuses", "version"]

_TABLES = """
CREATE TABLE experiment (
    id INTEGER PRIMARY KEY, folder TEXT UNIQUE, mark TEXT, running INTEGER, status TEXT, dry INTEGER, moment TEXT,
    finished TEXT, name TEXT, parent TEXT, retracted INTEGER, score REAL, effect REAL, cost REAL, tokens INTEGER, seconds REAL, document TEXT
);
CREATE TABLE run (
    experiment INTEGER, place TEXT, run_id TEXT, folder TEXT, mark TEXT, state TEXT, identity TEXT, algorithm TEXT,
    model TEXT, arm TEXT, boundary TEXT, error_type TEXT, failure TEXT, diverged INTEGER, score REAL, cost REAL, tokens INTEGER, seconds REAL, words TEXT, document TEXT, PRIMARY KEY (experiment, place)
) WITHOUT ROWID;
CREATE TABLE label (experiment INTEGER, kind TEXT, value TEXT, PRIMARY KEY (experiment, kind, value)) WITHOUT ROWID;
CREATE TABLE leaf (id INTEGER PRIMARY KEY, path TEXT, value TEXT, UNIQUE (path, value));
CREATE TABLE arm (experiment INTEGER, arm TEXT, leaves BLOB, PRIMARY KEY (experiment, arm)) WITHOUT ROWID;
CREATE TABLE look (experiment INTEGER, place TEXT, hash TEXT, step INTEGER, PRIMARY KEY (experiment, place, hash, step))
    WITHOUT ROWID;
CREATE TABLE contents (hash TEXT PRIMARY KEY, tasks INTEGER, sketch TEXT, signatures TEXT);
CREATE TABLE asked (experiment INTEGER PRIMARY KEY, key TEXT, finished TEXT, question TEXT, contents TEXT, looks TEXT);
CREATE TABLE entry (experiment INTEGER, name TEXT, split TEXT, hash TEXT, contents TEXT, PRIMARY KEY (experiment, name)) WITHOUT ROWID;
CREATE INDEX asked_key ON asked (key);
CREATE INDEX look_hash ON look (hash);
CREATE INDEX run_mark ON run (experiment, folder, mark);
CREATE INDEX run_identity ON run (identity);
CREATE INDEX label_value ON label (kind, value);
"""
_MEANING = 5
"""Counts what is in the columns, where that changes and their names don't."""

_WORDS = {"fts5": "CREATE VIRTUAL TABLE said USING fts5(words);", "like": "CREATE TABLE said (words TEXT);"}


@functools.cache
def full_text() -> Literal["fts5", "like"]:
    """How words are looked for: by SQLite's full-text index where it is compiled in, else in each text."""
    try:
        with contextlib.closing(sqlite3.connect(":memory:")) as database:
            database.execute(_WORDS["fts5"])
    except sqlite3.OperationalError:
        return "like"
    return "fts5"


def empty() -> sqlite3.Connection:
    """An index of nothing, in memory."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.executescript(_TABLES + _WORDS[full_text()])
    database.execute(f"PRAGMA user_version = {version()}")
    return database


def version() -> int:
    """Changes with the tables and with what is in them, so that no older index is ever misread."""
    fields = (*PastExperiment.__annotations__, *PastRun.__annotations__)
    return zlib.crc32("\n".join((str(_MEANING), _TABLES, _WORDS[full_text()], *fields)).encode()) & 0x7FFFFFFF


def known_marks(database: sqlite3.Connection) -> dict[str, KnownExperiment]:
    """The marks of all that is in an index, by folder."""
    runs: dict[int, dict[str, str]] = {}
    for experiment, folder, mark in database.execute(
        "SELECT experiment, folder, mark FROM run WHERE folder IS NOT NULL"
    ):
        runs.setdefault(experiment, {})[folder] = mark
    return {
        folder: KnownExperiment(mark=mark, runs=runs.get(number, {}))
        for number, folder, mark in database.execute("SELECT id, folder, mark FROM experiment")
    }


def statuses(database: sqlite3.Connection, experiments: Path) -> list[tuple[str, str]]:
    """The status and folder of each experiment that didn't say how it ended, where that isn't what the index has."""
    found = database.execute("SELECT folder, status FROM experiment WHERE running").fetchall()
    present = [(running_or_crashed(experiments / folder), folder, status) for folder, status in found]
    return [(now, folder) for now, folder, before in present if now != before]


def forget(database: sqlite3.Connection, folder: str) -> None:
    """Take an experiment out; nothing happens where it isn't in."""
    number = _number(database, folder)
    if number is None:
        return
    database.execute("DELETE FROM said WHERE rowid = ?", (number,))
    for table in ("run", "label", "arm", "look", "asked", "entry"):
        database.execute(f"DELETE FROM {table} WHERE experiment = ?", (number,))  # noqa: S608 - names of ours
    database.execute("DELETE FROM experiment WHERE id = ?", (number,))


def _number(database: sqlite3.Connection, folder: str) -> int | None:
    found = database.execute("SELECT id FROM experiment WHERE folder = ?", (folder,)).fetchone()
    return None if found is None else int(found[0])


def put(database: sqlite3.Connection, experiments: Path, change: Changed) -> None:
    """Read what changed of one record, and put it in the place of what was known."""
    path = experiments / change.folder
    read = read_experiment(path)
    if change.own:
        forget(database, change.folder)
        _insert_experiment(database, path, change, read)
    number = _number(database, change.folder)
    database.execute("DELETE FROM run WHERE experiment = ? AND folder IS NULL", (number,))
    for folder in (*change.gone, *change.runs):
        database.execute("DELETE FROM run WHERE experiment = ? AND folder = ?", (number, folder))
        database.execute("DELETE FROM look WHERE experiment = ? AND place = ?", (number, folder))
    for folder, mark in change.runs.items():
        _insert_run(database, number, read_run(path / "runs" / folder, read), mark)
    there = {
        run_id for (run_id,) in database.execute("SELECT run_id FROM run WHERE experiment = ?", (number,))
    }
    for run_id in read.arms.keys() - there:
        _insert_run(database, number, ReadRun(past=planned_run(run_id, read), words=""), None)
    said = [read.words, *_words_of_runs(database, number)]
    database.execute("DELETE FROM said WHERE rowid = ?", (number,))
    database.execute("INSERT INTO said (rowid, words) VALUES (?, ?)", (number, _storable("\n".join(said))))


def _words_of_runs(database: sqlite3.Connection, number: int | None) -> Iterator[str]:
    found = database.execute(
        "SELECT words FROM run WHERE experiment = ? AND words != '' ORDER BY run_id", (number,)
    )
    return (words for (words,) in found)


def _insert_experiment(
    database: sqlite3.Connection, path: Path, change: Changed, read: ReadExperiment
) -> None:
    past = read.past
    running = past.status == RUNNING
    used = past.usage
    values = {
        "folder": change.folder,
        "mark": change.mark,
        "running": running,
        "status": running_or_crashed(path) if running else past.status,
        "dry": past.dry,
        "moment": past.moment,
        "finished": past.finished,
        "name": past.name,
        "parent": past.parent,
        "retracted": past.retracted is not None,
        "score": past.after,
        "effect": past.effect,
        "cost": None if used is None else used.cost_usd,
        "tokens": None if used is None else used.tokens,
        "seconds": past.seconds,
        "document": json.dumps(as_tree(past)),
    }
    _insert(database, "experiment", values)
    number = _number(database, change.folder)
    rows = {(number, kind, _storable(value)) for kind, value in (*_labels(past), *read.marks)}
    database.executemany("INSERT INTO label VALUES (?, ?, ?)", rows)
    _insert_question(database, number, read)
    numbers: dict[tuple[str, str], int] = {}
    for arm, leaves in read.leaves.items():
        of_arm = array("I", sorted(_number_of_leaf(database, pair, numbers) for pair in leaves.items()))
        database.execute("INSERT INTO arm VALUES (?, ?, ?)", (number, _storable(arm), of_arm.tobytes()))


def _insert_question(database: sqlite3.Connection, number: int | None, read: ReadExperiment) -> None:
    """Insert the question of an experiment, with its looks and entries; task contents are stored once."""
    for entry in read.entries:
        contents = _contents(database, entry.contents)
        row = (number, _storable(entry.name), entry.split, entry.entry_hash, contents)
        database.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", row)
    if read.asked is None:
        return
    contents = _contents(database, read.asked.contents)
    values = {
        "experiment": number,
        "key": read.asked.key,
        "finished": read.past.finished,
        "question": json.dumps(as_tree(attrs.evolve(read.asked, contents=None))),
        "contents": contents,
        "looks": json.dumps([as_tree(look) for look in read.looks]),
    }
    _insert(database, "asked", values)


def _contents(database: sqlite3.Connection, contents: TaskContents | None) -> str | None:
    if contents is None:
        return None
    values = (contents.hash, contents.tasks, " ".join(contents.sketch), " ".join(contents.signatures))
    # Records of earlier versions have no signatures; those of the same tasks in a newer record hold for them.
    database.execute(
        "INSERT INTO contents VALUES (?, ?, ?, ?) ON CONFLICT (hash) DO UPDATE SET signatures = excluded.signatures "
        "WHERE signatures = ''",
        values,
    )
    return contents.hash


def _number_of_leaf(
    database: sqlite3.Connection, leaf: tuple[str, str], known: dict[tuple[str, str], int]
) -> int:
    """The number of a value at its path. Arms have most of theirs in common, so each is kept once."""
    if leaf not in known:
        pair = (_storable(leaf[0]), _storable(leaf[1]))
        database.execute("INSERT OR IGNORE INTO leaf (path, value) VALUES (?, ?)", pair)
        found = database.execute("SELECT id FROM leaf WHERE path = ? AND value = ?", pair).fetchone()
        known[leaf] = int(found[0])
    return known[leaf]


def _insert_run(database: sqlite3.Connection, number: int | None, read: ReadRun, mark: str | None) -> None:
    past, used = read.past, read.past.usage
    values = {
        "experiment": number,
        "place": f"planned/{past.run_id}" if past.folder is None else past.folder,
        "run_id": past.run_id,
        "folder": past.folder,
        "mark": mark,
        "state": past.status,
        "identity": past.identity,
        "algorithm": past.algorithm,
        "model": past.model,
        "arm": past.label,
        "boundary": past.boundary,
        "error_type": past.error_type,
        "failure": past.failure,
        "diverged": past.diverged,
        "score": past.score,
        "cost": None if used is None else used.cost_usd,
        "tokens": None if used is None else used.tokens,
        "seconds": past.seconds,
        "words": read.words,
        "document": json.dumps(as_tree(past)),
    }
    _insert(database, "run", values)
    looks = [(number, values["place"], found, step) for found, step in read.looks]
    database.executemany("INSERT OR REPLACE INTO look VALUES (?, ?, ?, ?)", looks)


def _insert(database: sqlite3.Connection, table: str, values: dict[str, Any]) -> None:
    places = ", ".join("?" * len(values))
    database.execute(
        f"INSERT OR REPLACE INTO {table} ({', '.join(values)}) VALUES ({places})",  # noqa: S608 - names of ours
        tuple(_storable(value) for value in values.values()),
    )


_LARGEST = 2**63 - 1


def _storable(value: Any) -> Any:
    """SQLite takes no lone surrogates and no integers beyond 64 bits, which JSON may hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return max(-_LARGEST, min(value, _LARGEST)) if isinstance(value, int) else value


def _labels(past: PastExperiment) -> Iterator[tuple[str, str]]:
    """The labels to find an experiment by: names in full, and the part after their last `/`."""
    yield from (("tag", tag) for tag in past.tags)
    yield from (("cites", cited) for cited in past.cites)
    outcomes = [past.verdict, *(comparison.outcome for comparison in past.comparisons)]
    yield from (("outcome", str(outcome).lower()) for outcome in outcomes if outcome)
    for kind, names in (("algorithm", past.algorithms), ("model", past.models), ("backend", past.backends)):
        yield from ((kind, part) for name in names for part in (name, name.rpartition("/")[2]))
