"""The root command: what it lists and completes, whatever is installed, and what it says of names it doesn't have."""

from __future__ import annotations

import click
import pytest

from evsys import PluginEntry, Registry, use_registry
from evsys_cli import lazy
from evsys_cli.distribution_commands import brought_commands
from evsys_cli.main import cli
from evsys_cli.plugin_commands import plugin_command_names
from evsys_cli.table import COMMANDS

BROUGHT = [name for name, info in COMMANDS.items() if info.distribution]


@pytest.fixture
def nothing_installed():
    with use_registry(Registry(entry_points=())) as registry:
        yield registry


@pytest.fixture
def complete(evsys, monkeypatch):
    """Call -> the words that a shell would offer, and a check that nothing else was said."""

    def call(words: str, shell: str = "bash") -> list[str]:
        monkeypatch.setenv("_EVSYS_COMPLETE", f"{shell}_complete")
        monkeypatch.setenv("COMP_WORDS", words)
        last = words.split(" ")[-1]
        monkeypatch.setenv("COMP_CWORD", last if shell == "fish" else str(len(words.split(" ")) - 1))
        outcome = evsys()
        assert outcome.code == 0, outcome.err
        assert outcome.err == ""
        lines = [line for line in outcome.out.splitlines() if line]  # click ends no words with an empty line
        if shell == "zsh":
            return lines[1::3]
        return [line.partition(",")[2].partition("\t")[0] for line in lines]

    return call


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_every_command(complete, shell):
    assert complete("evsys ", shell) == list(COMMANDS)
    assert complete("evsys va", shell) == ["validate"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_what_is_there_where_distributions_are_missing(complete, shell, nothing_installed):
    assert complete("evsys ", shell) == [name for name in COMMANDS if name not in BROUGHT]


def test_a_command_that_a_stranger_brings_is_completed(complete):
    entry = PluginEntry("command", "vanish", "evsys-stranger", "1.0", "no_such_module:vanish")
    with use_registry(Registry(entry_points=[entry])):
        assert complete("evsys van") == ["vanish"]


@pytest.mark.parametrize("name", BROUGHT)
def test_nothing_is_completed_after_a_command_that_is_missing(complete, name, nothing_installed):
    assert complete(f"evsys {name} ") == []


def test_nothing_is_completed_after_a_kind_that_does_not_exist(complete):
    assert complete("evsys schema algoritm ") == []
    assert "sft" in complete("evsys schema algorithm ")


def test_commands_of_a_group_are_completed(complete):
    assert complete("evsys data ") == ["check", "preview"]


@pytest.mark.parametrize("name", BROUGHT)
def test_a_command_of_a_missing_distribution_says_how_to_install_it(evsys, name, nothing_installed):
    line = f"install it with: pip install {COMMANDS[name].distribution}"
    called = evsys(name, "x", "--option")
    assert called.code == 3
    assert called.err == f"no command is called {name!r}; {line}\n"
    assert evsys(name, "--json").json["error"]["hint"] == line
    helped = evsys(name, "--help")
    assert helped.code == 0
    assert line in " ".join(helped.out.split())


def test_help_says_how_to_install_what_is_missing(evsys, monkeypatch):
    monkeypatch.setattr(lazy, "_is_importable", lambda package: package != "evsys_conformance")
    text = " ".join(evsys("--help").out.split())
    assert "Check a plugin against its kind's contract. (pip install evsys-conformance)" in text
    assert "pip install evsys-backend-local" not in text


def test_whether_a_distribution_is_there_is_seen_by_its_package():
    assert lazy._is_importable("evsys_backend_local")
    assert not lazy._is_importable("evsys_nobody_has_this")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("no_such_module:vanish", "its module 'no_such_module' is gone"),
        ("json:dumps", "is not a click command but of type 'function'"),
    ],
)
def test_a_broken_command_says_why_when_it_is_called_and_spoils_no_list(evsys, value, said):
    entry = PluginEntry("command", "models", "evsys-stranger", "1.0", value)
    with use_registry(Registry(entry_points=[entry])):
        outcome = evsys("models", "list")
        assert outcome.code == 3
        assert said in outcome.err
        assert "Traceback" not in outcome.err
        assert evsys("--help").code == 0
        with click.Context(cli, info_name="evsys") as ctx:
            assert set(cli.to_info_dict(ctx)["commands"]) == set(COMMANDS)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts the metadata of a distribution with commands on the path."""

    def installed(distribution: str, *names: str, group: str = "evsys.commands") -> None:
        folder = tmp_path / distribution / f"{distribution.replace('-', '_')}-1.0.dist-info"
        folder.mkdir(parents=True)
        lines = "".join(f"{name} = no_such_module:{name}\n" for name in names)
        (folder / "entry_points.txt").write_text(
            f"[console_scripts]\nother = a:b\n\n[{group}]\n{lines}\n[evsys.metrics]\nodd = a:b\n",
            encoding="utf-8",
        )
        monkeypatch.syspath_prepend(tmp_path / distribution)

    return installed


def test_help_lists_the_commands_of_plugins_without_importing_them(evsys, install):
    install("evsys-stranger", "vanish", "appear")
    install("Other_Tool", "hide", group="evsys.command")
    text = evsys("--help").out
    listed = text.partition("Commands of plugins:\n")[2]
    assert [line.split() for line in listed.splitlines()] == [
        ["vanish", "evsys-stranger"],
        ["appear", "evsys-stranger"],
    ]


def test_help_has_no_section_for_plugins_that_bring_nothing(evsys):
    assert "Commands of plugins" not in evsys("--help").out


def test_help_names_commands_that_can_not_be_run_with_their_distributions(evsys, install):
    install("evsys-stranger", "run", "vanish")
    install("evsys-rival", "vanish")
    listed = " ".join(evsys("--help").out.partition("Commands of plugins:\n")[2].split())
    assert "run (evsys-stranger) can't be run: run is a command of evsys-cli" in listed
    assert "vanish evsys-rival and evsys-stranger: neither runs" in listed


def test_what_help_lists_is_what_the_registry_has(evsys, install):
    install("evsys-stranger", "vanish")
    brought = {
        name: owner
        for name, owner in plugin_command_names().items()
        if name not in COMMANDS and "." not in name
    }
    assert brought_commands() == brought == {"vanish": "evsys-stranger"}


def test_the_table_and_core_name_the_same_distributions(evsys):
    for name in BROUGHT:
        with use_registry(Registry(entry_points=())):
            assert COMMANDS[name].distribution in evsys(name).err


# --- names that aren't there ---------------------------------------------------------------------------------------


def test_plugins_that_are_planned_answer_alike_wherever_they_are_named(evsys, config):
    text = config.read_text(encoding="utf-8")
    config.write_text(text + "log_store: {kind: evsys_logger}\n", encoding="utf-8")
    words = "log_store 'evsys_logger' is not in this version"
    assert evsys("schema", "log_store", "evsys_logger").err.startswith(words)
    assert words in evsys("validate", config).err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("vaildate",), "No such command 'vaildate'. Did you mean 'validate'?"),
        (("zzzz",), "No such command 'zzzz'. See 'evsys --help'."),
        (("data", "previw"), "No such command 'previw'. Did you mean 'preview'?"),
        (("data", "zzzz"), "No such command 'zzzz'. See 'evsys data --help'."),
        (("run", "--restart", "x"), "No such option '--restart'"),
    ],
)
def test_a_misspelt_name_gets_the_closest_one_or_the_way_to_the_list(evsys, arguments, said):
    outcome = evsys(*arguments)
    assert outcome.code == 2
    assert said in outcome.err
