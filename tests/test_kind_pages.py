"""The reference pages of the kinds are those that the code makes, and their examples keep the contracts that they show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from house import ROOT

from evsys import protocols
from evsys_conformance import catalogue

sys.path.insert(0, str(ROOT / "docs"))
try:
    import generate
    from param_tables import param_tables, shared_params
finally:
    sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(autouse=True)
def nothing_is_kept_out(monkeypatch):
    monkeypatch.delenv("EVSYS_PLUGINS_DENY", raising=False)


def test_the_pages_are_those_that_the_code_makes():
    assert generate.stale_pages() == [], "run python docs/generate.py"


def test_a_log_store_with_the_params_of_a_callback_links_to_them():
    registry = generate.workspace_registry()
    assert (generate.TARGET / "log_store.md").read_text(encoding="utf-8").count("(callback.md#") == 4
    (local,) = [entry for entry in registry.entries("log_store") if entry.name == "local"]
    assert generate.twin_of(local, registry) is None


def test_there_is_a_page_and_an_example_for_every_kind():
    assert {path.stem for path in generate.TARGET.glob("*.md")} == {*protocols.KINDS, "index"}
    assert {path.stem for path in generate.EXAMPLES.glob("*.py")} == set(protocols.KINDS)


def test_a_stale_page_and_one_too_many_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "TARGET", tmp_path)
    generate.main([])
    assert generate.stale_pages() == []
    page = tmp_path / "verifier.md"
    page.write_text(page.read_text(encoding="utf-8") + "more\n", encoding="utf-8")
    (tmp_path / "judge.md").touch()
    (tmp_path / "agent.md").unlink()
    assert generate.stale_pages() == ["agent.md", "judge.md", "verifier.md"]
    with pytest.raises(
        SystemExit, match=r"stale: agent.md, judge.md, verifier.md; run python docs/generate.py"
    ):
        generate.main(["--check"])
    generate.main([])
    with pytest.raises(SystemExit) as ended:
        generate.main(["--check"])
    assert ended.value.code == 0


@pytest.mark.parametrize("kind", protocols.KINDS)
def test_a_page_has_the_protocol_every_param_of_its_plugins_and_every_check(kind):
    page = (generate.TARGET / f"{kind}.md").read_text(encoding="utf-8")
    registry = generate.workspace_registry()
    for entry in registry.entries(kind):
        assert f"### `{entry.name}`" in page
        elsewhere = kind in generate.WITHOUT_DECORATOR or generate.twin_of(entry, registry) is not None
        schema = {} if elsewhere else registry.schema(kind, entry.qualified)
        missing = [name for name in schema.get("properties", {}) if f"`{name}`" not in page]
        assert missing == []
    assert [check.name for check in catalogue.checks_of(kind) if f"`{check.name}`" not in page] == [
        check.name for check in generate.checks_of_every_plugin() if kind not in generate.WITHOUT_DECORATOR
    ]


# --- tables of params ---------------------------------------------------------------------------------------------------


def test_a_table_has_types_bounds_defaults_meanings_sources_and_aliases():
    schema = {
        "properties": {
            "rate": {
                "type": "number",
                "default": 0.5,
                "exclusiveMinimum": 0,
                "maximum": 1,
                "description": "How a | b.",
                "x-evsys-source": "a paper; A blog, https://arxiv.org/a; https://arxiv.org/b",
            },
            "speed": {"type": "number", "x-evsys-alias-of": "rate"},
            "pace": {
                "type": "number",
                "x-evsys-alias-of": "rate",
                "deprecated": True,
                "description": "another name for 'rate' (deprecated since 0.4)",
            },
            "mode": {"enum": ["a", 1, None]},
            "inner": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}]},
            "names": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        },
        "required": ["mode"],
        "$defs": {"Inner": {"properties": {"k": {}}}, "Empty": {}},
    }
    head = "| param | takes | default | meaning |\n| --- | --- | --- | --- |\n"
    rate = (
        "| `rate` (also `speed`, `pace`, deprecated since 0.4) | number, > 0, ≤ 1 | `0.5` | "
        "How a &#124; b. (a paper; [A blog](https://arxiv.org/a); [source](https://arxiv.org/b)) |"
    )
    rest = (
        '| `mode` | `"a"` or `1` or `null` | required |  |\n'
        "| `inner` | `Inner` or null |  |  |\n"
        "| `names` | list of text, not empty |  |  |\n\n"
        f"A `Inner`:\n\n{head}| `k` | anything |  |  |"
    )
    assert param_tables(schema) == f"{head}{rate}\n{rest}"
    assert param_tables(schema, left_out=[rate]) == f"{head}{rest}"
    assert param_tables({"properties": {}, "additionalProperties": False}) == "Takes no params."
    assert param_tables({"properties": {}, "additionalProperties": True}) == "Takes any params."


def test_params_that_several_plugins_have_alike_are_shared_if_that_saves_rows():
    def schema(own: str, names: str) -> dict[str, object]:
        return {"properties": {name: {"type": "integer"} for name in (own, *names)}}

    shared = shared_params({"x": schema("own", "abcdefghij"), "y": schema("other", "abcdefghij")})
    assert list(shared) == [f"| `{name}` | integer |  |  |" for name in "abcdefghij"]
    assert all(names == ["x", "y"] for names in shared.values())
    assert shared_params({"x": schema("own", "abc"), "y": schema("other", "abc")}) == {}


def test_shared_params_are_printed_once():
    page = (generate.TARGET / "algorithm.md").read_text(encoding="utf-8")
    assert page.count("| `warmup_steps` |") == 1


# --- examples -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> Path:
    """A site-packages folder in which the examples are an installed distribution."""
    site = tmp_path_factory.mktemp("site")
    info = site / "evsys_page_examples-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: evsys-page-examples\nVersion: 1.0\n", encoding="utf-8"
    )
    package = site / "evsys_page_examples"
    package.mkdir()
    lines = []
    for kind, group in protocols.KINDS.items():
        example = generate.read_example(kind)
        (package / f"{kind}.py").write_text(example.code, encoding="utf-8")
        target = f"evsys_page_examples.{kind}" + (f":{example.attribute}" if example.attribute else "")
        lines.append(f"[{group}]\n{example.name} = {target}\n")
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    return site


def test_the_examples_pass_the_conformance_suite(examples, tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--evsys-conformance", "evsys-page-examples", "-W", "error"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(examples)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
