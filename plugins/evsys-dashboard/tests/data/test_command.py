"""`evsys dataset` and `evsys benchmark`: what they print, in words and as documents of published shapes."""

import json

import pytest
from team_data import TASKS

from evsys_cli.main import main
from evsys_dashboard.data.client import DataClient
from evsys_dashboard.data.shapes import Catalogue, ShownVersion, Uploaded, Versions
from evsys_record.result_trees import read_as

ROWS = [{"question": f"q{number}", "answer": f"a{number}"} for number in range(5)]


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    (folder / ".evsys" / "cache").mkdir(parents=True)
    monkeypatch.chdir(folder)
    for name, rows in (("faq.jsonl", ROWS), ("tasks.jsonl", TASKS)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "faq.csv").write_text("question,answer\nq,a\n", encoding="utf-8")
    return folder


@pytest.fixture
def evsys(team, project, monkeypatch, capsys):
    monkeypatch.setenv("EVSYS_API_URL", team.address)
    monkeypatch.setenv("EVSYS_API_KEY", team.key("read", "write"))

    def run(*arguments, code=0):
        with pytest.raises(SystemExit) as ended:
            main([str(each) for each in arguments])
        printed = capsys.readouterr()
        assert (ended.value.code or 0) == code, printed
        return printed.out if code == 0 else printed.out + printed.err

    return run


def document(cls, text):
    """A printed document, without `format`, as the shape that it has."""
    tree = json.loads(text)
    assert tree.pop("format") == 1
    return read_as(cls, tree)


def test_a_dataset_is_uploaded_listed_and_shown(evsys):
    first = evsys("dataset", "upload", "faq", "faq.jsonl", "--note", "by hand").splitlines()
    assert first[1] == "Version 1 of faq, 5 rows."
    again = evsys("dataset", "upload", "faq", "faq.jsonl").splitlines()
    assert again == [first[0], "These rows are version 1 already."]
    second = evsys("dataset", "upload", "faq", "faq.csv", "--from", first[0]).splitlines()[0]
    old = evsys("dataset", "upload", "faq", "faq.jsonl").splitlines()[1]
    assert old == f"These rows are version 1 already; the latest is {second}."
    assert second in evsys("dataset", "list")
    assert evsys("dataset", "list", "--text", "nothing") == "There are no datasets yet.\n"
    versions = evsys("dataset", "versions", "faq")
    assert versions.index(second) < versions.rindex(first[0])
    shown = evsys("dataset", "show", "faq", "--rows", "1")
    assert f"made from  {first[0]}" in shown
    assert shown.endswith('{"question":"q","answer":"a"}\n')


def test_documents_have_their_published_shapes(evsys):
    made = document(Uploaded, evsys("dataset", "upload", "faq", "faq.jsonl", "--json"))
    assert (made.version.file, made.version.rows) == ("faq.jsonl", 5)
    assert document(Catalogue, evsys("dataset", "list", "--json")).names[0].latest == made.version
    assert document(Versions, evsys("dataset", "versions", "faq", "--json")).versions == (made.version,)
    shown = json.loads(evsys("dataset", "show", "faq", "--json", "--rows", "2"))
    assert [row["row"] for row in shown.pop("rows")] == ROWS[:2]
    assert document(ShownVersion, json.dumps(shown)).version == made.version


def test_a_benchmark_is_uploaded_sealed_and_pulled_by_a_key_that_may(evsys, team, project, monkeypatch):
    version = evsys("benchmark", "upload", "final", "tasks.jsonl", "--split", "test").splitlines()[0]
    assert version in evsys("benchmark", "list")
    refused = evsys("benchmark", "show", "final", "--rows", "1", code=1)
    assert f"{version} is a test set, and the key lacks the scope 'test'" in refused
    refused = evsys("benchmark", "pull", "final", code=1)
    assert "lacks the scope 'test'" in refused
    monkeypatch.setenv("EVSYS_API_KEY", team.key("read", "test"))
    assert evsys("benchmark", "pull", "final").startswith(f"{version}: 12 rows in ")
    assert evsys("benchmark", "pull", "final", "--json")  # from the cache
    manifest = json.loads(
        (project / ".evsys/cache/benchmarks" / version / "manifest.json").read_text(encoding="utf-8")
    )
    assert (manifest["complete"], manifest["row_count"], manifest["lineage"]["reads"]) == (True, 12, 1)
    assert "reads      1 of its rows so far" in evsys("benchmark", "show", "final")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("dataset", "show", "fqa"), 1, "no dataset 'fqa'; did you mean 'faq'?"),
        (("dataset", "pull", "fqa"), 1, "no dataset 'fqa'; did you mean 'faq'?"),
        (("dataset", "versions", "fqa"), 1, "no dataset 'fqa'; did you mean 'faq'?"),
        (("dataset", "upload", "../x", "faq.jsonl"), 2, "invalid name '../x'"),
        (("dataset", "upload", "new", "faq.jsonl", "--from", "faq-000000000000"), 2, "no version has the ID"),
        (("dataset", "upload", "new", "nowhere.jsonl"), 2, "does not exist"),
        (("benchmark", "upload", "new", "faq.jsonl"), 4, "the benchmark has 5 problems"),
    ],
)
def test_a_mistake_gets_one_clear_message(evsys, arguments, code, said):
    evsys("dataset", "upload", "faq", "faq.jsonl")
    assert said in evsys(*arguments, code=code)


@pytest.mark.parametrize("missing", ["EVSYS_API_URL", "EVSYS_API_KEY"])
def test_without_a_server_or_a_key_the_variable_is_named(evsys, monkeypatch, missing):
    monkeypatch.delenv(missing)
    assert f"{missing} isn't set; set EVSYS_API_URL and" in evsys("dataset", "list", code=2)
    assert f"{missing} isn't set" in evsys("dataset", "pull", "faq", code=1)


def test_a_wrong_key_and_one_without_the_scope_are_refused(evsys, team, monkeypatch):
    monkeypatch.setenv("EVSYS_API_KEY", team.key("read"))
    assert "the key doesn't grant 'write' here" in evsys("dataset", "upload", "faq", "faq.jsonl", code=2)
    monkeypatch.setenv("EVSYS_API_KEY", "evk_wrong")
    assert "the key isn't valid" in evsys("dataset", "list", "--project", "lab", code=2)


def test_ctrl_c_tells_how_to_continue(evsys, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(DataClient, "upload", interrupted)
    said = evsys("dataset", "upload", "faq", "faq.jsonl", code=130)
    assert "Interrupted. Repeat the command to send what is missing." in said


def test_tasks_in_folders_stay_in_the_repository(evsys, project):
    folder = project / "native" / "one"
    (folder / "tests").mkdir(parents=True)
    (folder / "task.toml").write_text('version = "1.0"\n', encoding="utf-8")
    (folder / "instruction.md").write_text("Do it.", encoding="utf-8")
    (folder / "tests" / "test.sh").write_text("exit 0\n", encoding="utf-8")
    assert "tasks that lie in folders can't be uploaded" in evsys(
        "benchmark", "upload", "x", "native", code=4
    )
