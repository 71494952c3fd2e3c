from pathlib import Path

import pytest

from evsys.errors import ConfigError, PluginContractError
from evsys.types import Message
from evsys_runtime.rendering.cache import model_folder, write_manifest
from evsys_runtime.rendering.resolve import load_renderer
from evsys_runtime.rendering.tokenizers import ByteTokenizer

ASK = [Message(role="user", content="hi")]


def test_the_tiny_model_renders_chatml_in_bytes():
    renderer = load_renderer("evsys/tiny")
    assert isinstance(renderer.tokenizer, ByteTokenizer)
    assert (
        renderer.tokenizer.decode(renderer.render_prompt(ASK))
        == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_cached_model_is_found_by_name_with_its_own_template(cache: Path, model_dir: Path):
    home = model_folder("some/model")
    home.parent.mkdir(parents=True)
    model_dir.rename(home)
    with pytest.raises(ConfigError, match="incomplete"):
        load_renderer("some/model")
    write_manifest(home, "some/model")
    text = load_renderer("some/model").prompt_text(ASK)
    assert text.startswith("<|im_start|>system\nYou are a small model.<|im_end|>\n")


def test_named_special_tokens_reach_the_template(model_dir: Path):
    (model_dir / "chat_template.jinja").write_text(
        "{{ bos_token }}{{ eos_token }}{% for m in messages %}{{ m.content }}{% endfor %}", encoding="utf-8"
    )
    assert load_renderer(model_dir).prompt_text(ASK) == "<|im_start|><|im_end|>hi"


class Registered:
    """Stands for the registry: one renderer under one name."""

    def __init__(self, value: object) -> None:
        self.value = value

    def get(self, kind: str, name: str) -> object:
        assert (kind, name) == ("renderer", "mine")
        return self.value


def test_a_registered_renderer_is_built_around_the_models_tokenizer():
    class Mine:
        def __init__(self, tokenizer: object) -> None:
            self.tokenizer = tokenizer

    renderer = load_renderer("evsys/tiny", renderer="mine", registry=Registered(Mine))
    assert isinstance(renderer, Mine)
    assert isinstance(renderer.tokenizer, ByteTokenizer)


def test_a_registered_renderer_that_cannot_be_built_is_named():
    def broken(tokenizer: object) -> object:
        raise OSError("no table")

    with pytest.raises(PluginContractError, match="'mine' failed: OSError: no table"):
        load_renderer("evsys/tiny", renderer="mine", registry=Registered(broken))
