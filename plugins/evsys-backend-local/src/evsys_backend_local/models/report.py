"""The report of `evsys models check`: the model, whether it runs here, and the memory that training it takes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import ConfigError, EvsysError
from evsys_backend_local.engine.estimate import training_bytes
from evsys_backend_local.engine.memory import available_bytes
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.workers import cpu_count
from evsys_backend_local.models import catalogue
from evsys_backend_local.models.families import LLAMA, ModelHeader, require_supported_size
from evsys_backend_local.models.gguf import GgufFile, is_gguf
from evsys_backend_local.models.gguf_model import gguf_header
from evsys_backend_local.models.hf_config import config_header, read_config
from evsys_backend_local.models.hf_folder import FolderWeights
from evsys_backend_local.models.load import LAYOUTS, NO_MODEL_IN, gguf_file, is_folder_model
from evsys_backend_local.models.quantisation import kind_name
from evsys_backend_local.models.replacing import give_back, restoration_note
from evsys_backend_local.models.resolve import resolve
from evsys_backend_local.models.soundness import (
    folder_problems,
    gguf_problems,
    template_problems,
    tokenizer_problems,
)
from evsys_backend_local.models.tokenizer import CHAT_TEMPLATE, tokenizer_from_gguf
from evsys_backend_local.tiny.shape import SHAPE
from evsys_runtime.rendering.cache import TINY, find_model, model_folder

#: The layout of what is not a model at all.
NO_MODEL = "no model"

#: Sequences that training is estimated for, where nothing else is asked.
DEFAULT_CONTEXT = 2048

#: Rank of the adapter, and rows of a micro-batch, that training is estimated for: the defaults of `sft` and of this backend.
RANK, MICRO_BATCH_ROWS = 32, 256


@attrs.frozen(kw_only=True)
class Training:
    """Memory that training takes at the peak, in bytes."""

    context: int
    workers: int
    lora_bytes: int
    full_bytes: int
    available_bytes: int | None


@attrs.frozen(kw_only=True)
class ModelReport:
    """Everything about one model.

    Attributes:
        name: as it was asked for.
        layout: `built in`, `Hugging Face folder`, `GGUF file` or `no model`.
        path: where it lies, or None.
        header: family and sizes, or None where it isn't supported or its header can't be read.
        stored: element types of its weights, and how many bytes its files have.
        verified: files whose digest is the recorded one.
        tokenizer: `bytes`, `tokenizer.json`, or `in the file` of a GGUF file that lies alone; None where there is
            none.
        chat_template: whether it has one.
        training: None without a header.
        problems: why it can't be trained here; empty where it can.
        notes: what else is good to know.
    """

    name: str
    layout: str
    path: Path | None
    header: ModelHeader | None = None
    stored: Sequence[str] = ()
    stored_bytes: int = 0
    verified: int = 0
    tokenizer: str | None = None
    chat_template: bool = False
    training: Training | None = None
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def supported(self) -> bool:
        """Whether it can be trained here."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        facts = attrs.asdict(self, filter=lambda field, _: field.name not in ("header", "name", "path"))
        facts["path"] = None if self.path is None else str(self.path)
        header: dict[str, Any] = {}
        if self.header is not None:
            header = {
                "family": self.header.family.name,
                "architecture": self.header.family.architecture,
                "parameters": self.header.shape.parameters,
                "context": self.header.shape.max_context,
                "declared_context": self.header.declared_context,
                "context_reason": self.header.context_reason,
                "rope": self.header.rope,
                "shape": self.header.shape.to_dict(),
            }
        return {**facts, **header, "supported": self.supported}


