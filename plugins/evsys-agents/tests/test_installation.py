"""What `install` copies, `uninstall` takes away, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from evsys_agents.command import agent
from evsys_agents.hosts import HOSTS, Layout, layout_of
from evsys_agents.installation import find_copy, install, uninstall
from evsys_agents.plugin_folder import plugin_files

FILES = plugin_files()


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder below one, with the contents of files."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder in which other tools have their files."""
    home = tmp_path / "home"
    for name, text in {
        ".claude/settings.json": "{}\n",
        ".claude/skills/other/SKILL.md": "other\n",
        ".agents/plugins/marketplace.json": '{"name": "mine", "plugins": [{"name": "other"}]}',
        ".cursor/hooks.json": '{"version": 1, "hooks": {"preToolUse": [{"command": "other"}]}}',
        ".cursor/mcp.json": '{"mcpServers": {"other": {"command": "other"}}}',
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return home


def layout(host: str, base: Path, *, user: bool = False, files: dict[str, bytes] = FILES) -> Layout:
    return layout_of(host, files, project=base, user=user)


@pytest.mark.parametrize("user", [False, True])
@pytest.mark.parametrize("host", HOSTS)
def test_installing_and_uninstalling_leaves_everything_as_it_was(
    host: str, user: bool, tmp_path: Path, home: Path
):
    base = home if user else tmp_path / "lab"
    base.mkdir(exist_ok=True)
    before = {name: _parsed(content) for name, content in snapshot(base).items()}
    where = layout(host, base, user=user)
    done = install(where, host, "1")
    assert (done.state, done.kept) == ("current", ())
    assert done.files == len(where.files) > 6
    assert find_copy(where, host, "1").state == "current"
    assert {name: _parsed(content) for name, content in snapshot(base).items()} != before
    assert uninstall(where, host).kept == ()
    assert {name: _parsed(content) for name, content in snapshot(base).items()} == before


def _parsed(content: bytes | None) -> object:
    """Documents are compared by their values: how a host's own file is indented may change."""
    try:
        return json.loads(content or b"")
    except ValueError:
        return content


@pytest.mark.parametrize("host", HOSTS)
def test_installing_again_changes_nothing(host: str, tmp_path: Path):
    where = layout(host, tmp_path)
    install(where, host, "1")
    before = snapshot(tmp_path)
    install(where, host, "1")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("host", HOSTS)
def test_every_skill_is_where_the_host_looks_for_it(host: str, tmp_path: Path):
    install(layout(host, tmp_path), host, "1")
    place = {
        "claude": ".claude/skills/evsys/skills",
        "codex": ".agents/plugins/evsys/skills",
        "cursor": ".cursor/skills",
        "generic": ".agents/plugins/evsys/skills",
    }[host]
    skills = {name.split("/")[1] for name in FILES if name.startswith("skills/")}
    assert {path.parent.name for path in (tmp_path / place).glob("*/SKILL.md")} == skills


def test_an_edited_file_survives_an_update_and_the_uninstall(tmp_path: Path):
    where = layout("claude", tmp_path)
    install(where, "claude", "1")
    name = next(name for name in where.files if name.endswith("training-decider.md"))
    (tmp_path / name).write_text("mine\n")
    assert find_copy(where, "claude", "1").kept == (name,)
    newer = layout("claude", tmp_path, files={key: content + b"\n" for key, content in FILES.items()})
    assert find_copy(newer, "claude", "2").state == "outdated"
    assert install(newer, "claude", "2").kept == (name,)
    assert uninstall(newer, "claude").kept == (name,)
    assert snapshot(tmp_path).keys() == {
        name,
        *(parent.as_posix() for parent in Path(name).parents if parent.name),
    }


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path):
    where = layout("claude", tmp_path)
    name = ".claude/skills/evsys/plugin.json"
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("theirs\n")
    assert install(where, "claude", "1").kept == (name,)
    assert (tmp_path / name).read_text() == "theirs\n"
    uninstall(where, "claude")
    assert (tmp_path / name).read_text() == "theirs\n"


