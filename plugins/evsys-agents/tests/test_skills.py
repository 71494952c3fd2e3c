"""Skills and manifests are as their formats ask for, and their tables are those of today."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from evsys_agents.decision import decision_schema
from evsys_agents.plugin_folder import FOLDER

ROOT = Path(__file__).parents[3]
SKILLS = sorted(path.parent for path in FOLDER.glob("skills/*/SKILL.md"))
each = pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.name)


def front_matter(path: Path) -> tuple[dict[str, Any], str]:
    """The metadata at the head of a page, and its body."""
    found = re.fullmatch(r"---\n(.*?)\n---\n(.*)", path.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return YAML(typ="safe", pure=True).load(found[1]), found[2]


@each
def test_a_skill_is_as_agent_skills_asks_for(skill: Path):
    head, body = front_matter(skill / "SKILL.md")
    assert set(head) <= {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
    assert head["name"] == skill.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", head["name"])
    assert 0 < len(head["description"]) <= 1024
    assert "Use when" in head["description"] or "Use after" in head["description"]
    assert len(body.splitlines()) < 500
    assert len(body.encode()) < 5000 * 4


@each
def test_references_are_one_level_deep_and_linked(skill: Path):
    _, body = front_matter(skill / "SKILL.md")
    assert {path.suffix for path in skill.rglob("*") if path.is_file()} == {".md"}
    pages = {path.relative_to(skill).as_posix() for path in skill.rglob("*.md")} - {"SKILL.md"}
    assert pages
    assert all(re.fullmatch(r"references/[\w-]+\.md", page) for page in pages)
    assert pages == {page for page in re.findall(r"\]\(([^)]+)\)", body) if page.startswith("references/")}


def test_the_tables_are_those_of_today():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import skill_tables
    finally:
        sys.path.remove(str(ROOT / "docs"))
    assert skill_tables.stale_pages() == [], "run python docs/skill_tables.py"


def test_the_agent_says_when_it_is_used():
    head, body = front_matter(FOLDER / "agents/training-decider.md")
    assert set(head) == {"name", "description", "model", "color"}
    assert head["name"] == "training-decider"
    assert "Use when" in head["description"]
    (example,) = re.findall(r"```json\n(.*?)```", body, re.DOTALL)
    Draft202012Validator(decision_schema()).validate(json.loads(example))


# --- manifests ------------------------------------------------------------------------------------------------------------


def read(name: str, folder: Path = FOLDER) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


MANIFESTS = [
    "plugin.json",
    ".claude-plugin/plugin.json",
    ".codex-plugin/plugin.json",
    ".cursor-plugin/plugin.json",
]


@pytest.mark.parametrize("schema", ["plugin", "mcp"])
def test_the_documents_of_agent_plugins_fit_their_schemas(schema: str):
    document = read(f"{schema}.json")
    fitting = read(f"data/{schema}.schema.json", Path(__file__).parent)
    assert document["$schema"] == fitting["$id"]
    Draft202012Validator(fitting).validate(document)


def test_what_the_text_of_agent_plugins_asks_for_and_its_schema_does_not():
    for server in read("mcp.json")["mcpServers"].values():
        command = server["command"]
        assert re.fullmatch(r"[\w.-]+|\./[\w./-]+", command), (
            "one token: a bare name, or a path in the plugin"
        )
        assert "${" not in command
        assert not set(server.get("env", {})) & {"PLUGIN_ROOT", "PLUGIN_DATA"}
    root = FOLDER.resolve()
    assert [path for path in FOLDER.rglob("*") if not path.resolve().is_relative_to(root)] == []


def test_all_manifests_say_the_same():
    facts = [
        {key: read(name)[key] for key in ("name", "version", "description", "license")} for name in MANIFESTS
    ]
    assert all(fact == facts[0] for fact in facts)
    version = re.search(
        r'^version = "(.+)"$', (ROOT / "plugins/evsys-agents/pyproject.toml").read_text(), re.MULTILINE
    )
    assert version is not None
    assert facts[0]["version"] == version[1]


@pytest.mark.parametrize("name", MANIFESTS)
def test_paths_of_a_manifest_are_in_the_plugin(name: str):
    for value in read(name).values():
        if isinstance(value, str) and value.startswith("./"):
            assert (FOLDER / value).exists()


def test_the_checkout_is_a_plugin_of_the_same_parts():
    checkout, ours = read(".claude-plugin/plugin.json", ROOT), read(".claude-plugin/plugin.json")
    for key in ("name", "version", "description"):
        assert checkout[key] == ours[key]
    parts = [checkout["skills"], *checkout["agents"], checkout["hooks"], checkout["mcpServers"]]
    assert {(ROOT / part).resolve().relative_to(FOLDER).parts[0] for part in parts} == {
        *("skills", "agents", "hooks", ".mcp.json")
    }
    assert {(ROOT / part).resolve() for part in checkout["agents"]} == set((FOLDER / "agents").glob("*.md"))
    (entry,) = read(".claude-plugin/marketplace.json", ROOT)["plugins"]
    assert (ROOT / entry["source"]).resolve() == FOLDER
    assert list(ROOT.glob("skills/*/SKILL.md")) == []


def test_both_files_of_hooks_call_the_hook_for_the_same_events():
    claude, cursor = read("hooks/hooks.json")["hooks"], read("hooks/cursor.json")["hooks"]
    called = {
        event: hook["command"]
        for event, groups in claude.items()
        for group in groups
        for hook in group["hooks"]
    }
    assert {event.lower(): f"{command} --host cursor" for event, command in called.items()} == {
        event.lower(): hook["command"] for event, hooks in cursor.items() for hook in hooks
    }
    assert set(called.values()) == {
        f"evsys-hook {event}" for event in ("session-start", "pre-compact", "pre-tool-use", "post-tool-use")
    }
