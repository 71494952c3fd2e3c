"""Writes the generated tables of the skills that coding agents get: from schemas, from `--help`, and from the core.

    python docs/skill_tables.py [--check]

A table is between `<!-- table: NAME ARGUMENT... -->` and `<!-- end of table -->`; NAME is one of `TABLES`.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click
from param_tables import param_tables

from evsys import Registry, errors, protocols
from evsys_cli.main import cli
from evsys_cli.table import GROUPS

ROOT = Path(__file__).parents[1]
SKILLS = ROOT / "plugins/evsys-agents/src/evsys_agents/plugin/skills"
BLOCK = re.compile(r"<!-- table: (?P<call>[^\n]+) -->\n.*?<!-- end of table -->", re.DOTALL)


def main() -> None:
    """Write all tables, or look whether they are written."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 if a table is stale")
    stale = stale_pages()
    if parser.parse_args().check:
        sys.exit(f"stale: {', '.join(stale)}; run python docs/skill_tables.py" if stale else 0)
    for name in stale:
        path = SKILLS / name
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


def stale_pages() -> list[str]:
    """The pages whose tables differ from what would be written."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(SKILLS.rglob("*.md"))}
    return [path.relative_to(SKILLS).as_posix() for path, text in pages.items() if filled(text) != text]


def filled(text: str) -> str:
    """A page with its tables as they are now."""

    def table(match: re.Match[str]) -> str:
        name, *arguments = match["call"].split()
        return f"<!-- table: {match['call']} -->\n\n{TABLES[name](*arguments)}\n\n<!-- end of table -->"

    return BLOCK.sub(table, text)


def plugin(kind: str, name: str) -> str:
    """The params of a plugin."""
    return param_tables(Registry().schema(kind, name))


def experiment(name: str) -> str:
    """The keys of a part of the experiment file, by its class."""
    from evsys import schema_for_config
    from evsys_runtime.config import model

    schema = schema_for_config(getattr(model, name))
    return param_tables({key: value for key, value in schema.items() if key != "$defs"})


def commands() -> str:
    """Each command with its arguments and options."""
    rows = ["| command | purpose | options |", "| --- | --- | --- |"]
    for group in GROUPS.values():
        for name, info in group.items():
            rows += _command_rows(name, info.help)
    return "\n".join(rows)


def _command_rows(name: str, purpose: str) -> Iterator[str]:
    context = click.Context(cli)
    command = cli.get_command(context, name)
    assert command is not None
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield _command_row(f"{name} {inner}", found, found.get_short_help_str(200))
    else:
        yield _command_row(name, command, purpose)


def _command_row(name: str, command: click.Command, purpose: str) -> str:
    arguments = [
        param.make_metavar(click.Context(command))
        for param in command.params
        if isinstance(param, click.Argument)
    ]
    options = [
        f"`{param.opts[-1]}`"
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden
    ]
    call = " ".join(["evsys", name, *arguments]).replace("|", r"\|")
    return f"| `{call}` | {purpose} | {', '.join(options)} |"


def kinds() -> str:
    """Each kind of plugin with its entry-point group and its first sentence."""
    rows = ["| kind | entry-point group | purpose |", "| --- | --- | --- |"]
    for kind, group in protocols.KINDS.items():
        source = (ROOT / f"docs/kinds/{kind}.py").read_text(encoding="utf-8")
        first = re.split(r"(?<=[.:])\s", source.removeprefix('"""').replace("\n", " "), maxsplit=1)[0]
        rows.append(f"| `{kind}` | `{group}` | {first.rstrip(':.')}. |")
    return "\n".join(rows)


def error_classes() -> str:
    """Each error with its exit code."""
    rows = ["| class | exit code | means |", "| --- | --- | --- |"]
    for name in errors.__all__:
        value = getattr(errors, name)
        if isinstance(value, type) and issubclass(value, errors.EvsysError):
            doc = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
            rows.append(f"| `{name}` | {value.exit_code} | {doc} |")
    return "\n".join(rows)


def result(name: str) -> str:
    """The fields of a result."""
    from evsys_runtime import result_schema

    schema = json.loads(json.dumps(result_schema(name)))
    return param_tables({key: value for key, value in schema.items() if key != "$defs"})


TABLES: Mapping[str, Callable[..., str]] = {
    "plugin": plugin,
    "experiment": experiment,
    "commands": commands,
    "kinds": kinds,
    "errors": error_classes,
    "result": result,
}

if __name__ == "__main__":
    main()
