"""From a model's name to its renderer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evsys.errors import boundary
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_runtime.rendering.templates import load_template
from evsys_runtime.rendering.tokenizers import load_tokenizer, special_tokens_of

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.protocols import Renderer

__all__ = ["load_renderer"]

DEFAULT = "chat_template"


def load_renderer(
    model_name: str | Path, *, renderer: str | None = None, registry: Registry | None = None
) -> Renderer:
    """The renderer of a model; it also has its `tokenizer`.

    Args:
        model_name: `evsys/tiny`, a model in the cache, or the folder of one.
        renderer: a registered renderer, called as `Plugin(tokenizer=...)` with the model's own tokenizer; None or
            `chat_template` is the model's chat template.
        registry: where `renderer` is looked up; the current one by default.

    Raises:
        ConfigError: no such model.
        DataError: its tokenizer or its chat template can't be used.
        PluginError: no such renderer, or it failed to load.
    """
    tokenizer = load_tokenizer(model_name)
    if renderer is None or renderer == DEFAULT:
        return ChatTemplateRenderer(
            tokenizer, load_template(model_name, variables=special_tokens_of(tokenizer))
        )
    from evsys import current_registry

    plugin = (registry or current_registry()).get("renderer", renderer)
    with boundary("plugin", renderer):
        built: Renderer = plugin(tokenizer=tokenizer)
    return built
