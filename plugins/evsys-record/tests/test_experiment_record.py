import json
import time

import pytest

from evsys.errors import ConfigError, StoreError
from evsys.types import ArmResult, Comparison, Conclusion, ExperimentResult
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.result_trees import read_as
from evsys_record.secrets import Redactor
from evsys_runtime.experiment.result_schemas import validate_result

CONFIG = "name: A  # как есть\r\nversion: 1\n".encode()
MOMENT = 1_767_270_896.0  # 2026-01-01 12:34:56 UTC


@pytest.fixture
def output(tmp_path):
    return tmp_path / ".evsys" / "experiments"


@pytest.fixture
def record(output):
    return ExperimentRecord.create(
        output, "Does it: help?", CONFIG, hypothesis="It helps.", facts={"seeds": {"base": 1}}, moment=MOMENT
    )


def arm(run_id="a-s0", **fields):
    facts = {"arm": "a", "repeat": 0, "seed": 1, "status": "completed", "identity": "sha256:1", **fields}
    return ArmResult(run_id=run_id, **facts)


def result(record, **fields):
    conclusion = Conclusion(
        verdict="SUPPORTED", reason="a wins", comparisons=(Comparison(arm="a", outcome="win", effect=0.5),)
    )
    facts = {"name": "Does it: help?", "status": "completed", "conclusion": conclusion, **fields}
    return ExperimentResult(experiment_id=record.experiment_id, directory=str(record.directory), **facts)


def test_a_new_record_has_the_users_bytes_and_its_facts(record):
    assert record.directory.name == "20260101-123456-does-it-help"
    assert (record.directory / "config.yaml").read_bytes() == record.config_bytes == CONFIG
    assert (record.directory / "hypothesis.md").read_text(encoding="utf-8") == "It helps.\n"
    facts = record.facts
    assert (facts["format"], facts["experiment_id"], facts["name"]) == (
        1,
        record.experiment_id,
        "Does it: help?",
    )
    assert (facts["status"], facts["dry"], facts["seeds"]) == ("running", False, {"base": 1})
    assert facts["config_hash"].startswith("sha256:")


def test_two_launches_in_one_second_get_two_folders(output, record):
    others = [ExperimentRecord.create(output, "does it help", CONFIG, moment=MOMENT) for _ in range(2)]
    assert [other.experiment_id for other in others] == [
        "20260101-123456-does-it-help-2",
        "20260101-123456-does-it-help-3",
    ]


def test_names_that_no_file_system_takes_become_slugs(output):
    record = ExperimentRecord.create(output, "val/pass@1: nul?", CONFIG)
    assert record.directory.name.endswith("-val-pass-1-nul")
    assert record.directory.parent == output


def test_git_does_not_see_the_record_unless_the_user_wants_it(output, record):
    path = output.parent / ".gitignore"
    assert "*\n" in path.read_text(encoding="utf-8")
    path.write_text("cache/\n", encoding="utf-8")
    ExperimentRecord.create(output, "again", CONFIG)
    assert path.read_text(encoding="utf-8") == "cache/\n"


def test_a_record_elsewhere_gets_no_gitignore(tmp_path):
    ExperimentRecord.create(tmp_path / "out", "a", CONFIG)
    assert list(tmp_path.rglob(".gitignore")) == []


def test_a_dry_run_is_marked(output):
    assert ExperimentRecord.create(output, "a", CONFIG, dry=True).facts["dry"] is True


def test_a_config_that_tells_a_secret_is_refused_before_anything_is_written(output):
    redactor = Redactor({"OPENAI_API_KEY": "sk-0123456789abcdef"})
    config = b"backend: {kind: x, params: {api_key: sk-0123456789abcdef}}"
    with pytest.raises(
        ConfigError, match=r"config:1:38: .* OPENAI_API_KEY occurs here.*write \$\{OPENAI_API_KEY\}"
    ):
        ExperimentRecord.create(output, "a", config, redactor=redactor)
    assert not output.exists()


@pytest.mark.parametrize("place", ["name", "hypothesis"])
def test_a_secret_in_other_text_that_is_kept_is_refused_too(output, place):
    redactor = Redactor({"OPENAI_API_KEY": "sk-0123456789abcdef"})
    texts = {"name": "a", "hypothesis": "b"} | {place: "it is\nsk-0123456789abcdef"}
    with pytest.raises(
        ConfigError, match=rf"{place}:2:1: the value of the environment variable OPENAI_API_KEY"
    ):
        ExperimentRecord.create(
            output, texts["name"], CONFIG, hypothesis=texts["hypothesis"], redactor=redactor
        )
    assert not output.exists()


def test_opening_what_is_no_experiment_is_an_error(tmp_path, record):
    with pytest.raises(StoreError, match=r"no experiment in .*experiment\.json"):
        ExperimentRecord.open(tmp_path)
    assert ExperimentRecord.open(record.directory).facts == record.facts


def test_the_resolved_arms_keep_references_and_lose_secrets(record):
    arms = [{"backend": {"params": {"api_key": "${KEY}", "token": "literal"}}, "seed": 1}]
    record.write_resolved(arms)
    tree = json.loads((record.directory / "resolved.json").read_text(encoding="utf-8"))
    assert tree == {
        "format": 1,
        "arms": [{"backend": {"params": {"api_key": "${KEY}", "token": "[redacted]"}}, "seed": 1}],
    }
    record.write_resolved({"arms": [], "name": "a"})
    assert json.loads((record.directory / "resolved.json").read_text(encoding="utf-8"))["name"] == "a"