def check_model(name: str, *, context: int | None = None) -> ModelReport:
    """Look at a model without loading its weights.

    Args:
        name: a model's name, a folder, or a GGUF file.
        context: tokens of the sequences that training is estimated for; by default up to 2048.

    Raises:
        ConfigError: there is no such model, or it doesn't compute that context.
        DataError: a file of a fetched model isn't as it was fetched.
    """
    back = [restoration_note(folder) for folder in _recover_model(name)]
    path, verified = _locate(name)
    report = _report_builtin(name) if path is None else _of_path(name, path)
    report = attrs.evolve(report, verified=verified, notes=(*back, *report.notes))
    if report.header is None:
        return report
    shape = report.header.shape
    if context is not None and context > shape.max_context:
        raise ConfigError(
            f"{name}: a context of {context} tokens is more than the {shape.max_context} that are computed here",
            hint=report.header.context_reason or "that is the context the model was made for",
        )
    tokens = min(shape.max_context, DEFAULT_CONTEXT) if context is None else context
    return attrs.evolve(report, training=_training(shape, tokens))


def _recover_model(name: str) -> list[Path]:
    """The model's folder, if it was gone since what replaced it was killed, and is back now."""
    path = Path(name).expanduser()
    homes = [path.resolve()]
    if not path.is_absolute():
        with suppress(ConfigError):  # of what can be a path alone
            homes.append(model_folder(name))
    return [folder for home in homes for folder in give_back(home.parent, home.name)]


def _locate(name: str) -> tuple[Path | None, int]:
    """The folder of a model (None: inside the package), and how many of its files have the digest on record."""
    if name == TINY:
        return None, 0
    try:
        folder = resolve(name)
    except ConfigError:
        path = Path(name).expanduser()
        if not path.exists():
            raise
        return path.resolve(), 0
    catalogue.check(name)
    return folder, len(find_model(name).manifest.get("files", {}))


def _report_builtin(name: str) -> ModelReport:
    from evsys_backend_local.tiny.model import WEIGHTS, load_tiny

    load_tiny()
    header = ModelHeader(family=LLAMA, shape=SHAPE, declared_context=SHAPE.max_context)
    return ModelReport(
        name=name,
        layout="built in",
        path=None,
        header=header,
        stored=("F16",),
        stored_bytes=WEIGHTS.stat().st_size,
        tokenizer="bytes",
        chat_template=True,
    )


def _layout(path: Path) -> str:
    if is_folder_model(path):
        return "Hugging Face folder"
    if path.is_dir():
        return "GGUF file" if any(path.glob("*.gguf")) else NO_MODEL
    return "GGUF file" if path.suffix == ".gguf" or is_gguf(path) else NO_MODEL


