"""Writes the pages of `docs/reference/kinds/` and `docs/reference/api/` from protocols, schemas, checks and examples.

`python docs/generate.py` writes them, `--check` says which are stale and ends with 1. What a kind is for and its example are in
`docs/kinds/<kind>.py`: a docstring in Markdown, whose sections come after the example on the page, and code that runs.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from api_pages import NOT_RUN, api_pages
from param_tables import param_tables, shared_params

from evsys import PluginEntry, Registry, protocols
from evsys_conformance.catalogue import CheckInfo, WordInfo, checks_of, words_of
from evsys_runtime.config.later import later_names

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs/kinds"
TARGET = ROOT / "docs/reference/kinds"
API_TARGET = ROOT / "docs/reference/api"

FURTHER = {
    "algorithm": ("StepBuilder",),
    "backend": ("TrainingClient", "SamplingClient", "Tokenizer"),
    "metric": ("RolloutMetric",),
}
"""Protocols that a kind has beside the one of its name."""

KEYS = {
    "deployer": ("experiment", "deploy"),
    "environment": ("benchmark", "environment"),
    "launcher": ("experiment", "launcher"),
    "log_store": ("experiment", "log_store"),
    "search": ("experiment", "search"),
}
"""Where the experiment file names kinds that may be planned only: a scope of it, and the key."""

SHARED = "shared-params"
"""The heading of the params that several plugins of a kind have alike, as an anchor."""

COMMON_WORDS = ("params", "files", "service")
"""Keys of the attribute `conformance` that plugins of every kind may have."""

OF_HOOKS = {"callback", "plugin"}
WITHOUT_DECORATOR = {"plugin", "command"}


class Example(NamedTuple):
    """What `docs/kinds/<kind>.py` holds."""

    intro: str
    sections: str
    code: str
    name: str
    attribute: str


def main(arguments: Sequence[str] | None = None) -> None:
    """Write all pages, or look whether they are written."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 if a page is stale")
    options = parser.parse_args(arguments)
    if os.environ.get("EVSYS_PLUGINS_DENY"):
        sys.exit("EVSYS_PLUGINS_DENY keeps plugins out of the pages; unset it")
    stale = stale_pages()
    if options.check:
        sys.exit(f"stale: {', '.join(stale)}; run python docs/generate.py" if stale else 0)
    for folder, texts in ((TARGET, pages()), (API_TARGET, signatures())):
        folder.mkdir(exist_ok=True)
        for path in set(folder.glob("*.md")) - {folder / name for name in texts}:
            path.unlink()
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")


def stale_pages() -> list[str]:
    """Names of pages that differ from what would be written, and of those that shouldn't be there."""
    return [*_stale(TARGET, pages()), *_stale(API_TARGET, signatures())]


