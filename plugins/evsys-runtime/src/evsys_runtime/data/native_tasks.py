"""Folders of native Harbor tasks, read without Harbor: what their files say, and what is wrong with them.

A task is a folder with `task.toml`, `instruction.md` and `tests/test.sh`; one of several steps has `steps/<name>/` with an
`instruction.md` and, unless all share one, `tests/` of its own. Harbor leaves broken folders of a dataset out without a word;
here each is a problem with its file and line.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys.types import HarborTask

__all__ = ["NativeTask", "TaskProblem", "native_folders", "read_native"]

CONFIG = "task.toml"
INSTRUCTION = "instruction.md"
_PARTS = ("instruction.md", "tests", "environment", "steps")
"""Names that only a task's folder has; one with any of these and no `task.toml` is a broken task, not something
else.
"""

_NO_CONTENT = frozenset({".git", "__pycache__", ".DS_Store"})
_LINE = re.compile(r" \(at line (\d+), column \d+\)$")
_STEP = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class TaskProblem(Exception):  # noqa: N818 - it is collected, and told with the others
    """The problem of one file of a task; `line` counts from 1."""

    def __init__(self, message: str, file: Path, line: int | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.line = line


@attrs.frozen(kw_only=True)
class NativeTask:
    """One task as its files describe it. `digest` is of their names and bytes."""

    task: HarborTask
    digest: str


def native_folders(path: Path) -> list[Path]:
    """The folders of tasks that a benchmark's folder holds, sorted by name: itself, or those in it. Empty where none is one."""
    if not path.is_dir():
        return []
    if (path / CONFIG).is_file():
        return [path]
    inside = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not any((entry / CONFIG).is_file() for entry in inside):
        return []
    return [entry for entry in inside if any((entry / name).exists() for name in (CONFIG, *_PARTS))]


def read_native(folder: Path, task_id: str | None = None) -> NativeTask:
    """Read one task.

    Args:
        folder: its folder.
        task_id: its id; by default the folder's name.

    Raises:
        TaskProblem: its first fault.
    """
    if not folder.is_dir():
        raise TaskProblem("there is no such folder", folder)
    settings = _settings(folder / CONFIG)
    steps = _steps(settings, folder)
    instructions = [_instruction(folder / "steps" / name) for name in steps] or [_instruction(folder)]
    for name in steps or (None,):
        _require_tests(folder, settings, name)
    metadata = _plain(settings.get("metadata", {}))
    task = HarborTask(
        task_id=task_id or folder.name,
        instruction="\n\n".join(instructions),
        metadata={**metadata, **({"steps": list(steps)} if steps else {})},
        path=str(folder.resolve()),
    )
    return NativeTask(task=task, digest=_digest(folder))


def _settings(file: Path) -> Mapping[str, Any]:
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TaskProblem(f"the task has no {CONFIG}", file) from None
    except (OSError, UnicodeDecodeError) as exc:
        raise TaskProblem(f"can't be read: {exc}", file) from exc
    except tomllib.TOMLDecodeError as exc:
        place = _LINE.search(str(exc))
        message = f"broken TOML: {_LINE.sub('', str(exc))}"
        raise TaskProblem(message, file, int(place[1]) if place else None) from exc
    for name in ("metadata", "agent", "verifier", "environment"):
        if not isinstance(settings.get(name, {}), Mapping):
            raise TaskProblem(f"{name!r} is not a table", file)
    return settings


def _steps(settings: Mapping[str, Any], folder: Path) -> Sequence[str]:
    steps = settings.get("steps", [])
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise TaskProblem("'steps' is not an array of tables: write [[steps]]", folder / CONFIG)
    if not all(isinstance(step.get("verifier", {}), Mapping) for step in steps):
        raise TaskProblem("the 'verifier' of a step is not a table", folder / CONFIG)
    names = [step.get("name") for step in steps]
    for name in names:
        if not isinstance(name, str) or not _STEP.fullmatch(name):
            raise TaskProblem(f"a step is called {name!r}, which is not a folder's name", folder / CONFIG)
        if not (folder / "steps" / name).is_dir():
            raise TaskProblem(f"step {name!r} has no folder", folder / "steps" / name)
    if len(set(names)) < len(names):
        raise TaskProblem("two steps have the same name", folder / CONFIG)
    return [str(name) for name in names]


def _instruction(folder: Path) -> str:
    file = folder / INSTRUCTION
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TaskProblem(f"the task has no {INSTRUCTION}", file) from None
    except (OSError, UnicodeDecodeError) as exc:
        raise TaskProblem(f"can't be read: {exc}", file) from exc


def _require_tests(folder: Path, settings: Mapping[str, Any], step: str | None) -> None:
    """Tests are in the folder, unless the verifier has an environment of its own, whose image may hold them."""
    verifiers = [settings.get("verifier", {})]
    places = [folder / "tests"]
    if step is not None:
        verifiers += [entry.get("verifier", {}) for entry in settings["steps"] if entry["name"] == step]
        places.insert(0, folder / "steps" / step / "tests")
    if any(v.get("environment_mode") == "separate" or "environment" in v for v in verifiers):
        return
    if not any((place / name).is_file() for place in places for name in ("test.sh", "test.bat")):
        raise TaskProblem("the task has no test script", places[0] / "test.sh")


def _plain(value: Any) -> Any:
    """TOML values as JSON has them; dates become text."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | bool) else value.isoformat()


def _digest(folder: Path) -> str:
    """Of the names and bytes of all files that belong to the task, and of which of them can be executed."""
    content = hashlib.sha256()
    for file in _files(folder):
        name = file.relative_to(folder).as_posix()
        if file.is_symlink():
            content.update(f"{name}\0link\0{file.readlink().as_posix()}\0".encode())
            continue
        status = file.stat()
        content.update(f"{name}\0{status.st_size}\0{bool(status.st_mode & 0o100)}\0".encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                content.update(block)
    return f"sha256:{content.hexdigest()}"


def _files(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.name in _NO_CONTENT:
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _files(entry)
        elif entry.is_file() or entry.is_symlink():
            yield entry