def _of_path(name: str, path: Path) -> ModelReport:
    problems: list[str] = []
    notes: list[str] = []
    header: ModelHeader | None = None
    stored: Sequence[str] = ()
    size = 0
    file: GgufFile | None = None
    layout = _layout(path)
    if layout == NO_MODEL:
        what = "it is not a GGUF file" if path.is_file() else NO_MODEL_IN
        return ModelReport(name=name, layout=layout, path=path, problems=(f"{what}; {LAYOUTS}",))
    try:
        if layout == "GGUF file":
            file = GgufFile(gguf_file(path))
            size = file.path.stat().st_size
            header = gguf_header(file)
            stored = tuple(sorted({kind_name(info.kind) for info in file.tensors.values()}))
            problems += gguf_problems(file, header.shape)
        else:
            header = config_header(read_config(path), str(path))
            weights = FolderWeights(path)
            size = sum(file.path.stat().st_size for file in weights.files.values())
            stored = weights.kinds
            problems += folder_problems(weights, header.shape)
        require_supported_size(header.shape, str(path))
    except EvsysError as error:
        problems.append(str(error))
    tokenizer, template = _text_of(path, file, problems, notes)
    return ModelReport(
        name=name,
        layout=layout,
        path=path,
        header=header,
        stored=stored,
        stored_bytes=size,
        tokenizer=tokenizer,
        chat_template=template,
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _text_of(
    path: Path, file: GgufFile | None, problems: list[str], notes: list[str]
) -> tuple[str | None, bool]:
    """The tokenizer and the chat template: those of the folder, or those inside a GGUF file without a folder's."""
    folder = path if path.is_dir() else path.parent
    if not path.is_file():
        text = _text_side(folder, problems, notes)
    elif (folder / "tokenizer.json").is_file():
        text = _text_side(folder, problems, notes)
        notes.append(
            f"model.name takes the folder of this file: {folder}, with tokenizer.json and this file alone"
        )
    else:
        text = _text_inside(file, problems, notes)
        if not problems:
            notes.append(
                f"`evsys models fetch NAME --from-file {path}` makes it a model that model.name can name"
            )
    return text


def _text_side(folder: Path, problems: list[str], notes: list[str]) -> tuple[str | None, bool]:
    """Read tokenizer and chat template as a run would."""
    absent = tokenizer_problems(folder)
    if absent:
        problems += absent
        return None, False
    from evsys_runtime import load_tokenizer
    from evsys_runtime.rendering.tokenizers import special_tokens_of

    try:
        tokenizer = load_tokenizer(folder)
    except EvsysError as error:
        problems.append(str(error))
        return None, False
    untold = template_problems(folder, special_tokens_of(tokenizer))
    notes += untold
    return "tokenizer.json", not untold


def _text_inside(file: GgufFile | None, problems: list[str], notes: list[str]) -> tuple[str | None, bool]:
    """Tokenizer and chat template that a GGUF file holds itself; nothing of one that can't be read."""
    if file is None:
        return None, False
    try:
        tokenizer_from_gguf(file)
    except EvsysError as error:
        problems.append(str(error))
        return None, False
    if not file.metadata.get(CHAT_TEMPLATE):
        notes.append("the file holds no chat template; name a renderer in model.renderer")
        return "in the file", False
    return "in the file", True


def _training(shape: ModelShape, context: int) -> Training:
    workers = cpu_count()
    rows = max(context, MICRO_BATCH_ROWS)
    return Training(
        context=context,
        workers=workers,
        lora_bytes=training_bytes(shape, rows=rows, workers=workers, rank=RANK),
        full_bytes=training_bytes(shape, rows=rows, workers=workers, rank=None),
        available_bytes=available_bytes(),
    )


def report_lines(report: ModelReport) -> list[str]:
    """The report for a terminal."""
    place = f", {report.path}" if report.path is not None else ""
    kinds = f", {' and '.join(report.stored)}, {report.stored_bytes / 1e6:,.1f} MB" if report.stored else ""
    rows = [("model", report.name), ("layout", f"{report.layout}{kinds}{place}")]
    if report.header is not None:
        rows += _header_rows(report.header)
    if report.verified:
        rows.append(("files", f"all {report.verified} are as they were fetched"))
    template = "with" if report.chat_template else "without"
    if report.layout != NO_MODEL:
        rows.append(("tokenizer", f"{report.tokenizer or 'none'}, {template} a chat template"))
    if report.training is not None:
        rows += _training_rows(report.training)
    rows += [("note", note) for note in report.notes]
    rows += [("problem", problem) for problem in report.problems]
    rows.append(("supported", "yes" if report.supported else "no"))
    return [f"{name:<10} {text}" for name, text in rows]


def _header_rows(header: ModelHeader) -> list[tuple[str, str]]:
    shape = header.shape
    sizes = (
        f"{shape.layers} blocks of width {shape.dim}, {shape.heads} heads of {shape.head_dim} over {shape.kv_heads}, "
        f"MLP {shape.hidden}, {shape.vocab:,} tokens, {'tied' if shape.tied else 'untied'}"
    )
    context = f"{shape.max_context:,} tokens"
    if header.context_reason:
        context += f" of {header.declared_context:,}: {header.context_reason}"
    if shape.window is not None:
        context += f", each sees the last {shape.window:,}"
    if header.rope:
        context += f", positions stretched ({header.rope})"
    return [
        ("family", f"{header.family.name} ({header.family.architecture})"),
        ("sizes", sizes),
        ("weights", f"{shape.parameters:,}, {4 * shape.parameters / 1e6:,.1f} MB in float32"),
        ("context", context),
    ]


def _training_rows(training: Training) -> list[tuple[str, str]]:
    free = training.available_bytes
    here = "" if free is None else f"; {free / 1e9:.1f} GB are free here"
    figures = f"about {training.lora_bytes / 1e9:.1f} GB with LoRA, {training.full_bytes / 1e9:.1f} GB for all weights"
    return [("training", f"{figures}, at {training.context:,} tokens and {training.workers} workers{here}")]
