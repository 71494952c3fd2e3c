import os
import sys
from pathlib import Path

import pytest

from evsys._plugins.scan import PluginEntry, scan


def found(folder: Path) -> list[PluginEntry]:
    return [entry for entry in scan()[0] if entry.distribution.startswith("evsys-test")]


def warnings() -> list[str]:
    return [warning for warning in scan()[1] if warning.startswith("evsys-test")]


def test_all_groups_of_a_distribution_are_read(site):
    site.install(
        "evsys-test-a", {"evsys.metrics": {"m": "a:M"}, "evsys.transforms": {"t": "a.b:T"}}, version="2.1"
    )
    assert found(site) == [
        PluginEntry("metric", "m", "evsys-test-a", "2.1", "a:M"),
        PluginEntry("transform", "t", "evsys-test-a", "2.1", "a.b:T"),
    ]


def test_other_tools_entry_points_are_ignored(site):
    site.install("evsys-test-a", {"console_scripts": {"x": "a:main"}, "pytest11": {"y": "a"}})
    assert found(site) == []
    assert warnings() == []


def test_names_with_signs_of_families_and_comments_are_read(site):
    site.install("evsys-test-a", "# a comment\n[evsys.metrics]\n; another\n pass@k  =  a:P \n\npass^k=a:H\n")
    assert [(entry.name, entry.value) for entry in found(site)] == [("pass@k", "a:P"), ("pass^k", "a:H")]


def test_distribution_names_are_normalized(site):
    site.install("Evsys_Test.A", {"evsys.metrics": {"m": "a:M"}})
    assert [entry.distribution for entry in found(site)] == ["evsys-test-a"]


def test_the_first_of_two_copies_on_the_path_wins(site, tmp_path, monkeypatch):
    site.install("evsys-test-a", {"evsys.metrics": {"m": "a:M"}}, version="1.0")
    front = tmp_path / "front"
    front.mkdir()
    type(site)(front).install("evsys-test-a", {"evsys.metrics": {"m": "a:M"}}, version="2.0")
    monkeypatch.syspath_prepend(front)
    assert [entry.version for entry in found(site)] == ["2.0"]


def test_what_a_broken_uninstall_left_is_ignored(site):
    info = site.install("evsys-test-a", {"evsys.metrics": {"m": "a:M"}})
    info.rename(info.with_name("~vsys_test_a-1.0.dist-info"))
    assert found(site) == []


def test_a_group_that_does_not_exist_is_warned_about(site):
    site.install("evsys-test-a", {"evsys.metric": {"m": "a:M"}})
    assert warnings() == [
        "evsys-test-a: 'm' is in the unknown group 'evsys.metric' and can't be found; did you mean 'evsys.metrics'?"
    ]


@pytest.mark.parametrize(
    ("group", "hint"),
    [
        ("evsys-verifiers", "; did you mean 'evsys.verifiers'?"),
        ("evsys_rollout_engine", "; did you mean 'evsys.rollout_engines'?"),
        ("Evsys.Verifiers", "; did you mean 'evsys.verifiers'?"),
        ("evsy.verifiers", "; did you mean 'evsys.verifiers'?"),
        ("esvys.metrics", "; did you mean 'evsys.metrics'?"),
        ("evsysmetrics", "; did you mean 'evsys.metrics'?"),
        ("evsys.things", ""),
        ("evsys", ""),
    ],
)
def test_a_group_that_is_nearly_one_of_ours_is_warned_about_too(site, group, hint):
    site.install("evsys-test-a", {group: {"m": "a:M"}})
    assert found(site) == []
    assert warnings() == [
        f"evsys-test-a: 'm' is in the unknown group {group!r} and can't be found{hint}",
    ]


@pytest.mark.parametrize(
    "group",
    ["pytest11", "mypy.plugins", "verifiers", "keys.metrics", "events.plugins", "evsys_harbor.agents"],
)
def test_a_group_of_another_tool_is_nobodys_mistake(site, group):
    site.install("evsys-test-a", {group: {"m": "a:M"}})
    assert warnings() == []


@pytest.mark.parametrize("line", ["m", "m =", "= a:M"])
def test_a_line_that_is_no_entry_is_warned_about_and_the_rest_works(site, line):
    site.install("evsys-test-a", f"[evsys.metrics]\n{line}\nn = a:N\n")
    assert [entry.name for entry in found(site)] == ["n"]
    assert warnings() == [
        f"evsys-test-a: {line!r} in its group 'evsys.metrics' isn't `name = module:attribute`"
    ]


def test_an_unreadable_list_is_warned_about(site):
    info = site.install("evsys-test-a", "")
    (info / "entry_points.txt").write_bytes(b"[evsys.metrics]\nm\xff = a:M\n")
    assert found(site) == []
    assert len(warnings()) == 1
    assert "can't be read" in warnings()[0]


def test_a_path_is_scanned_once(site, monkeypatch):
    site.install("evsys-test-a", {"evsys.metrics": {"m": "a:M"}})
    first = scan()
    monkeypatch.setattr("builtins.open", None)
    assert scan() is first


def test_the_scan_of_200_distributions_imports_no_plugin(site):
    for number in range(200):
        site.install(f"evsys-test-{number}", {"evsys.metrics": {f"m{number}": f"evsys_test_{number}:M"}})
    assert len(found(site)) == 200
    assert not [name for name in sys.modules if name.startswith("evsys_test_")]


def test_the_qualified_name_of_a_family_member_has_its_number():
    entry = PluginEntry("metric", "pass@k", "evsys-test-a", params={"k": 3})
    assert entry.qualified == "evsys-test-a/pass@3"


def test_a_folder_that_may_not_be_read_is_warned_about_and_the_others_are(site, tmp_path, monkeypatch):
    site.install("evsys-test-a", {"evsys.metrics": {"m": "a:M"}})
    closed = tmp_path / "evsys-test-closed"
    closed.mkdir()
    monkeypatch.syspath_prepend(closed)
    listdir = os.listdir

    def refuse(folder):
        if folder == str(closed):
            raise PermissionError(13, "Permission denied", folder)
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", refuse)
    entries, said, _ = scan()
    assert "evsys-test-a" in {entry.distribution for entry in entries}
    assert [f"{closed}: the plugins there can't be found: [Errno 13] Permission denied: '{closed}'"] == list(
        said
    )


def test_a_name_with_a_slash_is_warned_about_since_it_would_look_qualified(site):
    site.install("evsys-test-a", {"evsys.metrics": {"b/m": "a:M"}})
    assert found(site) == []
    assert warnings() == [
        "evsys-test-a: 'b/m = a:M' in its group 'evsys.metrics' isn't `name = module:attribute`, and a name has no '/'"
    ]


def test_distributions_without_entry_points_are_known_by_their_versions(site):
    info = site.install("Evsys_Test.A", "", version="2.1")
    assert scan().distributions["evsys-test-a"] == ("2.1", str(info))
