"""The files that another machine needs to make the same tokens: tokenizer and chat template of a model."""

from __future__ import annotations

from evsys_runtime.rendering.cache import TINY, find_model
from evsys_runtime.rendering.templates import CHATML

__all__ = ["rendering_files"]

FILES = (
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


def rendering_files(name: str) -> dict[str, str]:
    """The texts of a model's files by name; without `tokenizer.json` its tokens are the bytes of `evsys/tiny`.

    Raises:
        ConfigError: no such model on this machine.
    """
    if name == TINY:
        return {"chat_template.jinja": CHATML}
    folder = find_model(name).folder
    paths = [folder / file for file in FILES]
    return {path.name: path.read_text(encoding="utf-8") for path in paths if path.is_file()}