def _stale(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    return sorted(name for name in {*wanted, *there} if wanted.get(name) != there.get(name))


def signatures() -> dict[str, str]:
    """The pages of types, protocols and hooks that no kind's page shows, by file name."""
    return api_pages(
        {*map(protocol_name, protocols.KINDS), *(name for names in FURTHER.values() for name in names)}
    )


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    registry = workspace_registry()
    made = {f"{kind}.md": page(kind, registry) for kind in protocols.KINDS}
    return {"index.md": index(registry), **made}


def workspace_registry() -> Registry:
    """The plugins of this repository, whatever else is installed."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    members = settings["tool"]["uv"]["workspace"]["members"]
    files = [path for member in members for path in ROOT.glob(f"{member}/pyproject.toml")]
    names = [tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"] for path in files]
    return Registry(allow=names)


# --- pages --------------------------------------------------------------------------------------------------------------


def page(kind: str, registry: Registry) -> str:
    """The page of one kind."""
    example = read_example(kind)
    parts = [
        f"# {title(kind)}",
        f"<!-- Written by docs/generate.py; the words and the example are those of docs/kinds/{kind}.py. -->",
        example.intro,
        later_note(kind),
        "## Protocol",
        version_of(kind),
        contract(kind),
        "## Example",
        f"```python\n{example.code}```",
        "## Register it",
        registering(kind, example),
        example.sections,
        "## In this repository",
        installed(kind, registry),
        "## Checks",
        checks(kind),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def index(registry: Registry) -> str:
    """The page that lists the kinds."""
    rows = []
    for kind, group in protocols.KINDS.items():
        first = read_example(kind).intro.replace("\n", " ").partition(". ")[0].partition(": ")[0]
        count = len(registry.entries(kind))
        rows.append(f"| [{title(kind)}]({kind}.md) | `{group}` | {first.rstrip('.')}. | {count} |")
    return "\n".join(
        [
            "# Kinds of plugins",
            "",
            "<!-- Written by docs/generate.py. -->",
            "",
            "Everything between an experiment file and its conclusion is done by plugins of these kinds.",
            "[Plugins](../plugins.md) describes what they have in common: names, params, discovery.",
            "In any module of a project's `src/`, the decorator of the kind is enough to register one.",
            "",
            "| kind | entry-point group | purpose | in this repository |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
            "## Checks of every plugin",
            "",
            "`evsys conformance` makes these checks of every plugin; each page lists the checks of its kind.",
            "",
            check_table(checks_of_every_plugin()),
            "",
        ]
    )


def title(kind: str) -> str:
    """What a kind is called above its page."""
    return {"plugin": "Ambient hooks"}.get(kind, kind.replace("_", " ").capitalize())


# --- parts of a page ----------------------------------------------------------------------------------------------------


def version_of(kind: str) -> str:
    """The module and the version of a kind's protocol."""
    if not hasattr(protocols, protocol_name(kind)):
        return ""
    return f"From `evsys.protocols`, version {protocols.PROTOCOL_VERSIONS[-1]}:"


def later_note(kind: str) -> str:
    """Says so where the experiment file can't name the kind yet."""
    scope, key = KEYS.get(kind, ("experiment", ""))
    if key not in later_names(scope):
        return ""
    return (
        f"**Not in this version:** the experiment file's key `{key}` is refused until something uses it. The contract "
        "and its checks exist."
    )


def protocol_name(kind: str) -> str:
    """The protocol of a kind has its name, in the spelling of classes."""
    return kind.title().replace("_", "")


def contract(kind: str) -> str:
    """The protocols as they are written, or the hooks."""
    if kind in OF_HOOKS:
        return "Any of the [hooks](../hooks.md), with any subset of their arguments."
    if kind == "command":
        return "A `click.Command`; groups are commands too."
    names = [protocol_name(kind), *FURTHER.get(kind, ())]
    source = "\n\n".join(inspect.getsource(getattr(protocols, name)) for name in names)
    return f"{NOT_RUN}\n```python\n{source}```"


def registering(kind: str, example: Example) -> str:
    """The lines of a `pyproject.toml` that make the example a plugin; `plugins.md` has the registry in Python."""
    module = f"my_package.{kind}"
    target = module + (f":{example.attribute}" if example.attribute else "")
    name = example.name if example.name.isidentifier() else f'"{example.name}"'
    return f'```toml\n[project.entry-points."{protocols.KINDS[kind]}"]\n{name} = "{target}"\n```'


def installed(kind: str, registry: Registry) -> str:
    """The plugins of this repository, with their params; those that several share are printed once."""
    entries = registry.entries(kind)
    if not entries:
        return "None yet."
    schemas = (
        {}
        if kind in WITHOUT_DECORATOR
        else {
            entry.name: registry.schema(kind, entry.qualified)
            for entry in entries
            if twin_of(entry, registry) is None
        }
    )
    shared = shared_params(schemas)
    parts = [plugin(entry, registry, schemas.get(entry.name), shared) for entry in entries]
    return "\n\n".join([*parts, *([shared_table(shared, len(entries))] if shared else [])])


def plugin(
    entry: PluginEntry,
    registry: Registry,
    schema: Mapping[str, Any] | None,
    shared: Mapping[str, Sequence[str]],
) -> str:
    """What one plugin is, and its params."""
    made = registry.get(entry.kind, entry.qualified)
    summary = (inspect.getdoc(made) or "").partition("\n\n")[0].replace("\n", " ")
    parts = [f"### `{entry.name}`", f"{f'{summary} ' if summary else ''}From `{entry.distribution}`."]
    twin = twin_of(entry, registry)
    if twin is not None:
        parts.append(f"It takes the params of the {twin.kind} [`{twin.name}`]({twin.kind}.md#{twin.name}).")
    elif schema is not None:
        rows = [row for row, names in shared.items() if entry.name in names]
        parts.append(param_tables(schema, left_out=rows))
        parts += [f"It also takes the [shared params](#{SHARED}) that name it."] if rows else []
    return "\n\n".join(part for part in parts if part)


def twin_of(entry: PluginEntry, registry: Registry) -> PluginEntry | None:
    """The callback with the name and the params of a log store, whose page has them already."""
    if entry.kind != "log_store":
        return None
    found = [each for each in registry.entries("callback") if each.name == entry.name]
    own = param_tables(registry.schema(entry.kind, entry.qualified))
    same = [each for each in found if param_tables(registry.schema("callback", each.qualified)) == own]
    return same[0] if same else None


def shared_table(shared: Mapping[str, Sequence[str]], count: int) -> str:
    """The params that several plugins have alike, and which."""
    rows = [
        f"{row} {'all' if len(names) == count else ', '.join(f'`{name}`' for name in names)} |"
        for row, names in shared.items()
    ]
    head = "| param | takes | default | meaning | of |\n| --- | --- | --- | --- | --- |"
    return "\n".join(["### Shared params", "", head, *rows])


# --- checks -------------------------------------------------------------------------------------------------------------


def checks(kind: str) -> str:
    """What the conformance suite checks for a kind alone, and what a plugin may declare for it."""
    own = checks_of(kind, inherited=False)
    of_all = "[every plugin](index.md#checks-of-every-plugin)"
    common, own_names = checks_of_every_plugin(), {check.name for check in own}
    kept = [check.name for check in checks_of(kind) if check.name not in own_names]
    if len(kept) < len(common):
        of_all += f" that don't concern params ({', '.join(f'`{name}`' for name in kept)})"
    parts = [f"Those of {of_all}{', and:' if own else '.'}"]
    parts += [check_table(own)] if own else []
    if any(check.capability for check in own):
        parts.append("A check with a capability in brackets is made of plugins that declare it.")
    words = [word for word in words_of(kind) if word.name not in COMMON_WORDS]
    if words:
        parts.append("Own keys of the attribute [`conformance`](../conformance.md#by-name):")
        parts.append(word_table(words))
    return "\n\n".join(parts)


def word_table(words: Sequence[WordInfo]) -> str:
    """Keys of the attribute `conformance`."""
    rows = [f"| `{word.name}` | {word.description} |" for word in words]
    return "\n".join(["| key | means |", "| --- | --- |", *rows])


def checks_of_every_plugin() -> list[CheckInfo]:
    """The checks that a kind has beside its own; they are the same for all."""
    own = {check.name for check in checks_of("verifier", inherited=False)}
    return [check for check in checks_of("verifier") if check.name not in own]


def check_table(found: Sequence[CheckInfo]) -> str:
    """Checks with what they ask, in the order in which they are written."""
    rows = [
        f"| `{check.name}`{f' (`{check.capability}`)' if check.capability else ''} | {check.description} |"
        for check in found
    ]
    return "\n".join(["| check | asks |", "| --- | --- |", *rows])


# --- examples -----------------------------------------------------------------------------------------------------------


def read_example(kind: str) -> Example:
    """Take an example's file apart; the first thing that it registers is what the page is about."""
    text = (EXAMPLES / f"{kind}.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    words = ast.get_docstring(tree) or ""
    intro, mark, sections = words.partition("\n## ")
    code = text.split('"""\n', 1)[1].lstrip("\n")
    name, attribute = "my_team", ""  # a module of hooks is a plugin as it is
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    defined = [node for node in reversed(tree.body) if isinstance(node, kinds)]
    for node, decorator in [(each, decorator) for each in defined for decorator in each.decorator_list]:
        called = ast.unparse(decorator)
        if called.startswith(f"register_{kind}("):
            name, attribute = ast.literal_eval(called.removeprefix(f"register_{kind}")), node.name
        elif called.startswith("click.command("):
            name, attribute = node.name, node.name
    return Example(intro, mark + sections, code, name, attribute)


if __name__ == "__main__":
    main()
