"""Writes a Hugging Face folder: a base model, or one with the trained weights merged into it."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import ConfigError, DataError, EvsysError, StoreError
from evsys_backend_local.engine.lora import LoraParams
from evsys_backend_local.engine.shape import PARENT
from evsys_backend_local.engine.weights import BaseWeights
from evsys_backend_local.models import rope
from evsys_backend_local.models.adapter import is_adapter, read_adapter
from evsys_backend_local.models.families import LLAMA, ModelHeader
from evsys_backend_local.models.hf_config import CONFIG, read_config
from evsys_backend_local.models.hf_folder import WEIGHTS
from evsys_backend_local.models.load import is_folder_model, read_header
from evsys_backend_local.models.replacing import give_back, put_in_place, restoration_note, workplace
from evsys_backend_local.models.resolve import load_base, resolve
from evsys_backend_local.models.safetensors import SafetensorsFile, write_safetensors

Progress = Callable[[str], None]

#: Element types of the weights that can be written, by the names that configs use.
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}

#: What goes along with the weights, where the base model has it.
_COMPANIONS = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "chat_template.jinja", "generation_config.json", "LICENSE", "NOTICE"),
)

_SPARE_BYTES = 32 << 20


@attrs.frozen(kw_only=True)
class Exported:
    """The written model. ``merged`` is the part merged into the base: an adapter, whole weights, or nothing."""

    folder: Path
    base: str
    merged: str
    dtype: str
    parameters: int
    bytes: int


@attrs.frozen(kw_only=True)
class _Source:
    """``trained`` is the folder of a checkpoint, or None for the base model itself."""

    base: str
    trained: Path | None
    merged: str


def export_model(
    source: str,
    out: Path,
    *,
    base: str | None = None,
    dtype: str = "float32",
    force: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write ``source`` as a Hugging Face folder that transformers, and this engine, load as a base model.

    Args:
        source: a checkpoint folder of a run, an adapter folder of PEFT, or the name or folder of a base model.
        out: the folder to make; it appears whole or not at all.
        base: the base model under a checkpoint; by default the one that it names.
        dtype: one of :data:`DTYPES`. float32 has the trained values; the others are rounded.
        force: replace what is at ``out``, once the new model is whole.
        progress: called with short lines about the progress.

    Raises:
        ConfigError: no such source or base, or they don't fit each other.
        DataError: damaged files, or numbers that ``dtype`` can't hold.
        StoreError: ``out`` is taken, is or holds the base model or the checkpoint, or can't be written.
    """
    say = progress or (lambda _: None)
    if dtype not in DTYPES:
        raise ConfigError(f"no element type {dtype!r}; choose among {', '.join(DTYPES)}")
    for folder in give_back(out.parent, out.name):
        say(restoration_note(folder))
    _require_free(out, force=force)
    found = _find(source, base)
    if found.trained is not None:
        _require_trained_outside(out, found.trained)
    say(f"reading {found.base}")
    weights = _load(found.base, asked=base)
    _require_other_than_base(out, found.base)
    if found.trained is not None:
        say(f"merging {found.trained}")
        _merge(weights, found.trained)
        try:
            weights.require_finite(str(found.trained))
        except ValueError as error:
            raise DataError(str(error), hint="choose an earlier checkpoint") from error
    with _staging(out, weights, dtype) as folder:
        say(f"writing {weights.shape.parameters / 1e6:.1f} M weights as {dtype}")
        _write(weights, found.base, folder, dtype)
        size = sum(path.stat().st_size for path in folder.iterdir())
        _require_free(out, force=force)  # another export may have been quicker
        put_in_place(folder, out)
    say(f"{out} is ready, {size / 1e6:.1f} MB")
    return Exported(
        folder=out,
        base=found.base,
        merged=found.merged,
        dtype=dtype,
        parameters=weights.shape.parameters,
        bytes=size,
    )


def _require_free(out: Path, *, force: bool) -> None:
    if out.is_dir() and not any(out.iterdir()):
        return
    if not out.exists():
        return
    if not is_folder_model(out):
        raise StoreError(f"{out} already exists, and is not a model", hint="choose another folder")
    if not force:
        raise _exists_error(f"{out} is there already")


def _exists_error(message: str) -> StoreError:
    return StoreError(message, hint="choose another folder, or replace it with --force")


def _require_other_than_base(out: Path, base: str) -> None:
    """Checkpoints are trained over the base's weights: they would mean nothing without it."""
    home = resolve(base)
    if home is None or not home.resolve().is_relative_to(out.resolve()):
        return
    if out.resolve() == home.resolve():
        raise StoreError(
            f"{out} is the base model itself, which its checkpoints need as it is",
            hint="choose another folder",
        )
    raise StoreError(f"the base model {base} lies in {out}", hint="choose another folder")


def _require_trained_outside(out: Path, trained: Path) -> None:
    """Refuse to replace a folder that holds anything but an exported model, since all of it is deleted."""
    if trained.resolve().is_relative_to(out.resolve()):
        raise StoreError(f"the checkpoint {trained} lies in {out}", hint="choose another folder")


def _find(source: str, base: str | None) -> _Source:
    folder = Path(source).expanduser()
    if is_adapter(folder):
        named = base or _base_of_run(folder) or read_adapter(folder).base
        if not named:
            raise ConfigError(f"{source}: the adapter names no base model", hint="name it with --base")
        return _Source(base=named, trained=folder, merged="adapter")
    if (folder / WEIGHTS).is_file() and not is_folder_model(folder):
        named = base or _base_of_run(folder) or ""
        if not named:
            raise ConfigError(
                f"{source}: the base model of these weights is unknown",
                hint="name it with --base",
            )
        return _Source(base=named, trained=folder, merged="whole weights")
    if base is not None:
        raise ConfigError(
            f"{source} is not a checkpoint, so --base doesn't apply",
            hint="name a folder like .../runs/<run>/checkpoints/<step>",
        )
    if folder.is_dir():
        return _Source(base=str(folder.resolve()), trained=None, merged="nothing")
    _refuse_lost_path(source, folder)
    return _Source(base=source, trained=None, merged="nothing")


