import json

import numpy as np
import pytest

from evsys.errors import ConfigError, DataError
from evsys.types import LoraSpec, ModelSpec
from evsys_backend_local.models.load import load_weights
from evsys_backend_local.models.resolve import load_base, model_problems
from evsys_backend_local.models.safetensors import write_safetensors

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 10,
    "vocab_size": 260,
    "rope_theta": 5000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "max_position_embeddings": 64,
}


@pytest.fixture
def folder(tmp_path, small_weights):
    """The small model as a Hugging Face folder of two files."""

    def write(**changes):
        config = {**CONFIG, **changes}
        (tmp_path / "config.json").write_text(
            json.dumps({k: v for k, v in config.items() if v is not None}), encoding="utf-8"
        )
        arrays = dict(small_weights.params.items())
        names = list(arrays)
        write_safetensors(tmp_path / "model-1.safetensors", {n: arrays[n] for n in names[:5]})
        write_safetensors(tmp_path / "model-2.safetensors", {n: arrays[n] for n in names[5:]})
        return tmp_path

    return write


def test_a_hugging_face_folder_is_loaded(folder, small_weights):
    loaded = load_base(folder().resolve())
    assert loaded.shape == small_weights.shape
    assert loaded.name == str(folder().resolve())
    np.testing.assert_array_equal(loaded.params.flat, small_weights.params.flat)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["Gemma3ForCausalLM"]}, "architecture Gemma3ForCausalLM.*Tinker protocol"),
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM.*Tinker protocol"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "rope_scaling.*Tinker protocol"),
        ({"hidden_act": "gelu"}, "silu.*Tinker protocol"),
        ({"attention_bias": True}, "attention_bias.*Tinker protocol"),
        ({"vocab_size": 10**9}, "parameters.*Tinker protocol"),
    ],
)
def test_an_unsupported_model_names_the_route_that_works(folder, changes, message):
    with pytest.raises(ConfigError, match=message):
        load_weights(folder(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "config.json lacks hidden_size"),
        ({"intermediate_size": 11}, "has shape"),
        ({"num_hidden_layers": 3}, r"no file holds model\.layers\.2"),
        ({"tie_word_embeddings": False}, r"no file holds lm_head\.weight"),
    ],
)
def test_a_folder_that_does_not_fit_its_config_says_where(folder, changes, message):
    with pytest.raises(DataError, match=message):
        load_weights(folder(**changes))


def test_a_sliding_window_bounds_the_context(folder):
    weights = load_weights(folder(architectures=["MistralForCausalLM"], sliding_window=32))
    assert weights.shape.max_context == 32


def test_a_folder_without_a_model_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no model"):
        load_weights(tmp_path)
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="not JSON"):
        load_weights(tmp_path)


def problems(name, **fields):
    return list(model_problems(ModelSpec(name=str(name), **fields)))


def test_model_problems_are_known_without_loading(folder, model_cache):
    assert problems("evsys/tiny") == []
    assert problems(folder().resolve()) == []
    assert "evsys models fetch smollm2-135m" in problems("smollm2-135m")[0]
    assert "no-such-model" in problems("no-such-model")[0]
    assert "Tinker protocol" in problems(folder(architectures=["BertModel"]).resolve())[0]
    assert "exceeds the context" in problems("evsys/tiny", max_length=5000)[0]
    both = problems("no-such-model", lora=LoraSpec(targets=("q_proj", "query")))
    assert len(both) == 2
    assert "query" in both[1]
