"""The served models, by name. A server that makes them as they are asked for brings a catalogue of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from evsys.protocols import Renderer, SamplingClient, Tokenizer

__all__ = ["Catalogue", "FixedCatalogue", "ServedModel"]


@attrs.frozen(kw_only=True)
class ServedModel:
    """A model that answers. The offering side closes its sampling client.

    Attributes:
        name: what requests call it.
        sampling_client: where its tokens come from.
        renderer: messages to its tokens, and back.
        tokenizer: writes the tokens of logprobs.
        context_length: most tokens of prompt and answer together; None leaves it to the sampling client to refuse.
        max_tokens: longest answer where a request names none.
        created: when, in seconds since 1970.
    """

    name: str
    sampling_client: SamplingClient
    renderer: Renderer
    tokenizer: Tokenizer
    context_length: int | None = None
    max_tokens: int = 1024
    created: int = attrs.field(factory=lambda: int(time.time()))


class Catalogue(Protocol):
    """Finds models. `scope` has the variable parts of the requested path, so that each may have its own models."""

    async def find(self, name: str, scope: Mapping[str, str]) -> ServedModel | None:
        """The model of this name, None where there is none."""

    async def names(self, scope: Mapping[str, str]) -> Sequence[str]:
        """The names of all models."""


class FixedCatalogue:
    """A `Catalogue` of models that are there from the start, the same for every path."""

    def __init__(self, *models: ServedModel) -> None:
        self._models = {model.name: model for model in models}

    async def find(self, name: str, scope: Mapping[str, str]) -> ServedModel | None:
        """The model of this name."""
        return self._models.get(name)

    async def names(self, scope: Mapping[str, str]) -> Sequence[str]:
        """All names, in the order in which the models were given."""
        return tuple(self._models)
