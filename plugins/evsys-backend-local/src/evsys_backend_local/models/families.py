"""Which models this engine runs, what it refuses, and the one message that says so."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from evsys.errors import ConfigError, DataError
from evsys_backend_local.engine.limits import MAX_CONTEXT, MAX_PARAMETERS
from evsys_backend_local.engine.shape import ModelShape

#: More blocks, and wider heads, than any model has. A header is damaged that says more, and isn't taken at its word: what is made
#: for each block, or each number of a head, would fill the memory before any weight is looked for.
MOST_LAYERS, MOST_HEAD_DIM = 10_000, 65_536

#: The models that run here, for messages.
RUNS_HERE = "Llama, SmolLM2, Mistral, Qwen2, Qwen2.5 and dense Qwen3"

#: The way out for models that this engine doesn't run.
OTHER_ROUTE = "train it through a server that speaks the Tinker protocol: backend: {kind: tinker, params: {base_url: ...}}"


class UnsupportedModelError(ConfigError):
    """A model that this engine doesn't run; its message names the route that works."""


class ModelTooLargeError(UnsupportedModelError):
    """A model with more parameters than a CPU trains in sensible time."""


@attrs.frozen(kw_only=True)
class Family:
    """One supported architecture, and how it differs from Llama.

    Attributes:
        name: what people call it.
        architecture: class name in a Hugging Face `config.json`.
        model_type: `model_type` there.
        gguf: `general.architecture` of its GGUF files.
        qkv_bias: q, k and v projections add a bias.
        qk_norm: heads of q and k are normalised.
        windowed: `sliding_window` acts in every block without being switched on.
        optional_window: it acts where `use_sliding_window` is true.
    """

    name: str
    architecture: str
    model_type: str
    gguf: str
    qkv_bias: bool = False
    qk_norm: bool = False
    windowed: bool = False
    optional_window: bool = False


LLAMA = Family(name="Llama", architecture="LlamaForCausalLM", model_type="llama", gguf="llama")
MISTRAL = Family(
    name="Mistral", architecture="MistralForCausalLM", model_type="mistral", gguf="llama", windowed=True
)
QWEN2 = Family(
    name="Qwen2",
    architecture="Qwen2ForCausalLM",
    model_type="qwen2",
    gguf="qwen2",
    qkv_bias=True,
    optional_window=True,
)
QWEN3 = Family(
    name="Qwen3",
    architecture="Qwen3ForCausalLM",
    model_type="qwen3",
    gguf="qwen3",
    qk_norm=True,
    optional_window=True,
)

FAMILIES: tuple[Family, ...] = (LLAMA, MISTRAL, QWEN2, QWEN3)
BY_ARCHITECTURE: Mapping[str, Family] = {family.architecture: family for family in FAMILIES}
BY_MODEL_TYPE: Mapping[str, Family] = {family.model_type: family for family in FAMILIES}
#: GGUF says `llama` for Mistral too.
BY_GGUF: Mapping[str, Family] = {family.gguf: family for family in (LLAMA, QWEN2, QWEN3)}


@attrs.frozen(kw_only=True)
class ModelHeader:
    """The header of a model, without its weights.

    Attributes:
        family: which of the supported ones.
        shape: its sizes, the context bounded to what is computed here.
        declared_context: the context that the model itself declares, in tokens.
        rope: how its rotary positions are stretched, in words; empty if they aren't.
        context_reason: why ``shape.max_context`` is less than declared; empty if it isn't.
    """

    family: Family
    shape: ModelShape
    declared_context: int
    rope: str = ""
    context_reason: str = ""


def unsupported_error(source: str, what: str) -> UnsupportedModelError:
    """The refusal of ``what``, with both ways out."""
    return UnsupportedModelError(
        f"{source}: {what} is not supported by the local engine, which runs {RUNS_HERE}", hint=OTHER_ROUTE
    )


def require_supported_size(shape: ModelShape, source: str) -> None:
    """Raise :class:`ModelTooLargeError` for a model too large for a CPU."""
    if shape.parameters > MAX_PARAMETERS:
        raise ModelTooLargeError(
            f"{source}: a model of {shape.parameters:,} parameters is not supported by the local engine, which takes at "
            f"most {MAX_PARAMETERS:,}",
            hint=f"choose a smaller one, or {OTHER_ROUTE}",
        )


def require_sense(layers: int, head_dim: int, source: str) -> None:
    """Raise :class:`DataError` for sizes that no model has."""
    for what, size, most in (("blocks", layers, MOST_LAYERS), ("numbers a head", head_dim, MOST_HEAD_DIM)):
        if size > most:
            raise DataError(
                f"damaged: its header says {size:,} {what}; no model has more than {most:,}", source=source
            )


def bounded_context(declared: int, window: int | None) -> tuple[int, str]:
    """The context that is computed here, and why it is less than declared.

    Args:
        declared: what the model was made for, in tokens.
        window: tokens that *some* of its blocks see, where blocks differ. Up to that many, all blocks are the same.
    """
    bounds = [(declared, "")]
    if window is not None:
        bounds.append((window, f"some of its blocks see {window} tokens, others all"))
    bounds.append((MAX_CONTEXT, f"the local engine computes at most {MAX_CONTEXT} tokens"))
    return min(bounds, key=lambda bound: bound[0])
