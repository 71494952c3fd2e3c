"""The index says what the files say, whatever happened to either."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from evsys_record import changes, index_tables
from evsys_record import index as index_module
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.files import read_json, write_json
from evsys_record.history import Question, ask
from evsys_record.index import Index, index_path

ALL = Question(runs=True)


def known(index):
    """Everything that can be asked for."""
    index.refresh()
    tables = ("experiment", "run", "label", "said")
    found = {name: index.rows(f"SELECT * FROM {name}") for name in tables}
    folders = {row[0]: row[1] for row in found["experiment"]}
    # Numbers of rows, and marks of files that have only just changed, may differ.
    experiments = sorted(row[1:2] + row[3:] for row in found["experiment"])
    runs = sorted((folders[row[0]], *row[1:4], *row[5:]) for row in found["run"])
    labels = sorted((folders[row[0]], *row[1:]) for row in found["label"])
    words = index.rows("SELECT e.folder, s.words FROM said s JOIN experiment e ON e.id = s.rowid")
    return experiments, runs, labels, sorted(words)


def from_files(experiments, tmp_path):
    with Index(experiments, path=tmp_path / "nowhere" / "index.sqlite") as index:
        return known(index)


def old(experiments):
    """As if nothing had changed for a while."""
    for path in [*experiments.rglob("*.json"), *experiments.glob("*/runs")]:
        os.utime(path, (1_700_000_000, 1_700_000_000))


@pytest.fixture
def told():
    return []


@pytest.fixture
def index(past, told):
    with Index(past.experiments, tell=told.append) as made:
        yield made


@pytest.fixture
def reads(monkeypatch):
    """The experiments that were read."""
    seen = []
    real = index_tables.read_experiment
    monkeypatch.setattr(index_tables, "read_experiment", lambda path: seen.append(path.name) or real(path))
    return seen


# --- what is read -------------------------------------------------------------------------------------------------


def test_a_project_without_records_has_an_empty_history_and_gets_no_file(index, past, tmp_path):
    index.refresh()
    assert ask(index, ALL).total == 0
    assert list(tmp_path.iterdir()) == []


def test_the_index_of_a_project_is_beside_its_records_and_elsewhere_among_them(tmp_path):
    assert index_path(tmp_path / ".evsys" / "experiments") == tmp_path / ".evsys" / "index.sqlite"
    assert index_path(tmp_path / "out") == tmp_path / "out" / ".index.sqlite"


def test_only_what_changed_is_read_again(index, past, reads):
    first, second = past.whole("first"), past.whole("second")
    old(past.experiments)
    index.refresh()
    assert reads == [first.experiment_id, second.experiment_id]
    index.refresh()
    assert len(reads) == 2
    past.train(second, score=0.9)
    index.refresh()
    assert reads[2:] == [second.experiment_id]
    assert {run.score for run in ask(index, ALL).runs} == {0.5, 0.9}


def test_what_changed_just_now_is_read_again_since_its_time_may_not_tell(index, past, reads, monkeypatch):
    past.whole()
    index.refresh()
    index.refresh()
    assert len(reads) == 2
    monkeypatch.setattr(changes, "SETTLED_NS", -(10**18))
    index.refresh()
    index.refresh()
    assert len(reads) == 3


def test_an_index_that_is_up_to_date_is_left_as_it_is(index, past):
    past.whole()
    old(past.experiments)
    index.refresh()
    before = index.path.stat()
    index.refresh()
    after = index.path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert index.kept


def test_records_that_are_gone_are_forgotten(index, past):
    gone, stays = past.whole("gone"), past.whole("stays")
    index.refresh()
    shutil.rmtree(gone.directory)
    shutil.rmtree(stays.directory / "runs" / "a-s0")
    index.refresh()
    assert [each.experiment_id for each in ask(index, Question()).experiments] == [stays.experiment_id]
    assert [run.status for run in ask(index, ALL).runs] == ["skipped"]
    assert known(index) == from_files(past.experiments, stays.directory)


def test_a_run_without_its_file_is_no_run_any_more(index, past):
    record = past.whole()
    old(past.experiments)
    index.refresh()
    (record.directory / "runs/a-s0/run.json").unlink()
    index.refresh()
    assert [(run.status, run.folder) for run in ask(index, ALL).runs] == [("skipped", None)]


def test_a_run_that_could_not_be_read_for_a_while_is_one_run(index, past):
    record = past.begin(arms=("lr=1",))
    path = past.train(record, "lr=1").directory / "run.json"
    whole = path.read_bytes()
    seen = []
    for content in (whole, b"{", whole):
        path.write_bytes(content)
        old(past.experiments)
        os.utime(path, (1_700_000_000 + len(seen), 1_700_000_000))
        index.refresh()
        seen.append(sorted((run.run_id, run.status) for run in ask(index, ALL).runs))
    good = [("lr=1-s0", "completed")]
    assert seen == [good, [("lr-1-s0", "unreadable"), ("lr=1-s0", "skipped")], good]


# --- statuses -----------------------------------------------------------------------------------------------------


def statuses(index):
    index.refresh()
    (experiment,) = ask(index, Question()).experiments
    return experiment.status, {run.run_id: run.status for run in ask(index, ALL).runs}


def test_an_experiment_is_running_while_it_is_locked_and_crashed_once_its_process_is_gone(index, past):
    record = past.begin(arms=("a", "b", "c"))
    with record.lock:
        past.train(record, "a")
        record.run("b-s0", facts={"arm": "b", "repeat": 0}).start_attempt()
        old(past.experiments)
        assert statuses(index) == ("running", {"a-s0": "completed", "b-s0": "running", "c-s0": "waiting"})
    assert statuses(index) == ("crashed", {"a-s0": "completed", "b-s0": "crashed", "c-s0": "skipped"})


def test_an_experiment_that_has_no_lock_yet_has_only_just_begun(index, past):
    record = past.begin()
    assert statuses(index)[0] == "running"
    os.utime(record.directory / "experiment.json", (1, 1))
    assert statuses(index)[0] == "crashed"


def test_the_result_of_an_attempt_that_was_continued_is_no_result_any_more(index, past):
    record = past.begin()
    with record.lock:
        run = past.train(record, status="failed", failure="out of luck")
        index.refresh()
        (before,) = ask(index, ALL).runs
        assert (before.status, before.failure, before.place) == ("failed", "out of luck", "x.py:3")
        run.start_attempt("resume", parent=1)
        index.refresh()
        (during,) = ask(index, ALL).runs
        assert (during.status, during.failure, during.attempts, during.steps) == ("running", None, 2, None)
        past.train(record, attempt=2, score=0.7)
        index.refresh()
        (after,) = ask(index, ALL).runs
        assert (after.status, after.score, after.attempts) == ("completed", 0.7, 2)
    assert (run.directory / "run_result.1.json").is_file()


def test_a_record_that_can_not_be_read_is_listed_with_what_is_wrong(index, past):
    broken, odd, run = past.whole("broken"), past.whole("odd"), past.whole("run")
    (broken.directory / "experiment.json").write_text("{", encoding="utf-8")
    write_json(odd.directory / "experiment.json", {"name": "odd"})
    (run.directory / "runs/a-s0/run.json").write_text('{"format": 1}', encoding="utf-8")
    index.refresh()
    found = {each.experiment_id: each for each in ask(index, Question()).experiments}
    assert found[broken.experiment_id].status == found[odd.experiment_id].status == "unreadable"
    assert "isn't JSON" in found[broken.experiment_id].problem
    assert found[broken.experiment_id].moment.startswith("2026-01-01T12:34:56")
    assert "KeyError: 'finished'" in found[odd.experiment_id].problem
    (bad,) = [
        each for each in ask(index, ALL).runs if each.experiment_id == run.experiment_id and each.problem
    ]
    assert (bad.status, bad.run_id) == ("unreadable", "a-s0")


def test_fields_that_a_later_version_added_do_no_harm(index, past):
    record = past.whole()
    tree = {**record.facts, "new": 1}
    tree["usage"]["joules"] = 3
    write_json(record.directory / "experiment.json", tree)
    index.refresh()
    assert ask(index, Question()).experiments[0].status == "completed"


def test_text_that_no_database_takes_is_found_all_the_same(index, past):
    past.whole(description="half of a \ud83d smile", tags=["a\ud83d"])
    index.refresh()
    assert ask(index, Question(words="smile")).total == 1


# --- the file -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["text", "cut", "zeros"])
def test_a_damaged_index_is_made_again_with_a_word(index, past, told, damage):
    for n in range(30):
        past.whole(f"sweep {n}", hypothesis="words " * 200)
    index.refresh()
    whole = index.path.read_bytes()
    torn = {
        "text": b"no database",
        "cut": whole[: len(whole) // 2],
        "zeros": whole[:4096] + bytes(len(whole) - 4096),
    }
    index.path.write_bytes(torn[damage])
    index.refresh()
    assert len(ask(index, Question(words="words")).experiments) == 30
    assert len(told) == 1
    assert f"the index {index.path} is damaged" in told[0]
    index.refresh()
    assert len(told) == 1


def test_damage_that_shows_only_when_it_is_asked_is_mended_then(index, past, told):
    for n in range(30):
        past.whole(f"sweep {n}", hypothesis="words " * 200)
    old(past.experiments)
    index.refresh()
    whole = bytearray(index.path.read_bytes())
    with sqlite3.connect(index.path) as database:
        page = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'said_data'").fetchone()[0]
    database.close()
    whole[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    index.path.write_bytes(whole)
    index.refresh()
    assert told == []
    assert ask(index, Question(words="words")).total == 30
    assert "is damaged" in told[0]
    index.refresh()
    assert (ask(index, Question(words="words")).total, len(told)) == (30, 1)


def test_an_index_of_another_version_is_made_again_with_a_word(index, past, told):
    past.whole()
    index.refresh()
    with sqlite3.connect(index.path) as database:
        database.execute("PRAGMA user_version = 1")
        database.execute("DROP TABLE run")
    database.close()
    index.refresh()
    assert ask(index, ALL).total == 1
    assert told == [f"the index {index.path} is of another version; it is made again from the records"]


def test_a_project_that_can_not_be_written_is_indexed_in_memory(index, past, told, monkeypatch):
    past.whole()
    monkeypatch.setattr(os, "access", lambda *_: False)
    index.refresh()
    found = ask(index, Question())
    assert (found.total, found.index, told) == (1, None, [])
    assert not index.path.exists()


def test_an_index_that_can_not_be_kept_is_used_once_and_says_so(index, past, told):
    past.whole()
    index.path.mkdir()
    index.refresh()
    assert ask(index, Question()).index is None
    assert "isn't kept" in told[0]
    assert list(index.path.parent.glob(".*.tmp")) == []


def test_nothing_is_left_open_or_beside_it(index, past):
    past.whole()
    index.refresh()
    names = {path.name for path in index.path.parent.iterdir()}
    assert names == {".gitignore", "experiments", "index.sqlite"}


def test_progress_counts_the_records_that_are_read(past):
    for n in range(3):
        past.whole(f"sweep {n}")
    seen = []
    with Index(past.experiments, advanced=lambda done, count: seen.append((done, count))) as index:
        index.refresh()
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_without_a_full_text_index_in_sqlite_words_are_still_found(past, told, monkeypatch, tmp_path):
    past.whole("first", hypothesis="Shorter prompts help.")
    past.whole("second", hypothesis="50% of_it")
    with Index(past.experiments, tell=told.append) as index:
        index.refresh()
        assert [each.name for each in ask(index, Question(words="PROMPT help")).experiments] == ["first"]
        monkeypatch.setitem(index_tables._WORDS, "fts5", "CREATE VIRTUAL TABLE said USING absent(words);")
        index_tables.full_text.cache_clear()
        try:
            index.refresh()
            found = ask(index, Question(words="PROMPT help"))
            assert [each.name for each in found.experiments] == ["first"]
            assert found.full_text == "like"
            assert "of another version" in told[0]
            assert ask(index, Question(words="0% of_i")).total == 1
            assert ask(index, Question(words="0_ of%i")).total == 0
        finally:
            index_tables.full_text.cache_clear()


# --- any sequence of writes ---------------------------------------------------------------------------------------


def runs_on(folder, attempt):
    """Whether a run may go on there: its files are whole, and there is an attempt to continue."""
    torn = any(path.read_bytes() == b"{" for path in folder.glob("*.json"))
    return not torn and (attempt == 1 or (folder / "run.json").exists())


class Writes(RuleBasedStateMachine):
    """Records are made, go on, end, break and go, while an index is brought up to date now and then."""

    past = None
    root = None

    @initialize()
    def begin(self):
        shutil.rmtree(self.past.experiments.parent, ignore_errors=True)
        self.index = Index(self.past.experiments)
        self.records = []

    def teardown(self):
        self.index.close()

    def some(self, data):
        there = [record for record in self.records if record.directory.is_dir()]
        return data.draw(st.sampled_from(there)) if there else None

    @rule(arms=st.sets(st.sampled_from("abc"), min_size=1), dry=st.booleans(), tag=st.sampled_from("xy"))
    def start(self, arms, dry, tag):
        self.records.append(self.past.begin(arms=sorted(arms), dry=dry, tags=[tag]))

    @rule(
        data=st.data(),
        arm=st.sampled_from("abc"),
        score=st.sampled_from([0.2, 0.3]),
        attempt=st.sampled_from([1, 2]),
    )
    def train(self, data, arm, score, attempt):
        record = self.some(data)
        if record is not None and runs_on(record.directory / "runs" / f"{arm}-s0", attempt):
            self.past.train(
                record, arm, score=score, attempt=attempt, failure=data.draw(st.sampled_from([None, "odd"]))
            )

    @rule(data=st.data(), verdict=st.sampled_from(["SUPPORTED", "REFUTED"]))
    def end(self, data, verdict):
        record = self.some(data)
        if record is not None and (record.directory / "experiment.json").read_bytes() != b"{":
            self.past.end(record, verdict=verdict, arms={"a": ("win", 0.4)})

    @rule(
        data=st.data(),
        name=st.sampled_from(["conclusion.json", "runs/a-s0/run.json", "runs/a-s0/run_result.json"]),
    )
    def spoil(self, data, name):
        record = self.some(data)
        path = record and record.directory / name
        if path and path.exists():
            path.unlink() if data.draw(st.booleans()) else path.write_text("{", encoding="utf-8")

    @rule(data=st.data())
    def remove(self, data):
        record = self.some(data)
        if record is not None:
            shutil.rmtree(record.directory)

    @rule()
    def settle(self):
        """Time passes."""
        if self.past.experiments.is_dir():
            self.index.refresh()
            old(self.past.experiments)

    @rule()
    def damage(self):
        if self.index.path.exists():
            self.index.path.write_bytes(b"SQLite format 3\x00" * 9)

    @invariant()
    def the_index_says_what_the_files_say(self):
        assert known(self.index) == from_files(self.past.experiments, self.root)


def test_the_index_equals_the_files_after_any_sequence_of_writes(past, tmp_path):
    machine = type("Machine", (Writes,), {"past": past, "root": tmp_path})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )


# --- many at once -------------------------------------------------------------------------------------------------

WRITE_AND_READ = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import conftest
from evsys_record.history import Question, ask
from evsys_record.index import Index

os.fsync = lambda descriptor: None
experiments = Path(sys.argv[2])
children = []
for number in range(32):
    child = os.fork()
    if child == 0:
        said = []
        past = conftest.Past(experiments)
        for turn in range(1):
            past.whole(f"sweep {number} {turn}")
            with Index(experiments, tell=said.append) as index:
                index.refresh()
                names = {each.name for each in ask(index, Question()).experiments}
            if said or f"sweep {number} {turn}" not in names:
                print(number, turn, said, file=sys.stderr)
                os._exit(1)
        os._exit(0)
    children.append(child)
sys.exit(max(os.waitpid(child, 0)[1] for child in children) and 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_32_processes_write_and_read_at_once_and_lose_nothing(past, index, told):
    here = Path(__file__).parent
    command = [sys.executable, "-c", WRITE_AND_READ, str(here), str(past.experiments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    index.refresh()
    assert (ask(index, Question()).total, told) == (32, [])
    assert list(index.path.parent.glob(".*.tmp")) == []


def test_a_viewer_with_the_file_open_keeps_nobody_from_writing(index, past):
    past.whole("first")
    index.refresh()
    with sqlite3.connect(index.path) as viewer:
        viewer.execute("BEGIN EXCLUSIVE")
        past.whole("second")
        with Index(past.experiments) as other:
            other.refresh()
            assert (ask(other, Question()).total, other.kept) == (2, True)
    viewer.close()


def test_what_writes_records_knows_nothing_of_the_index():
    code = "import sys, evsys_record.experiment_record; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert {index_module.__name__, index_tables.__name__, changes.__name__}.isdisjoint(done.stdout.split())


def test_the_experiment_record_opens_what_the_index_names(index, past):
    made = past.whole()
    index.refresh()
    (listed,) = ask(index, Question()).experiments
    assert ExperimentRecord.open(past.experiments / listed.experiment_id).facts == made.facts


def test_numbers_beyond_those_of_sqlite_are_indexed(past):
    path = past.whole().directory / "experiment.json"
    write_json(path, read_json(path) | {"usage": {"prompt_tokens": 10**30}})
    with Index(past.experiments) as index:
        index.refresh()
        assert index.rows("SELECT COUNT(*) FROM experiment") == [(1,)]


ODD = (10**400, float("inf"), ["a"], {"a": 1}, json.loads("[" * 900 + "]" * 900), "\ud800\0", None)


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("experiment.json", ("created",)),
        ("experiment.json", ("exit_code",)),
        ("experiment.json", ("arms", 0, "repeat")),
        ("resolved.json", ("arms", 0, "run", "algorithm", "kind")),
        ("resolved.json", ("arms", 0, "run", "model")),
        ("conclusion.json", ("minimum_effect",)),
        ("conclusion.json", ("comparisons", 0, "outcome")),
        ("conclusion.json", ("comparisons", 0, "effect")),
        ("conclusion.json", ("comparisons", 0, "n_tasks")),
        ("conclusion.json", ("looks", "similar")),
        ("runs/a-s0/run.json", ("repeat",)),
        ("runs/a-s0/run.json", ("attempts", 0, "parent")),
        ("runs/a-s0/run_result.json", ("run", "steps")),
        ("runs/a-s0/run_result.json", ("seconds",)),
    ],
)
def test_no_value_in_a_record_keeps_the_others_from_being_listed(index, past, file, path):
    good, bad = past.whole("good"), past.whole("bad")
    place = bad.directory / file
    tree = json.loads(place.read_text(encoding="utf-8"))
    for value in ODD:
        within = tree
        for key in path[:-1]:
            if within[key] is None:
                within[key] = {}
            within = within[key]
        within[path[-1]] = value
        place.write_text(json.dumps(tree), encoding="utf-8")
        index.refresh(anew=True)
        listed = {each.experiment_id for each in ask(index, Question()).experiments}
        assert listed == {good.experiment_id, bad.experiment_id}
        assert {run.experiment_id for run in ask(index, ALL).runs} >= {good.experiment_id}
