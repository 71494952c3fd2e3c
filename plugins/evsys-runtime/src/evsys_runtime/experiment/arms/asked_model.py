"""The model that an arm asks for: named in its file, with what its algorithm trains of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evsys.types import LoraSpec, ModelSpec

if TYPE_CHECKING:
    from evsys.protocols import Algorithm
    from evsys_runtime.config.plan import ArmConfig

__all__ = ["asked_model"]


def asked_model(arm: ArmConfig, algorithm: Algorithm) -> ModelSpec:
    """The model of an arm. An algorithm that says nothing of what it trains trains the usual adapter."""
    config = arm.run.model
    lora = getattr(algorithm, "lora", None)
    return ModelSpec(
        name=config.name,
        lora=lora() if callable(lora) else LoraSpec(),
        renderer=config.renderer,
        init_from_checkpoint=config.init_from_checkpoint,
        load_checkpoint_path=config.load_checkpoint_path,
    )
