"""The project as the gates see it, from its settings and the files of its record: read again for each call, in milliseconds."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evsys_runtime.config.root import enclosing_project

__all__ = ["FOLDER", "Project", "Running"]

FOLDER = ".evsys/agents"
"""The folder of what the gates keep, in the project."""

LEASE_SECONDS = 120.0
"""A lock that wasn't renewed for so long has no holder; experiments renew theirs several times a minute."""

SEALED = ("data/benchmark", "data/datasets/*/*/test.jsonl", ".evsys/experiments/*/runs/*/test")
"""Places of sealed rows in a project of `evsys init-project`, and the rollouts on them."""


class Running(NamedTuple):
    """A running experiment: its ID, and its folder."""

    experiment_id: str
    folder: Path

    def document(self, name: str) -> Mapping[str, Any]:
        """One of its JSON files; empty as long as it isn't there."""
        return _read(self.folder / name)


class Project(NamedTuple):
    """A project's root, with what the gates ask of it."""

    root: Path

    @classmethod
    def around(cls, folder: str) -> Project | None:
        """The project that a folder is in."""
        root = enclosing_project(Path(os.path.normpath(folder)))
        return None if root is None else cls(root)

    @property
    def folder(self) -> Path:
        """The folder for the files of the gates."""
        return self.root / FOLDER

    @property
    def experiments(self) -> Path:
        """The folder of all experiments."""
        return self.root / ".evsys/experiments"

    def running(self) -> list[Running]:
        """The experiments that a process holds, the newest first."""
        now = time.time()
        found = []
        for name in self._names():
            folder = self.experiments / name
            for lock in (".lock", ".lease"):
                try:
                    status = (folder / lock).stat()
                except OSError:
                    continue
                if status.st_size and now - status.st_mtime < LEASE_SECONDS:
                    found.append(Running(name, folder))
                    break
        return found

    def _names(self) -> list[str]:
        try:
            return sorted((path.name for path in self.experiments.iterdir()), reverse=True)
        except OSError:
            return []

    def stamp(self) -> str:
        """Changes when an experiment begins, ends, or is retracted."""
        newest, names = 0, self._names()
        for name in names:
            for file in ("conclusion.json", "retractions.jsonl"):
                try:
                    newest = max(newest, (self.experiments / name / file).stat().st_mtime_ns)
                except OSError:
                    continue
        return f"{len(names)}-{names[0] if names else ''}-{newest}"

    def sealed(self) -> tuple[str, ...]:
        """Patterns of the sealed places, relative to the root."""
        known = _read(self.folder / "known.json").get("sealed") or ()
        return (*SEALED, *self._setting("sealed"), *known)

    def _setting(self, name: str) -> Iterator[str]:
        try:
            text = (self.root / "pyproject.toml").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return
        if name not in text:
            return
        import tomllib  # seldom needed

        try:
            value = tomllib.loads(text).get("tool", {}).get("evsys", {}).get(name, ())
        except (tomllib.TOMLDecodeError, AttributeError):
            return  # each command of evsys reports it
        yield from (str(each) for each in value) if isinstance(value, list) else ()

    def relative(self, path: str, cwd: str) -> str | None:
        """A path relative to the root, with `/`; None outside of it. Links are resolved."""
        whole = Path(cwd, Path(path).expanduser())
        for place, root in ((whole, self.root), (os.path.realpath(whole), os.path.realpath(self.root))):
            found = os.path.relpath(place, root)
            if not found.startswith(os.pardir):
                return found.replace(os.sep, "/")
        return None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        tree = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return tree if isinstance(tree, dict) else {}
