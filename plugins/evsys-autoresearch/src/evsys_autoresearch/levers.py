"""Levers: the parts of the experiment file and the files that a researcher may change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import attrs

from evsys.types import SearchAxis
from evsys_record.hashing import digest, digest_bytes
from evsys_runtime.config import paths, trees

__all__ = ["Levers", "apply_changes", "changes_of", "derived_axes", "hashes_of", "pattern_matches"]

FACTOR = 10.0
"""A number under a lever without a range is searched from a tenth of it to ten times it."""

_FILE = re.compile(r"[*?]|/|\.py$")
_HIDDEN = {".evsys", ".git", ".venv", "__pycache__"}


@attrs.frozen(kw_only=True)
class Levers:
    """The levers as `written`, and the axes of the `space` under them."""

    written: tuple[str, ...]
    space: tuple[SearchAxis, ...] = ()

    @staticmethod
    def is_pattern(lever: str) -> bool:
        """Whether a lever means files."""
        return bool(_FILE.search(lever))

    @property
    def patterns(self) -> tuple[str, ...]:
        """The levers that mean files."""
        return tuple(each for each in self.written if self.is_pattern(each))

    def covers_path(self, path: str) -> bool:
        """Whether a path of the experiment file is under a lever."""
        segments = paths.parse(path)
        levers = (paths.parse(each) for each in self.written if not self.is_pattern(each))
        return any(segments[: len(lever)] == lever for lever in levers)

    def covers_file(self, name: str) -> bool:
        """Whether a file of the project, named from its root, is under a lever."""
        pure = PurePosixPath(name)
        if pure.is_absolute() or not pure.parts or ".." in pure.parts or _HIDDEN & set(pure.parts):
            return False
        return any(pattern_matches(pure, pattern) for pattern in self.patterns)

    def files(self, root: Path) -> dict[str, Path]:
        """The files under the levers, by name; links aren't followed."""
        found = {}
        for path in sorted(root.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            name = path.relative_to(root).as_posix()
            if self.covers_file(name):
                found[name] = path
        return found


def pattern_matches(path: PurePosixPath, pattern: str) -> bool:
    """Whether a pattern covers a path: `**` any folders, `*` and `?` within a name."""
    parts = [
        ".*" if part == "**" else re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
        for part in PurePosixPath(pattern).parts
    ]
    return re.fullmatch("/".join(parts).replace(".*/", "(?:.*/)?"), path.as_posix()) is not None


def changes_of(start: Any, config: Any) -> dict[str, Any]:
    """The values of `config` that differ from the start's, by path; a list is one value, a missing key is None."""
    return dict(_differences(start, config, ()))


def _differences(start: Any, config: Any, at: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(start, Mapping) and isinstance(config, Mapping):
        for key in {**start, **config}:
            yield from _differences(start.get(key), config.get(key), (*at, str(key)))
    elif digest(start) != digest(config):
        yield paths.join(at).removeprefix("$").removeprefix("."), config


def apply_changes(start: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The start's tree with values set by path; the start itself stays as it is."""
    tree: Any = start
    for path, value in changes.items():
        tree = trees.put(tree, paths.parse(path), value)
    return dict(tree)


def hashes_of(files: Mapping[str, str]) -> dict[str, str]:
    """The hashes of texts by their names."""
    return {name: digest_bytes(text.encode("utf-8")) for name, text in sorted(files.items())}


def derived_axes(path: str, value: Any) -> Sequence[SearchAxis]:
    """The axes of the positive numbers at and below a path of the start, for levers that name no range."""
    if isinstance(value, Mapping):
        return [axis for key, each in value.items() for axis in derived_axes(f"{path}.{key}", each)]
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return []
    if isinstance(value, int):
        low, high = max(1, round(value / FACTOR)), round(value * FACTOR)
        return [SearchAxis(path=path, low=low, high=high, log=True, type="int")]
    return [SearchAxis(path=path, low=value / FACTOR, high=value * FACTOR, log=True)]
