from pathlib import Path

import pytest

from evsys.errors import ConfigError
from evsys_runtime.config.root import enclosing_project, find_project_root


def test_the_root_is_the_nearest_folder_that_is_marked(tmp_path: Path):
    config = tmp_path / "a" / "b" / "c" / "config.yaml"
    config.parent.mkdir(parents=True)
    assert find_project_root(config) == config.parent
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.evsys]\n", encoding="utf-8")
    assert find_project_root(config) == tmp_path / "a"
    (tmp_path / "a" / "b" / "pyproject.toml").write_text("[tool.other]\n", encoding="utf-8")
    assert find_project_root(config) == tmp_path / "a"
    (tmp_path / "a" / "b" / ".evsys").mkdir()
    assert find_project_root(config) == tmp_path / "a" / "b"


def test_a_server_that_was_started_above_an_experiment_marks_no_project(tmp_path: Path):
    config = tmp_path / "examples" / "one" / "config.yaml"
    config.parent.mkdir(parents=True)
    (tmp_path / ".evsys" / "server").mkdir(parents=True)
    assert find_project_root(config) == config.parent
    (tmp_path / ".evsys" / "experiments").mkdir()
    assert find_project_root(config) == tmp_path


def test_a_relative_config_has_a_root_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / ".evsys").mkdir()
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path / "x")
    assert find_project_root("config.yaml") == tmp_path


def test_a_way_back_in_the_path_is_walked_so_that_the_record_is_shown_by_its_plain_name(tmp_path: Path):
    assert find_project_root(tmp_path / "a" / ".." / "config.yaml") == tmp_path


def test_a_broken_pyproject_matters_only_where_it_is_ours(tmp_path: Path):
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text("[tool.other\n", encoding="utf-8")
    assert find_project_root(tmp_path / "config.yaml") == tmp_path
    pyproject.write_text("[tool.evsys]\nx = \n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"pyproject\.toml isn't valid TOML"):
        find_project_root(tmp_path / "config.yaml")
    pyproject.write_bytes(b"\xff\xfe")
    assert find_project_root(tmp_path / "config.yaml") == tmp_path


def test_a_tool_table_that_is_none_marks_no_project(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text("tool = 5\n", encoding="utf-8")
    assert find_project_root(tmp_path / "a" / "config.yaml") == tmp_path / "a"


def test_a_folder_in_no_project_has_none_around_it(tmp_path: Path):
    (tmp_path / "src").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.other]\n", encoding="utf-8")
    assert enclosing_project(tmp_path / "src") is None
    (tmp_path / ".evsys").mkdir()
    assert enclosing_project(tmp_path / "src") == tmp_path
