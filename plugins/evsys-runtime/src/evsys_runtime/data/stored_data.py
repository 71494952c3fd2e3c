"""A project's data by name or id, looked for and never written: in its own folders, then among what was pulled
before.

``` data/datasets/<name>/v<N>/{train,test}.jsonl data/{benchmark,validation}/<name>/tasks.jsonl
.evsys/cache/{datasets,benchmarks}/ what was pulled, or made; one user's own for a read-only project ```
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from evsys.errors import DataError
from evsys_runtime.data.user_cache import cache_root

__all__ = [
    "ENTRY_MANIFEST",
    "ENTRY_ROWS",
    "Kind",
    "StoredData",
    "cache_folders",
    "find_benchmark",
    "find_dataset",
    "find_entry",
    "names_in",
    "own_datasets",
]

type Kind = Literal["datasets", "benchmarks"]

ENTRY_ROWS = "rows.jsonl"
ENTRY_MANIFEST = "manifest.json"
NAMES = "names.jsonl"
_ID = re.compile(r"\w[\w.-]*", re.ASCII)
_VERSION = re.compile(r"v(\d+)")
_UNFINISHED = b"\x18\n"
"""How a line ends that a killed process left half written, and the next writer closed off."""


@attrs.frozen(kw_only=True)
class StoredData:
    """The place of the rows of a dataset or benchmark. `ref` names them: an id in the cache, else a path in the
    project. `version` is that of a project's own dataset, `newest` its highest.
    """

    path: Path
    ref: str
    in_cache: bool = False
    version: int | None = None
    newest: int = 0


def cache_folders(project_root: Path, kind: Kind | Literal["results"]) -> tuple[Path, Path]:
    """The project's cache, and the one that takes its place where the project can't be written."""
    root = project_root.resolve()
    mark = hashlib.sha256(str(root).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    name = re.sub(r"[^\w.-]+", "-", root.name, flags=re.ASCII).strip("-.") or "project"
    return project_root / ".evsys" / "cache" / kind, cache_root() / "projects" / f"{name}-{mark}" / kind


def find_entry(folders: Iterable[Path], entry_id: str) -> Path | None:
    """The folder of a complete entry."""
    if not _ID.fullmatch(entry_id):
        return None
    found = (folder / entry_id for folder in folders)
    return next((entry for entry in found if (entry / ENTRY_MANIFEST).is_file()), None)


def names_in(folders: Iterable[Path]) -> dict[str, str]:
    """Each name with the id that it got last.

    Raises:
        DataError: a line in the middle of a file of names can't be read.
    """
    lines = [line for folder in folders for line in _name_lines(folder / NAMES)]
    return {line["name"]: line["id"] for line in sorted(lines, key=lambda line: str(line.get("time", "")))}


def _name_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    if not path.exists():
        return
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if line.endswith(_UNFINISHED) or not line.strip():
                continue
            try:
                record = json.loads(line)
                yield {"name": record["name"], "id": record["id"], **record}
            except (ValueError, KeyError, TypeError) as exc:
                if line.endswith(b"\n"):
                    hint = "fix or remove this line"
                    raise DataError(
                        f"is not a name and an ID: {exc}", source=str(path), line=number, hint=hint
                    ) from exc


# --- datasets ---------------------------------------------------------------------------------------------------


def find_dataset(project_root: Path, reference: str, *, split: str = "train") -> StoredData:
    """The rows of `<id>`, `<name>` (its newest version) or `<name>/v<N>`.

    Raises:
        DataError: there is no such dataset (`unknown` among its facts), or none of this version.
    """
    folders = cache_folders(project_root, "datasets")
    if entry := find_entry(folders, reference):
        return _stored_entry(entry)
    name, _, version = reference.partition("/")
    folder = project_root / "data" / "datasets" / name
    if name not in {"", ".", ".."} and folder.is_dir():
        return _own_version(folder, version, split)
    names = names_in(folders)
    entry = _find_folder(folders, names, [reference, _newest(names, reference, split)])
    if entry is None:
        raise _unknown("dataset", reference, project_root, [*own_datasets(project_root), *names])
    return _stored_entry(entry)


def own_datasets(project_root: Path) -> list[str]:
    """Names of the project's own datasets."""
    folder = project_root / "data" / "datasets"
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _own_version(folder: Path, version: str, split: str) -> StoredData:
    versions = {int(match[1]): path for path in folder.iterdir() if (match := _VERSION.fullmatch(path.name))}
    wanted = _VERSION.fullmatch(version) if version else None
    number = int(wanted[1]) if wanted else max(versions, default=0)
    path = versions.get(number, folder / (version or "v1")) / f"{split}.jsonl"
    if (version and not wanted) or not path.is_file():
        made = ", ".join(f"v{number}" for number in sorted(versions))
        hint = f"it has {made}" if made else f"put its rows into {folder.name}/v1/{split}.jsonl"
        raise DataError(
            f"dataset {folder.name!r} has no {path.relative_to(folder)}", source=str(folder), hint=hint
        )
    ref = f"{folder.name}/v{number}/{split}"
    return StoredData(path=path, ref=ref, version=number, newest=max(versions, default=0))


