"""The package that `evsys new-plugin` writes: files common to all kinds, and those of each kind."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from evsys_cli.scaffold.plugin_names import PluginNames
from evsys_cli.scaffold.write import write_scaffold

__all__ = ["Author", "templates_of", "write_plugin_package"]

_DEVELOPMENT = ("evsys-cli", "evsys-conformance", "mypy>=1.15", "pytest>=8.3")


class Author(NamedTuple):
    """Who has made a package; one of both may be empty."""

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


def templates_of(names: PluginNames) -> str:
    """The folder of the templates: a kind's own, but for metrics of k samples."""
    return "metric_of_k" if names.is_family else names.kind


def write_plugin_package(names: PluginNames, target: Path, author: Author | None) -> list[Path]:
    """Write the package into `target`, which holds none yet; returns its files.

    Args:
        names: of the plugin.
        target: a folder that may be missing.
        author: who holds the copyright; without one, "the authors" do.

    Raises:
        StoreError: a file can't be written.
    """
    from evsys.protocols import KINDS

    folder = templates_of(names)
    text = (files("evsys_cli.scaffold") / "plugin" / folder / "kind.toml").read_text(encoding="utf-8")
    about: dict[str, Any] = tomllib.loads(text)
    values = {
        **names._asdict(),
        **_of_samples(names),
        "kind_words": names.kind.replace("_", " "),
        "group": KINDS[names.kind],
        "requires": _listed(["evsys-core", *about["requires"]]),
        "development": _listed(sorted([*_DEVELOPMENT, *about.get("development", [])])),
        "authors": author.as_toml() if author else "",
        "holder": (author.name or author.email) if author else f"The authors of {names.distribution}",
        "year": str(datetime.now(tz=UTC).year),
    }
    for key in ("object", "summary", "use"):
        values[key] = Template(about[key].strip("\n")).substitute(values)
    written: list[Path] = []
    for part in ("common", folder):
        written += write_scaffold(f"plugin/{part}", target, values)[0]
    return sorted(written)


def _listed(requirements: Iterable[str]) -> str:
    """Requirements as lines of a TOML list. Those on evsys itself follow the installed version."""
    major, minor = version("evsys-core").split(".")[:2]
    own = re.compile(r"evsys-[\w-]+(?:\[\w+\])?")
    texts = [f"{one}~={major}.{minor}" if own.fullmatch(one) else one for one in requirements]
    return "".join(f'  "{text}",\n' for text in texts)


def _of_samples(names: PluginNames) -> dict[str, str]:
    """Words for a metric of k samples: `@` looks for the best of them, `^` for the worst, as pass@k and pass^k do."""
    if not names.is_family:
        return {}
    stem, sign = names.name[:-2], names.name[-2]
    extreme, backwards = ("best", "False") if sign == "@" else ("worst", "True")
    return {"stem": f"{stem}{sign}", "extreme": extreme, "backwards": backwards}