def test_a_result_is_in_the_files_and_comes_back_whole(record):
    assert record.read_result() is None
    record.note(arms=[{"run_id": "b-s0"}, {"run_id": "a-s0"}])
    given = result(record, arms=(arm("b-s0", arm="b"), arm("a-s0")), warnings=("odd",), seconds=1.5)
    for each in given.arms:
        record.run(each.run_id).write_result(each)
    record.write_result(given, "# It helps")
    conclusion = json.loads((record.directory / "conclusion.json").read_text(encoding="utf-8"))
    validate_result(conclusion, "conclusion")
    assert (record.directory / "conclusion.md").read_text(encoding="utf-8") == "# It helps\n"
    tree = record.read_result()
    validate_result(tree, "experiment_result")
    assert read_as(ExperimentResult, tree) == given
    assert record.facts["status"] == "completed"
    assert record.facts["finished"] is not None


def test_an_experiment_that_goes_on_has_no_result_until_it_ends(record):
    record.write_result(result(record))
    record.note(status="running", finished=None)
    assert record.read_result() is None


def test_what_was_concluded_before_an_experiment_goes_on_stays_beside(record):
    for number, verdict in enumerate(("INCONCLUSIVE", "REFUTED", "SUPPORTED")):
        conclusion = Conclusion(verdict=verdict, reason="r")
        record.write_result(result(record, conclusion=conclusion), f"# {verdict}")
        record.write_result(result(record, conclusion=conclusion), f"# {verdict}, in other words")
        if number < 2:
            record.reopen(resumed=list(range(number + 1)))
            assert record.read_result() is None
    names = ("conclusion.1", "conclusion.2", "conclusion")
    found = [json.loads((record.directory / f"{name}.json").read_text(encoding="utf-8")) for name in names]
    assert [each["verdict"] for each in found] == ["INCONCLUSIVE", "REFUTED", "SUPPORTED"]
    texts = [(record.directory / f"{name}.md").read_text(encoding="utf-8") for name in names]
    assert texts[0] == "# INCONCLUSIVE, in other words\n"
    assert (record.facts["resumed"], record.read_result()["status"]) == ([0, 1], "completed")


def test_an_experiment_that_had_no_conclusion_goes_on_without_one(record):
    record.reopen()
    assert [path.name for path in record.directory.glob("conclusion*")] == []
    assert (record.facts["status"], record.facts["finished"]) == ("running", None)


def test_runs_are_made_once_and_found_again(record):
    run = record.run("a-s0", facts={"arm": "a", "repeat": 0}, hypothesis="A helps.")
    assert run.directory == record.directory / "runs" / "a-s0"
    run.start_attempt()
    run.close()
    again = ExperimentRecord.open(record.directory).run("a-s0", facts={"arm": "other"})
    assert again.facts["arm"] == "a"
    assert len(again.attempts) == 1
    assert record.find_run("a-s0").run_id == "a-s0"
    assert record.find_run("b-s0") is None
    assert not (record.directory / "runs" / "b-s0").exists()


def test_run_ids_that_differ_only_in_what_a_slug_drops_get_two_folders(record):
    ids = ["lr=-1-s0", "lr=1-s0", "LR=1-s0"]
    folders = {run_id: record.run(run_id).directory for run_id in ids[:2]}
    assert len(set(folders.values())) == 2
    for run_id in reversed(ids[:2]):
        assert record.run(run_id).directory == folders[run_id]
        assert record.find_run(run_id).directory == folders[run_id]
    assert record.run(ids[2]).run_id == "LR=1-s0"
    assert len(record.runs()) == 3


def test_a_run_id_as_long_as_a_book_is_a_folder(record):
    first, second = record.run("x" * 300 + "-s0"), record.run("x" * 300 + "-s1")
    assert first.directory != second.directory
    assert len(first.directory.name) <= 64


def test_recover_tidies_up_every_folder(record):
    run = record.run("a-s0")
    run.start_attempt()
    torn = run.checkpoints.begin(5)
    left = [record.directory / ".experiment.json.1-a.tmp", run.directory / ".run.json.1-a.tmp"]
    left.append(run.directory / "data/rows-abc.jsonl.part")
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("half", encoding="utf-8")
    record.recover()
    assert not any(path.exists() for path in [torn, *left])
    assert record.facts["status"] == "running"


def test_an_experiment_can_be_locked(record):
    with record.lock:
        with pytest.raises(StoreError, match=f"{record.experiment_id} is in use by process"):
            ExperimentRecord.open(record.directory).lock.acquire()


def test_folders_are_named_by_the_present_in_utc(output):
    before = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    name = ExperimentRecord.create(output, "a", CONFIG).experiment_id
    assert before <= name[:15] <= time.strftime("%Y%m%d-%H%M%S", time.gmtime())


def test_an_experiment_does_not_end_before_it_began_if_the_clock_is_set_back(record, monkeypatch):
    began = record.facts["created"]
    monkeypatch.setattr("evsys_record.experiment_record.now", lambda: "2001-01-01T00:00:00+00:00")
    record.write_result(result(record))
    assert record.facts["finished"] == began
