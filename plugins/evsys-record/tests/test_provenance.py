import importlib.metadata
import json
import subprocess

import pytest

from evsys_record import provenance


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(name, "tester")
    for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "tester@example.org")
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    return tmp_path


def test_versions_of_all_evsys_distributions_are_there(tmp_path):
    facts = provenance.collect(tmp_path)
    for name in ("evsys-core", "evsys-runtime", "evsys-cli", "evsys-std"):
        assert facts["evsys"][name] == importlib.metadata.version(name)
    assert facts["libraries"]["numpy"] == importlib.metadata.version("numpy")
    assert facts["python"]["version"]
    assert facts["platform"]["cpus"] >= 1
    json.dumps(facts)


def test_a_distribution_of_which_only_its_list_of_plugins_is_left_is_noted_by_the_name_of_its_folder(
    tmp_path, monkeypatch
):
    info = tmp_path / "evsys_left-1.2.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[evsys.metrics]\nm = left:M\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert provenance.evsys_distributions()["evsys-left"] == "1.2"


def test_outside_of_a_repository_git_is_null(tmp_path):
    assert provenance.git_state(tmp_path) is None


def test_without_git_it_is_null(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.git_state(tmp_path) is None


def test_a_clean_and_a_dirty_repository(repository):
    clean = provenance.git_state(repository)
    assert len(clean["revision"]) == 40
    assert (clean["dirty"], clean["changes"]) == (False, None)
    (repository / "new.py").write_text("x = 1\n", encoding="utf-8")
    assert provenance.git_state(repository)["dirty"] is True
    subprocess.run(["git", "-C", str(repository), "add", "new.py"], check=True)
    staged = provenance.git_state(repository)
    assert staged["changes"].startswith("sha256:")
    (repository / "new.py").write_text("x = 2\n", encoding="utf-8")
    assert provenance.git_state(repository)["changes"] not in (None, staged["changes"])


def test_the_record_itself_is_no_change(repository):
    (repository / "sub" / ".evsys" / "experiments").mkdir(parents=True)
    (repository / "sub" / ".evsys" / "experiments" / "a.json").write_text("{}", encoding="utf-8")
    assert provenance.git_state(repository)["dirty"] is False
    assert provenance.git_state(repository / "sub")["dirty"] is False


def test_changes_elsewhere_in_the_repository_count(repository):
    (repository / "sub").mkdir()
    (repository / "other.py").write_text("", encoding="utf-8")
    assert provenance.git_state(repository / "sub")["dirty"] is True


def test_a_repository_without_a_commit_has_no_revision(tmp_path):
    subprocess.run(["git", "-C", str(tmp_path), "init", "-q"], check=True)
    assert provenance.git_state(tmp_path) is None
