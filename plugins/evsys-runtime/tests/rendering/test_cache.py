from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.errors import ConfigError, DataError
from evsys_runtime.rendering.cache import (
    cache_root,
    cached_models,
    find_model,
    model_folder,
    model_slug,
    read_manifest,
    write_manifest,
)


def test_the_cache_is_found_in_the_documented_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root({}) == tmp_path / ".cache" / "evsys"
    assert cache_root({"XDG_CACHE_HOME": "/x"}) == Path("/x/evsys")
    assert cache_root({"XDG_CACHE_HOME": "/x", "EVSYS_CACHE": "/own"}) == Path("/own")
    assert cache_root({"XDG_CACHE_HOME": "", "EVSYS_CACHE": ""}) == tmp_path / ".cache" / "evsys"


@given(st.text(min_size=1, max_size=40))
def test_a_slug_is_a_portable_folder_name(name: str):
    try:
        slug = model_slug(name)
    except ConfigError:
        return
    assert slug
    assert not set(slug) - set("abcdefghijklmnopqrstuvwxyz0123456789._-")
    assert slug[0] not in ".-"
    assert model_slug(slug) == slug


def test_a_slug_keeps_the_owner_apart_from_the_name():
    assert model_slug("Qwen/Qwen3-0.6B") == "qwen--qwen3-0.6b"


@pytest.mark.parametrize("name", ["", "../..", " ", "///"])
def test_a_name_never_leaves_the_cache(name: str):
    with pytest.raises(ConfigError, match="is not a model name"):
        model_slug(name)


def test_a_folder_is_complete_once_its_manifest_says_so(cache: Path):
    folder = model_folder("some/model")
    folder.mkdir(parents=True)
    assert read_manifest(folder) is None
    (folder / "manifest.json").write_text('{"name": "some/model", "complete": false}', encoding="utf-8")
    assert read_manifest(folder) is None
    with pytest.raises(ConfigError, match="'some/model' is incomplete in the cache"):
        find_model("some/model")
    write_manifest(folder, "some/model", files={"weights.bin": "sha256:0"})
    assert read_manifest(folder) == {
        "format": 1,
        "name": "some/model",
        "files": {"weights.bin": "sha256:0"},
        "complete": True,
    }
    assert find_model("some/model").folder == folder
    assert [model.name for model in cached_models()] == ["some/model"]
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json"]


def test_a_model_is_found_by_an_alias_of_its_manifest(cache: Path):
    folder = model_folder("short")
    folder.mkdir(parents=True)
    write_manifest(folder, "short", aliases=["Owner/Long-Name"])
    assert find_model("Owner/Long-Name").folder == folder


def test_a_fetchable_model_that_is_absent_names_the_command(cache: Path):
    with pytest.raises(ConfigError, match="evsys models fetch smollm2-135m"):
        find_model("smollm2-135m")


@pytest.mark.parametrize(("wrong", "right"), [("evsys/tny", "evsys/tiny"), ("smollm2-135", "smollm2-135m")])
def test_a_misspelt_model_gets_the_closest_name(cache: Path, wrong: str, right: str):
    with pytest.raises(ConfigError, match=f"did you mean '{right}'"):
        find_model(wrong)


def test_an_unknown_model_gets_the_list_of_known_ones(cache: Path):
    with pytest.raises(ConfigError, match="known models: evsys/tiny, smollm2-135m"):
        find_model("zzz")


def test_a_folder_needs_no_manifest_but_must_exist(tmp_path: Path):
    assert find_model(tmp_path).folder == tmp_path
    assert find_model(str(tmp_path)).folder == tmp_path
    with pytest.raises(ConfigError, match="no model folder"):
        find_model(tmp_path / "absent")


def test_a_relative_folder_is_told_its_absolute_path(tmp_path, monkeypatch):
    (tmp_path / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name in ("models/mine", "./models/mine"):
        with pytest.raises(ConfigError, match=f"absolute path: {tmp_path.resolve()}/models/mine"):
            find_model(name)


def test_a_relative_text_is_a_name_and_never_a_folder_of_the_working_directory(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match="not in the cache"):
        find_model("model")


def test_a_manifest_that_is_no_json_object_is_named(cache: Path):
    folder = model_folder("m")
    folder.mkdir(parents=True)
    for text in ("{", "[]"):
        (folder / "manifest.json").write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match="not a JSON object") as caught:
            find_model("m")
        assert caught.value.source == str(folder / "manifest.json")
