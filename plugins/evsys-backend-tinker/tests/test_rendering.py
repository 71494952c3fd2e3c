"""Where a model's tokenizer comes from."""

import json
from pathlib import Path

import pytest
from small_server import small_server

from evsys.errors import BackendError, ConfigError
from evsys.types import ModelSpec
from evsys_backend_tinker.http_json import JsonApi
from evsys_backend_tinker.rendering import RENDERING, model_renderer

TEMPLATE = "{% for message in messages %}[{{ message.content }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}"


def tokenizer_json() -> str:
    tokenizers = pytest.importorskip("tokenizers")
    vocab = {text: index for index, text in enumerate(["<unk>", "</s>", "[", "]", ">", "a", "b"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    made.add_special_tokens(["</s>"])
    return made.to_str()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVSYS_CACHE", str(tmp_path / "cache"))


def rendered(name: str, api: JsonApi, tokenizer: str | None = None, tokenizer_id: str | None = None):
    return model_renderer(
        ModelSpec(name=name), api=api, tokenizer=tokenizer, tokenizer_id=tokenizer_id, seconds=5.0
    )


def test_a_server_that_offers_a_tokenizer_is_believed(tmp_path: Path):
    files = {"tokenizer.json": tokenizer_json(), "chat_template.jinja": TEMPLATE, "../escape.json": "{}"}
    with small_server({RENDERING.format(model="my/model"): (200, {"files": files})}) as small:
        api = JsonApi(base_url=small.base_url)
        renderer = rendered("my/model", api)
        assert rendered("my/model", api).tokenizer.fingerprint == renderer.tokenizer.fingerprint
    assert renderer.tokenizer.vocab_size == 7
    assert not list(tmp_path.rglob("escape.json"))


def test_a_cache_that_cant_be_written_is_told_with_its_place(tmp_path: Path):
    (tmp_path / "cache").write_text("in the way", encoding="utf-8")
    files = {"tokenizer.json": "{}"}
    with (
        small_server({RENDERING.format(model="my/model"): (200, {"files": files})}) as small,
        pytest.raises(BackendError, match="tokenizer of 'my/model' can't be kept: .*cache/tinker/rendering"),
    ):
        rendered("my/model", JsonApi(base_url=small.base_url))


def test_the_params_come_before_the_server(tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}), encoding="utf-8")
    with small_server({}) as small:
        assert rendered("my/model", JsonApi(base_url=small.base_url), str(folder)).tokenizer.vocab_size == 7
        assert small.asked == []


def test_the_tiny_model_needs_no_file():
    with small_server({}) as small:
        api = JsonApi(base_url=small.base_url)
        assert rendered("evsys/tiny", api).tokenizer.vocab_size == 259
        assert rendered("their/copy", api, tokenizer_id="evsys/tiny").tokenizer.vocab_size == 259


def test_a_model_whose_tokenizer_is_nowhere_says_what_can_be_done():
    with (
        small_server({}) as small,
        pytest.raises(ConfigError, match=r"offers no tokenizer of 'a/b'.*params\.tokenizer"),
    ):
        rendered("a/b", JsonApi(base_url=small.base_url))
