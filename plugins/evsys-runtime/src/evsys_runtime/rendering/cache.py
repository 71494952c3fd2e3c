"""The base models on this machine: the model cache, its folder names, and which models are complete.

A model's folder holds `manifest.json`, `tokenizer.json`, `chat_template.jinja` and further files of a backend. The
manifest is written last and says `complete: true`; a folder without that is a download that was cut off, and is
treated as absent.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import ConfigError, DataError, Problem
from evsys_runtime.data.user_cache import cache_root

__all__ = [
    "FETCHABLE",
    "MANIFEST",
    "TINY",
    "CachedModel",
    "cache_root",
    "cached_models",
    "find_model",
    "model_folder",
    "model_slug",
    "read_manifest",
    "write_manifest",
]

TINY = "evsys/tiny"
"""The base model inside the wheel: its tokenizer is bytes and needs no file."""

FETCHABLE = ("smollm2-135m",)
"""Models that `evsys models fetch` knows by name."""

MANIFEST = "manifest.json"
"""The file that makes a model's folder complete."""


@attrs.frozen(kw_only=True)
class CachedModel:
    """A complete model in the cache. `manifest` has `name`, `complete` and what the fetcher wrote (files, hashes)."""

    name: str
    folder: Path
    manifest: Mapping[str, Any] = attrs.field(factory=dict)


def model_slug(name: str) -> str:
    """A model's folder name, the same on every file system: lower case, `/` written as `--`."""
    slug = re.sub(r"[^a-z0-9._-]+", "-", name.strip().lower().replace("/", "--")).strip(".-")
    if not slug:
        raise ConfigError(f"{name!r} is not a model name")
    return slug


def model_folder(name: str) -> Path:
    """The cache folder of the model `name`, whether or not it is there."""
    return cache_root() / "models" / model_slug(name)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a complete model folder; None when there is none or the folder is incomplete.

    Raises:
        DataError: the manifest isn't a JSON object.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as exc:
        raise DataError(f"not a JSON object ({exc})", source=str(path), hint="fetch the model again") from exc
    if not isinstance(manifest, dict):
        raise DataError("not a JSON object", source=str(path), hint="fetch the model again")
    return manifest if manifest.get("complete") is True else None


def write_manifest(folder: Path, name: str, **facts: Any) -> Path:
    """Declare `folder` a complete model: call it last, after every other file is in place. Replaces atomically."""
    text = json.dumps({"format": 1, "name": name, **facts, "complete": True}, ensure_ascii=False, indent=2)
    path = folder / MANIFEST
    draft = folder / f".{MANIFEST}.{os.getpid()}.tmp"
    with draft.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    return path


def cached_models() -> tuple[CachedModel, ...]:
    """Every complete model in the cache, by name."""
    folders = (cache_root() / "models").glob("*/" + MANIFEST)
    found = []
    for folder in sorted(path.parent for path in folders):
        manifest = read_manifest(folder)
        if manifest is not None:
            found.append(
                CachedModel(name=str(manifest.get("name", folder.name)), folder=folder, manifest=manifest)
            )
    return tuple(sorted(found, key=lambda model: model.name))


def find_model(name_or_folder: str | Path) -> CachedModel:
    """A model by name from the cache, or by folder: a `Path`, or a string that is an absolute path.

    Args:
        name_or_folder: a name is looked up by its slug, then among the `aliases` of the cached manifests. A folder
            needs no manifest.

    Raises:
        ConfigError: no such model, with the closest name or the command that fetches it.
    """
    folder = Path(name_or_folder).expanduser()
    if isinstance(name_or_folder, Path) or folder.is_absolute():
        if not folder.is_dir():
            raise ConfigError(f"no model folder {str(name_or_folder)!r}")
        return CachedModel(name=str(name_or_folder), folder=folder, manifest=read_manifest(folder) or {})
    name = name_or_folder
    home = model_folder(name)
    if (manifest := read_manifest(home)) is not None:
        return CachedModel(name=name, folder=home, manifest=manifest)
    for model in cached_models():
        if name in model.manifest.get("aliases", ()):
            return attrs.evolve(model, name=name)
    raise ConfigError([Problem(path="", message=_absent(name, home), hint=_hint(name))])


def _absent(name: str, home: Path) -> str:
    if home.is_dir():
        return f"model {name!r} is incomplete in the cache ({home})"
    return f"model {name!r} is not in the cache ({home.parent})"


def _hint(name: str) -> str:
    if name in FETCHABLE:
        return f"run `evsys models fetch {name}`"
    if Path(name).is_dir():
        return f"a folder is named by its absolute path: {Path(name).resolve()}"
    known = sorted({TINY, *FETCHABLE, *(model.name for model in cached_models())})
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        fetch = f", after `evsys models fetch {close[0]}`" if close[0] in FETCHABLE else ""
        return f"did you mean {close[0]!r}{fetch}?"
    return (
        f"known models: {', '.join(known)}; `evsys models fetch NAME` downloads one, "
        "and the absolute path of a folder with tokenizer.json also works"
    )
