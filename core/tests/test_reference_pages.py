"""The reference pages of core leave nothing out."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import evsys.types
from evsys import errors, hookspecs, protocols

PAGES = Path(__file__).parents[2] / "docs/reference"


def table(page: str) -> set[str]:
    """The first cells of the tables of a page, without their backticks."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))


def test_every_kind_with_its_group_is_there():
    text = (PAGES / "kinds/index.md").read_text(encoding="utf-8")
    assert [kind for kind, group in protocols.KINDS.items() if f"({kind}.md) | `{group}` |" not in text] == []


def test_every_environment_variable_is_there():
    source = "".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].glob("src/**/*.py")
    )
    assert set(re.findall(r"\bEVSYS_[A-Z_]+\b", source)) <= table("plugins")


def test_every_error_with_its_exit_code_is_there():
    text = (PAGES / "errors.md").read_text(encoding="utf-8")
    others = {"PLUGIN_FAILURES", "Problem", "boundary"}
    classes = {name: getattr(errors, name) for name in errors.__all__ if name not in others}
    rows = {row[0]: int(row[1]) for row in re.findall(r"^\| `(\w+)` \|.*\| (\d+) \|$", text, re.MULTILINE)}
    assert rows == {name: cls.exit_code for name, cls in classes.items()}


def test_every_hook_with_its_arguments_is_there():
    text = (PAGES / "api/hooks.md").read_text(encoding="utf-8")
    rows = {
        name: re.findall(r"(\w+): ", arguments)
        for name, arguments in re.findall(r"^def (\w+)\((.*)\) ->", text, re.MULTILINE)
    }
    assert rows == {name: list(inspect.signature(hook).parameters) for name, hook in hookspecs.HOOKS.items()}


def test_every_type_and_protocol_is_on_a_page():
    shown = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("api", "kinds")
        for path in (PAGES / folder).glob("*.md")
    )
    homes = [import_module(f"evsys.types.{each.name}") for each in iter_modules(evsys.types.__path__)]
    public = [getattr(home, name) for home in [protocols, *homes] for name in home.__all__]
    names = {each.__name__ for each in public if isinstance(each, type)}
    assert [
        name
        for name in sorted(names - {"Callback"})
        if not re.search(rf"^class {name}\b", shown, re.MULTILINE)
    ] == []
