"""Chat templates: jinja2 in its immutable sandbox, set up as the templates inside models expect it.

A template comes with a model from elsewhere, so it runs in a sandbox with bounds on time and memory. A failure
inside one is a `DataError` that names it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evsys.errors import DataError
from evsys_runtime.rendering.cache import TINY, find_model
from evsys_runtime.rendering.template_sandbox import FILTERS, MAX_CHARACTERS, deadline, environment

if TYPE_CHECKING:
    import jinja2

__all__ = ["CHATML", "ChatTemplate", "load_template"]

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The template of `evsys/tiny`: plain ChatML, no default system prompt."""


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: the jinja2 text.
        name: what messages call it, usually a file.
        variables: further variables of the template, such as `{"enable_thinking": False}` or `bos_token`.
        max_characters: bound on one rendering's length.

    Raises:
        DataError: the text is not a template.
    """

    def __init__(
        self,
        source: str,
        *,
        name: str = "chat template",
        variables: Mapping[str, Any] | None = None,
        max_characters: int = MAX_CHARACTERS,
    ) -> None:
        self.source = source
        self.name = name
        self.variables = dict(variables or {})
        self.max_characters = max_characters
        self._template = _compile(source, name)

    @property
    def fingerprint(self) -> str:
        """Hash of what decides the rendering: the source and the variables."""
        text = json.dumps([self.source, self.variables], ensure_ascii=False, sort_keys=True, default=str)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def mentions(self, text: str) -> bool:
        """True when the source contains `text`."""
        return text in self.source

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = False,
        written: Callable[[int], None] | None = None,
    ) -> str:
        """The conversation as text.

        Args:
            messages: mappings with `role`, `content` and what else the template reads.
            tools: tool schemas; templates see None when there are none.
            add_generation_prompt: end where the assistant starts to speak.
            written: called with the length of the text so far, before the template reads on.

        Raises:
            DataError: the template failed, refused the conversation, or wrote too much.
        """
        variables = {
            **self.variables,
            "messages": messages,
            "tools": list(tools) or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        parts: list[str] = []
        size = 0
        try:
            with deadline():
                for part in self._template.generate(variables):
                    size += len(part)
                    if size > self.max_characters:
                        break
                    parts.append(part)
                    if written is not None:
                        written(size)
        except Exception as exc:
            raise DataError(
                f"chat template failed: {_describe(exc)}", source=self.name, line=_line(exc)
            ) from exc
        if size > self.max_characters:
            raise DataError(
                f"chat template wrote more than {self.max_characters} characters", source=self.name
            )
        return "".join(parts)


def load_template(name_or_folder: str | Path, *, variables: Mapping[str, Any] | None = None) -> ChatTemplate:
    """The chat template of a model: `chat_template.jinja`, else `chat_template` in `tokenizer_config.json`.

    Raises:
        ConfigError: no such model.
        DataError: it has no template, or one that can't be compiled.
    """
    if name_or_folder == TINY:
        return ChatTemplate(CHATML, name=f"{TINY}/chat_template.jinja", variables=variables)
    folder = find_model(name_or_folder).folder
    file = folder / "chat_template.jinja"
    if file.is_file():
        return ChatTemplate(file.read_text(encoding="utf-8"), name=str(file), variables=variables)
    config = folder / "tokenizer_config.json"
    source = _chat_template(config)
    if source is None:
        raise DataError(
            "the model has no chat template",
            source=str(folder),
            hint="put one into chat_template.jinja next to tokenizer.json; base models without one need a renderer of their own",
        )
    return ChatTemplate(source, name=str(config), variables=variables)


def _chat_template(config: Path) -> str | None:
    """`chat_template` of a tokenizer_config.json: one text, or a list of named ones of which `default` is used."""
    try:
        value = json.loads(config.read_text(encoding="utf-8")).get("chat_template")
    except FileNotFoundError:
        return None
    except (ValueError, AttributeError) as exc:
        raise DataError(f"not a JSON object ({exc})", source=str(config)) from exc
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


@functools.lru_cache(maxsize=32)
def _compile(source: str, name: str) -> jinja2.Template:
    from jinja2 import TemplateSyntaxError

    try:
        return environment().from_string(source)
    except TemplateSyntaxError as exc:
        raise DataError(
            f"chat template has a syntax error: {exc.message}",
            source=name,
            line=exc.lineno,
            hint=f"chat templates can use {', '.join(FILTERS)}" if "No filter" in str(exc.message) else None,
        ) from exc
    except Exception as exc:  # of the compiler, such as a recursion too deep or a bound
        raise DataError(f"chat template can't be compiled: {_describe(exc)}", source=name) from exc


def _describe(exc: Exception) -> str:
    return str(exc) or type(exc).__name__


def _line(exc: Exception) -> int | None:
    """The template's line in which it failed: the innermost frame that jinja2 mapped to template source."""
    line = None
    trace = exc.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
