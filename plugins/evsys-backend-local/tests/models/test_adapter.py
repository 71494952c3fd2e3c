import json
import shutil

import numpy as np
import pytest

from evsys.errors import ConfigError, DataError
from evsys_backend_local.engine.shape import LINEARS
from evsys_backend_local.models.adapter import read_adapter
from evsys_backend_local.models.load import load_weights
from evsys_backend_local.models.safetensors import SafetensorsFile, write_safetensors


@pytest.fixture
def adapter(families, tmp_path):
    """A copy of an adapter that peft wrote, with changed settings and arrays."""

    def make(change=None, **settings):
        folder = tmp_path / "adapter"
        shutil.copytree(families / "llama" / "adapter", folder)
        path = folder / "adapter_config.json"
        config = {**json.loads(path.read_text(encoding="utf-8")), **settings}
        path.write_text(json.dumps(config), encoding="utf-8")
        if change is not None:
            weights = folder / "adapter_model.safetensors"
            file = SafetensorsFile(weights)
            arrays = {name: file[name].copy() for name in file}
            change(arrays)
            write_safetensors(weights, arrays)
        return folder

    return make


def test_an_adapter_that_peft_wrote_is_read(adapter):
    saved = read_adapter(adapter())
    assert (saved.rank, saved.alpha, saved.targets) == (2, 6.0, LINEARS)
    assert saved.base == "families/llama"
    assert saved.arrays["layers.1.mlp.down_proj.lora_A"].shape == (2, 24)


@pytest.mark.parametrize("targets", ["all-linear", r".*\.(q|v)_proj", ["q_proj"]])
def test_what_it_changes_is_read_from_its_arrays_not_from_a_pattern(adapter, targets):
    assert read_adapter(adapter(target_modules=targets)).targets == LINEARS


@pytest.mark.parametrize(
    "settings",
    [
        {"lora_dropout": 0.1},
        {"init_lora_weights": "gaussian"},
        {"init_lora_weights": False},
        {"init_lora_weights": "eva"},
        {"revision": "main"},
    ],
)
def test_how_it_was_trained_does_not_matter(adapter, settings):
    assert read_adapter(adapter(**settings)).rank == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"peft_type": "IA3"}, "of the kind IA3, only LORA"),
        ({"use_dora": True}, "use_dora: True.*merge it into its base model with peft"),
        ({"use_rslora": True}, "use_rslora"),
        ({"bias": "all"}, "bias: all"),
        ({"rank_pattern": {"q_proj": 4}, "alpha_pattern": {"q_proj": 4}}, "alpha_pattern.*rank_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"a_setting_of_tomorrow": 3}, "a_setting_of_tomorrow: 3"),
    ],
)
def test_an_adapter_that_computes_something_else_is_refused(adapter, settings, message):
    with pytest.raises(ConfigError, match=message):
        read_adapter(adapter(**settings))


@pytest.mark.parametrize(
    "start", ["pissa", "pissa_niter_4", "OLoRA", "corda", "loftq", "lora_ga", "of_tomorrow"]
)
def test_an_adapter_whose_start_changed_the_base_model_is_refused(adapter, start):
    with pytest.raises(ConfigError, match=f"started as {start} .*merge it into its base model with peft"):
        read_adapter(adapter(init_lora_weights=start))


def test_a_matrix_outside_of_the_seven_linears_is_named(adapter):
    def embedding(arrays):
        arrays["base_model.model.model.embed_tokens.lora_embedding_A"] = np.zeros((2, 259), np.float32)

    with pytest.raises(ConfigError, match="lora_embedding_A changes a part"):
        read_adapter(adapter(embedding))


def test_nan_is_refused(adapter):
    def damage(arrays):
        next(iter(arrays.values()))[0] = np.nan

    with pytest.raises(DataError, match="NaN"):
        read_adapter(adapter(damage))


@pytest.mark.parametrize(
    "settings", [{"r": None}, {"r": float("inf")}, {"lora_alpha": "much"}, {"lora_alpha": float("nan")}]
)
def test_settings_without_numbers_are_named(adapter, settings):
    with pytest.raises(DataError, match=r"adapter_config\.json.*cannot read the adapter's settings"):
        read_adapter(adapter(**settings))


@pytest.mark.parametrize("rank", [0, 10**9])
def test_a_rank_that_the_matrices_do_not_have_is_named_and_takes_no_memory(adapter, rank):
    with pytest.raises(DataError, match=f"says rank {rank}, and layers.0.*has the shape"):
        read_adapter(adapter(r=rank))


def test_settings_that_are_no_object_are_named(adapter):
    folder = adapter()
    (folder / "adapter_config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(DataError, match="not a JSON object"):
        read_adapter(folder)


def test_an_adapter_without_matrices_is_an_error(adapter):
    with pytest.raises(DataError, match="holds no matrices"):
        read_adapter(adapter(dict.clear))


def test_an_adapter_of_another_model_does_not_fit(adapter, families):
    saved = read_adapter(adapter())
    with pytest.raises(ConfigError, match="does not fit the base model"):
        saved.params(load_weights(families / "qwen3").shape, "here")


def test_an_adapter_that_lacks_a_block_does_not_fit(adapter, families):
    def cut(arrays):
        for name in [name for name in arrays if ".layers.1." in name]:
            del arrays[name]

    saved = read_adapter(adapter(cut))
    with pytest.raises(ConfigError, match=r"missing arrays \['layers\.1"):
        saved.params(load_weights(families / "llama").shape, "here")
