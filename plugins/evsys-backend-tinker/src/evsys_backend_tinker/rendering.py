"""The model's tokenizer and chat template: from `tokenizer:`, else from the server, else from this machine's cache."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from evsys.errors import BackendError, ConfigError, Problem, StoreError
from evsys_backend_tinker.http_json import JsonApi, UnreachableError
from evsys_record import make_directory, write_atomic
from evsys_runtime import load_renderer
from evsys_runtime.rendering.cache import TINY, cache_root, model_slug

if TYPE_CHECKING:
    from evsys.protocols import Renderer
    from evsys.types import ModelSpec

__all__ = ["RENDERING", "model_renderer"]

RENDERING = "/api/v1/evsys/models/{model}/rendering"
"""The route at which `evsys serve` offers the files of a model's tokenizer, as `{"files": {name: text}}`."""

_FILE = re.compile(r"\w[\w.-]*\.(?:json|jinja)")


def model_renderer(
    model: ModelSpec, *, api: JsonApi, tokenizer: str | None, tokenizer_id: str | None, seconds: float
) -> Renderer:
    """The renderer of a model on a server; blocks.

    Args:
        model: names the base model and, where it likes, a renderer.
        api: the server.
        tokenizer: `backend.params.tokenizer`.
        tokenizer_id: the tokenizer's name by the server.
        seconds: bounds each call of the server.

    Raises:
        ConfigError: no tokenizer is to be had; says what can be done.
        DataError: it can't be used.
    """
    if tokenizer is not None:
        return load_renderer(tokenizer, renderer=model.renderer)
    if TINY not in {model.name, tokenizer_id}:
        folder = _from_server(model.name, api, seconds)
        if folder is not None:
            return load_renderer(folder, renderer=model.renderer)
    refused: list[str] = []
    for name in dict.fromkeys(filter(None, (model.name, tokenizer_id))):
        try:
            return load_renderer(name, renderer=model.renderer)
        except ConfigError as error:
            refused.append(str(error))
    hint = "set backend.params.tokenizer to a model in the cache or to a folder with tokenizer.json"
    raise ConfigError(
        [
            Problem(
                path="$.backend.params.tokenizer",
                message=f"the server offers no tokenizer of {model.name!r}, and {refused[0]}",
                hint=hint,
            )
        ]
    )


def _from_server(name: str, api: JsonApi, seconds: float) -> Path | None:
    """The folder with the files that the server offers; None where it offers none."""
    try:
        answer = api.get(RENDERING.format(model=quote(name, safe="/")), seconds=seconds)
    except UnreachableError as error:
        raise BackendError(f"the server at {api.base_url} can't be reached: {error}") from error
    tree = answer.json() if answer.ok else None
    files = tree.get("files") if isinstance(tree, Mapping) else None
    if not isinstance(files, Mapping) or "tokenizer.json" not in files:
        return None
    texts = {
        file: text for file, text in sorted(files.items()) if isinstance(text, str) and _FILE.fullmatch(file)
    }
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]
    folder = cache_root() / "tinker" / "rendering" / f"{model_slug(name)}-{digest}"
    try:
        _keep(folder, texts)
    except StoreError as error:
        raise BackendError(
            f"the tokenizer of {name!r} can't be kept: {error.message}",
            hint="set EVSYS_CACHE to a folder that can be written, with room",
        ) from error
    return folder


def _keep(folder: Path, texts: Mapping[str, str]) -> None:
    """Put files into a folder named by its content, so a concurrent writer wrote the same."""
    for file, text in texts.items():
        if not (folder / file).is_file():
            make_directory(folder)
            write_atomic(folder / file, text)