def _newest(names: Mapping[str, str], name: str, split: str) -> str:
    """The cache entry of a project's dataset: `<name>/v<N>` with its split, or the highest version of `<name>`."""
    pattern = re.compile(rf"{re.escape(name)}/v(\d+)/{re.escape(split)}")
    versions = [int(match[1]) for known in names if (match := pattern.fullmatch(known))]
    return f"{name}/v{max(versions)}/{split}" if versions else f"{name}/{split}"


# --- benchmarks -------------------------------------------------------------------------------------------------


def find_benchmark(project_root: Path, reference: str) -> StoredData:
    """The tasks of `<id>`, `<name>`, or `benchmark/<name>` and `validation/<name>` where both exist.

    Raises:
        DataError: there is no such benchmark (`unknown` among its facts), or two have this name.
    """
    folders = cache_folders(project_root, "benchmarks")
    if entry := find_entry(folders, reference):
        return _stored_entry(entry)
    own = {f"{path.parents[1].name}/{path.parent.name}": path for path in _task_files(project_root)}
    found = {ref: path for ref, path in own.items() if reference in (path.parent.name, ref)}
    if len(found) > 1:
        raise DataError(f"two benchmarks are called {reference!r}", hint=f"write {' or '.join(found)}")
    if found:
        ((ref, path),) = found.items()
        return StoredData(path=path, ref=ref)
    names = names_in(folders)
    entry = _find_folder(folders, names, [reference, f"benchmark/{reference}", f"validation/{reference}"])
    if entry is None:
        raise _unknown("benchmark", reference, project_root, [*own, *names])
    return _stored_entry(entry)


def _task_files(project_root: Path) -> list[Path]:
    kinds = ("benchmark", "validation")
    return sorted(path for kind in kinds for path in (project_root / "data" / kind).glob("*/tasks.jsonl"))


# --- shared -----------------------------------------------------------------------------------------------------


def _stored_entry(entry: Path) -> StoredData:
    return StoredData(path=entry / ENTRY_ROWS, ref=entry.name, in_cache=True)


def _find_folder(folders: Sequence[Path], names: Mapping[str, str], wanted: Iterable[str]) -> Path | None:
    ids = [names[name] for name in wanted if name in names]
    return next((entry for entry_id in ids if (entry := find_entry(folders, entry_id))), None)


def _unknown(kind: str, reference: str, project_root: Path, known: Iterable[str]) -> DataError:
    listed = sorted(set(known))
    near = difflib.get_close_matches(reference, [*listed, *(name.rpartition("/")[2] for name in listed)], n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return DataError(
        f"no {kind} {reference!r} in {project_root / 'data'} or the cache",
        hint=f"{meant}known: {', '.join(listed) or 'none yet'}; data served by id must be pulled once while the "
        "store can be reached",
        unknown=True,
    )