def test_files_that_a_new_version_lacks_are_deleted(tmp_path: Path):
    install(layout("claude", tmp_path, files={**FILES, "old.md": b"old\n"}), "claude", "1")
    install(layout("claude", tmp_path), "claude", "2")
    assert not (tmp_path / ".claude/skills/evsys/old.md").exists()


def test_a_missing_file_is_reported_and_comes_back(tmp_path: Path):
    where = layout("generic", tmp_path)
    install(where, "generic", "1")
    (tmp_path / ".agents/plugins/evsys/mcp.json").unlink()
    assert find_copy(where, "generic", "1").state == "incomplete"
    assert find_copy(where, "generic", "1").missing == (".agents/plugins/evsys/mcp.json",)
    install(where, "generic", "1")
    assert find_copy(where, "generic", "1").state == "current"


def test_two_hosts_may_share_the_folder(tmp_path: Path):
    for host in ("codex", "generic"):
        install(layout(host, tmp_path), host, "1")
    uninstall(layout("generic", tmp_path), "generic")
    assert find_copy(layout("codex", tmp_path), "codex", "1").state == "current"
    assert find_copy(layout("generic", tmp_path), "generic", "1").state == "absent"
    uninstall(layout("codex", tmp_path), "codex")
    assert snapshot(tmp_path) == {}


def test_what_was_there_for_the_host_stays_there(home: Path):
    where = layout("codex", home, user=True)
    install(where, "codex", "1")
    marketplace = json.loads((home / ".agents/plugins/marketplace.json").read_text())
    assert [each["name"] for each in marketplace["plugins"]] == ["other", "evsys"]
    assert (home / marketplace["plugins"][1]["source"]["path"] / "plugin.json").is_file()


def test_the_hooks_of_cursor_are_those_of_the_plugin(tmp_path: Path):
    install(layout("cursor", tmp_path), "cursor", "1")
    hooks = json.loads((tmp_path / ".cursor/hooks.json").read_text())
    assert hooks == json.loads(FILES["hooks/cursor.json"])


@pytest.mark.parametrize("text", ["[]", "{", '{"plugins": {}}'])
def test_a_file_of_the_host_that_cannot_take_the_entry_is_named(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / ".agents/plugins/marketplace.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.evsys]\n")
    result = CliRunner().invoke(agent, ["install", "--for", "codex"])
    assert str(path) in str(result.exception)
    assert path.read_text() == text


# --- the command ----------------------------------------------------------------------------------------------------------


def test_the_command_installs_in_the_project_and_reports_it(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "lab/deep").mkdir(parents=True)
    (tmp_path / "lab/pyproject.toml").write_text("[tool.evsys]\n")
    monkeypatch.chdir(tmp_path / "lab/deep")
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    runner = CliRunner()
    assert "isn't installed here" in runner.invoke(agent, ["status"]).output
    done = runner.invoke(agent, ["install", "--for", "claude", "--for", "cursor"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "lab/.claude/skills/evsys/plugin.json").is_file()
    assert "warning" not in done.output
    found = json.loads(runner.invoke(agent, ["status", "--json"]).output)["installed"]
    assert [(each["host"], each["scope"], each["state"]) for each in found] == [
        ("claude", "project", "current"),
        ("cursor", "project", "current"),
    ]
    removed = json.loads(runner.invoke(agent, ["uninstall", "--for", "claude", "--json"]).output)
    assert [each["removed"] for each in removed["uninstalled"]] == [True]
    assert not (tmp_path / "lab/.claude").exists()


def test_a_missing_hook_command_is_a_warning(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    done = CliRunner().invoke(agent, ["install", "--for", "generic", "--user"])
    assert "evsys-hook isn't on PATH" in done.stderr


def test_claude_is_told_where_it_keeps_its_settings(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "settings"))
    install(layout("claude", home, user=True), "claude", "1")
    assert (tmp_path / "settings/skills/evsys/.claude-plugin/plugin.json").is_file()