def _refuse_lost_path(source: str, folder: Path) -> None:
    """Refuse a source that can only be a path and doesn't lead to a folder, instead of looking for it among model
    names.
    """
    if not (folder.is_absolute() or source.startswith(".") or len(folder.parts) > 2):
        return
    if folder.exists():
        raise ConfigError(f"{source} is a file", hint="name the folder of a checkpoint or of a model")
    nearest = next(parent for parent in folder.absolute().parents if parent.is_dir())
    there = sorted(path.name for path in nearest.iterdir())
    raise ConfigError(
        f"there is no folder {source}",
        hint=f"{nearest} holds {', '.join(there[:8]) or 'nothing'}{', ...' if len(there) > 8 else ''}",
    )


def _base_of_run(folder: Path) -> str | None:
    """The base model that the manifest of a run's checkpoint names."""
    path = folder / "manifest.json"
    if not path.is_file():
        return None
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["manifest"]["model"]["name"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"not the manifest of a checkpoint ({error!r})",
            source=str(path),
            hint="choose another checkpoint",
        ) from error


def _load(base: str, *, asked: str | None) -> BaseWeights:
    try:
        return load_base(base)
    except ConfigError as error:
        if asked is not None:
            raise
        raise ConfigError(str(error), hint="or name the base model with --base") from error


def _merge(weights: BaseWeights, trained: Path) -> None:
    if is_adapter(trained):
        merge_adapter(weights, read_adapter(trained).params(weights.shape, str(trained)))
        return
    file = SafetensorsFile(trained / WEIGHTS)
    try:
        weights.params.assign({name: file[name] for name in file}, what=str(trained))
    except ValueError as error:
        raise ConfigError(
            f"the checkpoint does not fit the base model: {error}", hint="name the right one with --base"
        ) from error


def merge_adapter(weights: BaseWeights, lora: LoraParams) -> None:
    """Add ``alpha / rank * B A`` to every targeted matrix, in place."""
    for layer in range(weights.shape.layers):
        for target in lora.targets:
            stem = f"layers.{layer}.{PARENT[target]}.{target}"
            product = lora.params[stem + ".lora_B"] @ lora.params[stem + ".lora_A"]
            product *= lora.scale
            weights.params[f"model.{stem}.weight"][...] += product


@contextmanager
def _staging(out: Path, weights: BaseWeights, dtype: str) -> Iterator[Path]:
    """A temporary folder alongside ``out``, with enough room."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        needed = weights.shape.parameters * (4 if dtype == "float32" else 2) + _SPARE_BYTES
        free = shutil.disk_usage(out.parent).free
        if free < needed:
            raise StoreError(
                f"{out} needs {needed / 1e6:.0f} MB, but only {free / 1e6:.0f} MB are free there",
                hint="free some space, choose another file system, or --dtype bfloat16",
            )
        with workplace(out) as folder:
            yield folder
    except OSError as error:
        if isinstance(error, EvsysError):
            raise
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise _exists_error(f"{out} was created by another process meanwhile") from error
        raise StoreError(
            f"cannot write {out}: {error.strerror or error}",
            hint="free some space or permit writing there, or choose another folder",
        ) from error


def _write(weights: BaseWeights, base: str, folder: Path, dtype: str) -> None:
    home = resolve(base)
    if home is None:
        from evsys_backend_local.models.byte_tokenizer import write_byte_tokenizer

        write_byte_tokenizer(folder)
        header = ModelHeader(family=LLAMA, shape=weights.shape, declared_context=weights.shape.max_context)
        config = config_of(header)
    else:
        for name in _COMPANIONS:
            if (home / name).is_file():
                shutil.copyfile(home / name, folder / name)
        config = read_config(home) if is_folder_model(home) else config_of(read_header(home))
    # Both spellings: transformers 4 and 5.
    config.update(dtype=dtype, torch_dtype=dtype)
    (folder / CONFIG).write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    try:
        arrays = dict(weights.params.items())
        write_safetensors(folder / WEIGHTS, arrays, {"format": "pt"}, kind=DTYPES[dtype])
    except ValueError as error:
        raise DataError(
            f"cannot write the weights as {dtype}: {error}", hint="choose --dtype bfloat16"
        ) from error


def config_of(header: ModelHeader) -> dict[str, Any]:
    """The ``config.json`` of a model that came without one.

    Raises:
        ConfigError: its rotary positions are stretched in a way that no config expresses.
    """
    shape = header.shape
    scaling = None
    if shape.rope_factors is not None:
        scaling = rope.settings_of(shape.rope_factors, shape.head_dim, shape.rope_theta)
        if scaling is None:
            raise ConfigError(
                "the model stretches its rotary positions in a way that no config.json expresses",
                hint="start from the model's own Hugging Face folder",
            )
    config: dict[str, Any] = {
        "architectures": [header.family.architecture],
        "model_type": header.family.model_type,
        "hidden_size": shape.dim,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.hidden,
        "vocab_size": shape.vocab,
        "hidden_act": "silu",
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "rope_scaling": scaling,
        "tie_word_embeddings": shape.tied,
        "max_position_embeddings": header.declared_context,
    }
    if header.family.windowed:
        config["sliding_window"] = shape.window
    return config
