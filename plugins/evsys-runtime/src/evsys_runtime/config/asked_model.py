"""The model that a run or a role asks for: named in its file, with what an algorithm trains of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evsys.optional import declared
from evsys.types import LoraSpec, ModelSpec

if TYPE_CHECKING:
    from evsys_runtime.config.model import ModelConfig

__all__ = ["adapter_of", "asked_model", "model_spec"]


def asked_model(model: ModelConfig, algorithm: object) -> ModelSpec:
    """The model of a run, with what its algorithm trains of it."""
    return model_spec(model, adapter_of(algorithm))


def adapter_of(algorithm: object) -> LoraSpec:
    """The adapter that an algorithm trains; the default one if it doesn't say."""
    lora = declared(algorithm, "lora")
    spec: LoraSpec = lora() if callable(lora) else LoraSpec()
    return spec


def model_spec(model: ModelConfig, lora: LoraSpec) -> ModelSpec:
    """A model of the file as backends take it; `lora` is what is trained of it, or what its weights have been trained with."""
    return ModelSpec(
        name=model.name,
        lora=lora,
        renderer=model.renderer,
        init_from_checkpoint=model.init_from_checkpoint,
        load_checkpoint_path=model.load_checkpoint_path,
    )
