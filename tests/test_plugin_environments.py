"""Environments full of plugins, with every trouble that one can have: what the command line says, and who is harmed."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from lab import Lab

PLUGINS = 200
VERSION = version("evsys-core")

# What is wrong with one distribution each, and what is said of it.
TROUBLES = {
    "raises": "RuntimeError: not today",
    "deleted": "its module 'evsys_dummy_deleted' is gone; reinstall or uninstall evsys-dummy-deleted",
    "too_new": "speaks protocol 99, and this evsys-core speaks 1; upgrade evsys-core",
    "too_old": "speaks protocol 0, and this evsys-core speaks 1; upgrade evsys-dummy-too-old",
    "other_core": f"was made for evsys-core>=900, and evsys-core {VERSION} is installed; upgrade evsys-core",
    "needs_more": "it needs 'evsys_dummy_library', which isn't installed; install it with: "
    "pip install 'evsys-dummy-needs-more[all]'",
    "no_plugin": "has no '__call__', which its kind asks for",
}
GOOD = "class Thing:\n    {protocol}\n    def __call__(self, rows):\n        return rows\n"
MODULES = {
    "raises": "raise RuntimeError('not today')\n",
    "too_new": GOOD.format(protocol="protocol = 99"),
    "too_old": GOOD.format(protocol="protocol = 0"),
    "other_core": GOOD.format(protocol=""),
    "needs_more": "import evsys_dummy_library\n",
    "no_plugin": "class Thing: ...\n",
}
REQUIRES = {
    "other_core": "evsys-core>=900",
    "needs_more": "evsys-dummy-library>=1 ; extra == 'all'",
}


def install(site: Path, name: str, module: str | None, requires: str | None = None) -> None:
    """A distribution with one transform, as installers leave it."""
    info = site / f"evsys_dummy_{name}-1.0.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: evsys-dummy-{name.replace('_', '-')}", "Version: 1.0"]
    lines += [f"Requires-Dist: {requires}"] if requires else []
    (info / "METADATA").write_text("\n".join([*lines, "", ""]), encoding="utf-8")
    (info / "entry_points.txt").write_text(
        f"[evsys.transforms]\n{name} = evsys_dummy_{name}:Thing\n", encoding="utf-8"
    )
    if module is not None:
        (site / f"evsys_dummy_{name}.py").write_text(module, encoding="utf-8")


@pytest.fixture(scope="module")
def crowd(tmp_path_factory) -> dict[str, str]:
    """The environment of a process in which 200 plugins more are installed, one of each trouble among them."""
    site = tmp_path_factory.mktemp("crowd")
    for name in TROUBLES:
        install(site, name, MODULES.get(name), REQUIRES.get(name))
    for number in range(PLUGINS - len(TROUBLES)):
        install(site, f"good_{number}", GOOD.format(protocol=""))
    return {"PYTHONPATH": str(site)}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path, capsys)


def names(rows: list[dict]) -> set[str]:
    return {row["name"] for row in rows if row["distribution"].startswith("evsys-dummy")}


def test_all_are_listed_and_none_is_imported_so_none_is_broken_yet(lab, crowd):
    outcome = lab.process("list", "--json", env=crowd)
    outcome.passed()
    rows = outcome.json["plugins"]
    assert names(rows) == {*TROUBLES, *(f"good_{number}" for number in range(PLUGINS - len(TROUBLES)))}
    assert [row["error"] for row in rows if row["error"]] == []
    assert outcome.err == ""


def test_checking_them_names_each_broken_one_with_its_trouble_and_no_other(lab, crowd):
    outcome = lab.process("list", "transform", "--broken", "--json", env=crowd)
    assert outcome.code == 3
    rows = {row["name"]: row["error"] for row in outcome.json["plugins"]}
    assert set(rows) == set(TROUBLES)
    for name, said in TROUBLES.items():
        assert f"evsys-dummy-{name.replace('_', '-')}/{name} (1.0)" in rows[name]
        assert said in rows[name]


def test_the_broken_ones_harm_nobody_who_uses_another(lab, crowd):
    lab.config(("transforms: [{kind: jsonl_to_chat}]", "transforms: [{kind: jsonl_to_chat}, {kind: good_7}]"))
    outcome = lab.process("run", "config.yaml", "--quiet", env=crowd)
    outcome.passed()
    assert outcome.err == ""
    run = json.loads(next(lab.record().glob("runs/*/run.json")).read_text(encoding="utf-8"))
    assert run["plugins"]["transform:evsys-dummy-good-7/good_7"] == "1.0"


@pytest.mark.parametrize("name", TROUBLES)
def test_one_that_is_used_and_broken_is_told_and_nothing_is_spent(lab, crowd, monkeypatch, name):
    monkeypatch.syspath_prepend(crowd["PYTHONPATH"])
    lab.config(("kind: jsonl_to_chat}", f"kind: jsonl_to_chat}}, {{kind: {name}}}"))
    outcome = lab.run()
    outcome.refused(3, re.escape(TROUBLES[name]))
    lab.nothing_was_written()


def test_a_denied_one_is_out_of_sight(lab, crowd):
    env = {**crowd, "EVSYS_PLUGINS_DENY": "transform:raises, evsys-dummy-deleted"}
    assert names(lab.process("list", "--json", env=env).json["plugins"]) & {"raises", "deleted"} == set()
    lab.config(("kind: jsonl_to_chat", "kind: raises"))
    lab.process("validate", "config.yaml", env=env).refused(2, "EVSYS_PLUGINS_DENY keeps it out")
    only = {**crowd, "EVSYS_PLUGINS_ALLOW": "evsys-dummy-good-1,transform:good_2"}
    assert names(lab.process("list", "--json", env=only).json["plugins"]) == {"good_1", "good_2"}


def test_a_slow_one_is_named_while_it_is_imported_and_only_when_it_is_used(lab, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    # Computes until the message that it is slow.
    waits = "import sys, threading\ntold = threading.Event()\nwrite = sys.stderr.write\n"
    waits += "sys.stderr.write = lambda text: (told.set(), write(text))[1]\nwhile not told.is_set():\n    sum(range(10_000))\n"
    install(site, "slow", waits + GOOD.format(protocol=""))
    env = {"PYTHONPATH": str(site)}
    for arguments in (("list",), ("validate", "config.yaml")):
        unused = lab.process(*arguments, env=env)
        unused.passed()
        assert "importing" not in unused.err
    lab.config(("kind: jsonl_to_chat}", "kind: jsonl_to_chat}, {kind: slow}"))
    used = lab.process("validate", "config.yaml", env=env)
    used.passed()
    assert "still importing transform evsys-dummy-slow/slow (1.0) (evsys_dummy_slow:Thing)" in used.err


def test_a_project_s_own_plugin_wins_with_a_warning_and_is_marked_in_the_record(lab):
    lab.code(
        "from evsys_sdk import register_transform\nfrom evsys_std.transforms import JsonlToChat\n\n"
        "@register_transform('jsonl_to_chat')\nclass Mine(JsonlToChat): ...\n"
    )
    outcome = lab.run()
    outcome.passed()
    warning = f"transform 'jsonl_to_chat' is the project's own and hides transform evsys-std/jsonl_to_chat ({VERSION})"
    assert outcome.out.count(f"warning: {warning}") == 1
    assert warning in lab.facts("conclusion.json")["warnings"]
    run = json.loads(next(lab.record().glob("runs/*/run.json")).read_text(encoding="utf-8"))
    marks = [key for key in run["plugins"] if key.startswith("transform:")]
    assert marks == ["transform:project/jsonl_to_chat"]
    assert run["plugins"]["transform:project/jsonl_to_chat"].startswith("sha256:")

    lab.config(("kind: jsonl_to_chat", "kind: evsys-std/jsonl_to_chat"))
    chosen = lab.run()
    chosen.passed()
    assert "project's own" not in chosen.said
