"""The distribution that `evsys new-plugin` writes: files of every distribution, and those of each plugin in it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from evsys_cli.scaffold.plugin_names import PluginNames
from evsys_cli.scaffold.write import write_new, write_scaffold

__all__ = [
    "Author",
    "PluginPart",
    "dependency_lines",
    "part_of",
    "templates_of",
    "write_part",
    "write_plugin_package",
]

_DEVELOPMENT = ("evsys-cli", "evsys-conformance", "mypy>=1.15", "pytest>=8.3")


class Author(NamedTuple):
    """The author of a package; name or email may be empty."""

    name: str
    email: str

    @classmethod
    def parse(cls, text: str) -> Author:
        """Read `Name`, `Name <address>` or `<address>`.

        Raises:
            ValueError: it is none of these.
        """
        found = re.fullmatch(r"([^<>]*?)\s*(?:<([^<>\s]+@[^<>\s]+)>)?", text.strip())
        if found is None or not text.strip() or not text.isprintable():
            raise ValueError(f"{text!r} is not a valid author; write 'Name' or 'Name <name@example.org>'")
        return cls(found[1], found[2] or "")

    def as_toml(self) -> str:
        """The line of a pyproject.toml."""
        # A text in JSON's quotes is one in TOML's too, as long as every character can be printed.
        fields = [
            f"{key} = {json.dumps(value, ensure_ascii=False)}"
            for key, value in self._asdict().items()
            if value
        ]
        return f"authors = [{{ {', '.join(fields)} }}]\n"


class PluginPart(NamedTuple):
    """One plugin of a distribution, with its texts and its requirements."""

    names: PluginNames
    group: str
    object: str
    summary: str
    use: str
    requires: list[str]
    development: list[str]

    @property
    def words(self) -> str:
        """The kind and the name."""
        return f"{self.names.kind.replace('_', ' ')} {self.names.name}"

    @property
    def entry_point(self) -> str:
        """The line of a pyproject.toml, under the section of its group."""
        return f'"{self.names.name}" = "{self.object}"\n'

    @property
    def section(self) -> str:
        """A section of a README with several plugins."""
        return (
            f"### The {self.names.kind.replace('_', ' ')} `{self.names.name}`\n\n{self.summary}\n\n{self.use}"
        )


def templates_of(names: PluginNames) -> str:
    """The folder of the templates: a kind's own, but for metrics of k samples."""
    return "metric_of_k" if names.is_family else names.kind


def part_of(names: PluginNames) -> PluginPart:
    """Read what the templates say of a plugin."""
    from evsys.protocols import KINDS

    source = files("evsys_cli.scaffold") / "plugin" / templates_of(names) / "kind.toml"
    about: dict[str, Any] = tomllib.loads(source.read_text(encoding="utf-8"))
    texts = {
        key: Template(about[key].strip("\n")).substitute(_values(names))
        for key in ("object", "summary", "use")
    }
    return PluginPart(
        names=names,
        group=KINDS[names.kind],
        requires=["evsys-core", *about["requires"]],
        development=sorted({*_DEVELOPMENT, *about.get("development", [])}),
        **texts,
    )


def write_plugin_package(
    plugins: Sequence[PluginNames], target: Path, author: Author | None = None
) -> list[Path]:
    """Write the distribution into `target`, which holds none yet; returns its files.

    Args:
        plugins: one, or several that share a distribution.
        target: a folder that may be missing.
        author: the holder of the copyright; by default "the authors".

    Raises:
        StoreError: a file can't be written.
    """
    parts = [part_of(names) for names in plugins]
    first = plugins[0]
    alone = len(parts) == 1 and first.package == first.top_package
    values = {
        "distribution": first.distribution,
        "package": first.top_package,
        "description": f"The evsys {parts[0].words}"
        if alone
        else f"Plugins for evsys: {_format_parts(parts)}",
        "summary": parts[0].summary if alone else f"Plugins for evsys: {_format_parts(parts)}.",
        "use": parts[0].use if alone else "\n\n".join(part.section for part in parts),
        "entry_points": _entry_points(parts),
        "requires": dependency_lines(dict.fromkeys(one for part in parts for one in part.requires)),
        "development": dependency_lines(sorted({one for part in parts for one in part.development})),
        "authors": author.as_toml() if author else "",
        "holder": (author.name or author.email) if author else f"The authors of {first.distribution}",
        "year": str(datetime.now(tz=UTC).year),
    }
    written = write_scaffold("plugin/common", target, values)[0]
    for part in parts:
        written += write_part(part, target)
    package = target / "src" / first.top_package / "__init__.py"
    if write_new(package, f'"""Plugins for evsys, of the distribution {first.distribution}."""\n'):
        written.append(package)
    return sorted(written)


def write_part(part: PluginPart, target: Path) -> list[Path]:
    """Write the modules and the tests of one plugin; returns the new files. One inside a package has folders of its own."""
    top, _, inner = part.names.package.partition(".")

    def place(name: str) -> str:
        if inner and name.startswith("tests/"):
            return f"tests/{inner}/{name.removeprefix('tests/')}"
        return name.replace("${package}", f"{top}/{inner}" if inner else top)

    return write_scaffold(f"plugin/{templates_of(part.names)}", target, _values(part.names), place)[0]


def dependency_lines(requirements: Iterable[str]) -> str:
    """Requirements as lines of a TOML list. Those on evsys itself follow the installed version."""
    major, minor = version("evsys-core").split(".")[:2]
    own = re.compile(r"evsys-[\w-]+(?:\[\w+\])?")
    texts = [f"{one}~={major}.{minor}" if own.fullmatch(one) else one for one in requirements]
    return "".join(f'  "{text}",\n' for text in texts)


def _format_parts(parts: Sequence[PluginPart]) -> str:
    return ", ".join(part.words for part in parts)


def _entry_points(parts: Sequence[PluginPart]) -> str:
    groups = sorted({part.group for part in parts})
    return "\n".join(
        f'[project.entry-points."{group}"]\n'
        + "".join(part.entry_point for part in parts if part.group == group)
        for group in groups
    )


def _values(names: PluginNames) -> dict[str, str]:
    """The variables of a plugin's templates.

    A metric of k samples has words of its own: `@` looks for the best of them, `^` for the worst, as pass@k and pass^k do.
    """
    values: dict[str, str] = names._asdict()
    if not names.is_family:
        return values
    stem, sign = names.name[:-2], names.name[-2]
    extreme, backwards = ("best", "False") if sign == "@" else ("worst", "True")
    return {**values, "stem": f"{stem}{sign}", "extreme": extreme, "backwards": backwards}
