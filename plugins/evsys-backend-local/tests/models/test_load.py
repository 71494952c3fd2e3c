import json
import re

import numpy as np
import pytest

from evsys.errors import ConfigError, DataError
from evsys.types import LoraSpec, ModelSpec
from evsys_backend_local.engine.memory import NotEnoughMemoryError
from evsys_backend_local.models.byte_tokenizer import write_byte_tokenizer
from evsys_backend_local.models.families import ModelTooLargeError
from evsys_backend_local.models.load import load_weights, read_header
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
        (
            {"architectures": ["Phi3ForCausalLM"]},
            "runs Llama, SmolLM2, Mistral, Qwen2, Qwen2.5 and dense Qwen3",
        ),
        ({"architectures": ["Qwen3MoeForCausalLM"]}, "Qwen3MoeForCausalLM.*Tinker protocol"),
        ({"architectures": None, "model_type": "gpt2"}, "architecture gpt2.*Tinker protocol"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling.*Tinker protocol"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "rope_scaling.*Tinker protocol"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5.*Tinker protocol"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"quantised checkpoint \(gptq.*Tinker protocol"),
        ({"architectures": ["Qwen3ForCausalLM"], "attention_bias": True}, "attention_bias.*Tinker"),
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
        ({"hidden_size": True}, "config.json lacks hidden_size"),
        ({"head_dim": 0}, "head_dim is 0, not a whole number above 0"),
        ({"rope_theta": "big"}, "rope_theta is 'big', not a number above 0"),
        ({"num_key_value_heads": 3}, "makes no sense: .*4 heads are not a multiple of 3"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8}},
            "llama3 needs the numbers factor, low_freq_factor",
        ),
        ({"rope_scaling": {"rope_type": "linear", "factor": -1}}, "makes no sense"),
        ({"rope_scaling": "linear"}, "not an object"),
        ({"rope_scaling": {"rope_type": "linear", "factor": float("nan")}}, "makes no sense"),
        ({"rms_norm_eps": float("inf")}, "rms_norm_eps is inf"),
        ({"rope_theta": float("nan")}, "rope_theta is nan"),
        ({"num_hidden_layers": 10**9}, "says 1,000,000,000 blocks; no model has more than 10,000"),
        (
            {"head_dim": 10**9, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            "says 1,000,000,000 numbers a head",
        ),
        ({"intermediate_size": 11}, "has shape"),
        ({"num_hidden_layers": 3}, r"no file holds model\.layers\.2"),
        ({"tie_word_embeddings": False}, r"no file holds lm_head\.weight"),
    ],
)
def test_a_folder_that_does_not_fit_its_config_says_where(folder, changes, message):
    with pytest.raises(DataError, match=message):
        load_weights(folder(**changes))


WINDOWS = [
    # family, config, window, context
    ("Mistral", {"sliding_window": 32}, 32, 64),
    ("Mistral", {}, 4096, 64),
    ("Llama", {"sliding_window": 32}, None, 64),
    ("Qwen2", {"sliding_window": 32}, None, 64),
    ("Qwen2", {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 0}, 32, 64),
    ("Qwen2", {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 1}, None, 32),
    ("Qwen2", {"sliding_window": 32, "use_sliding_window": True}, None, 64),
    (
        "Qwen3",
        {
            "sliding_window": 32,
            "use_sliding_window": True,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        None,
        32,
    ),
]


@pytest.mark.parametrize(("family", "config", "window", "context"), WINDOWS)
def test_a_window_of_all_blocks_is_computed_and_one_of_some_bounds_the_context(
    folder, family, config, window, context
):
    header = read_header(folder(architectures=[f"{family}ForCausalLM"], **config))
    assert (header.shape.window, header.shape.max_context) == (window, context)
    assert header.declared_context == 64
    assert ("some of its blocks see 32 tokens" in header.context_reason) == (context == 32)


def test_a_context_beyond_the_cap_is_cut_and_says_why(folder):
    header = read_header(folder(max_position_embeddings=131072))
    assert (header.shape.max_context, header.declared_context) == (8192, 131072)
    assert "at most 8192 tokens" in header.context_reason


def test_a_file_that_the_index_names_and_nobody_copied_is_named(folder):
    home = folder()
    places = {"model.norm.weight": "model-1.safetensors", "x": "model-9.safetensors"}
    index = home / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    with pytest.raises(DataError, match=r"1 of 2 files are missing: model-9\.safetensors"):
        load_weights(home)


@pytest.mark.parametrize("text", ["{", "{}", '{"weight_map": {"a": 3}}', '{"weight_map": {"a": "../x"}}'])
def test_an_index_that_is_none_is_an_error(folder, text):
    home = folder()
    (home / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"index\.json"):
        load_weights(home)


def test_weights_of_another_type_name_the_route_that_works(folder, small_weights):
    home = folder()
    arrays = {name: array.astype(np.int8) for name, array in small_weights.params.items()}
    write_safetensors(home / "model.safetensors", arrays)
    with pytest.raises(ConfigError, match="of the type I8.*Tinker protocol"):
        load_weights(home)


def test_weights_that_do_not_fit_into_memory_are_refused_before_they_are_read(folder, monkeypatch):
    monkeypatch.setattr("evsys_backend_local.engine.memory.available_bytes", lambda: 10_000)
    with pytest.raises(NotEnoughMemoryError, match="weights in float32 need 0.0 GB of memory") as caught:
        load_weights(folder())
    assert caught.value.facts["needed"] > caught.value.facts["available"] == 10_000


def test_a_model_that_is_too_large_says_how_large_and_what_to_do(folder):
    with pytest.raises(
        ModelTooLargeError, match=r"takes at most 2,000,000,000; choose a smaller one, or .*Tinker"
    ):
        load_weights(folder(vocab_size=10**9))


def test_a_folder_without_a_model_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no model"):
        load_weights(tmp_path)
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="not JSON"):
        load_weights(tmp_path)


def problems(name, **fields):
    return list(model_problems(ModelSpec(name=str(name), **fields)))


def test_a_folder_called_like_weights_is_none(folder):
    home = folder()
    for path in home.glob("*.safetensors*"):
        path.unlink()
    (home / "old.safetensors").mkdir()
    with pytest.raises(DataError, match="no .safetensors file"):
        load_weights(home)


def test_a_folder_of_several_gguf_files_is_an_error(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match="2 .gguf files; keep one model in a folder"):
        load_weights(tmp_path)


def test_model_problems_are_known_without_loading(folder, model_cache):
    assert problems("evsys/tiny") == []
    write_byte_tokenizer(folder())
    assert problems(folder().resolve()) == []
    assert "evsys models fetch smollm2-135m" in problems("smollm2-135m")[0]
    assert "no-such-model" in problems("no-such-model")[0]
    assert "Tinker protocol" in problems(folder(architectures=["BertModel"]).resolve())[0]
    assert "exceeds the context" in problems("evsys/tiny", max_length=5000)[0]
    both = problems("no-such-model", lora=LoraSpec(targets=("q_proj", "query")))
    assert len(both) == 2
    assert (both[1].path, both[1].message) == (
        "$.algorithm.params.target_modules",
        "unknown target modules ['query']",
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda home: (home / "tokenizer.json").unlink(), "there is no tokenizer; copy the model's"),
        (
            lambda home: (home / "chat_template.jinja").unlink(),
            "has no chat template; .*, named in model.renderer",
        ),
        (lambda home: _cut(home / "model-2.safetensors"), r"damaged: it has \d+ bytes and its arrays need"),
        (lambda home: (home / "model-2.safetensors").unlink(), r"\d+ arrays are missing: model\.layers"),
        (lambda home: _write_config(home, intermediate_size=12), "6 arrays have another shape: .*expected"),
    ],
)
def test_what_is_wrong_with_a_folder_is_known_before_a_run(folder, damage, message):
    home = folder().resolve()
    write_byte_tokenizer(home)
    damage(home)
    (problem,) = problems(home)
    assert re.search(message, problem)
    assert str(home) in problem


def test_a_renderer_of_its_own_takes_the_place_of_a_chat_template(folder):
    home = folder().resolve()
    write_byte_tokenizer(home)
    (home / "chat_template.jinja").unlink()
    assert len(problems(home)) == 1
    assert problems(home, renderer="plain") == []


def _cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def _write_config(home, **changes):
    (home / "config.json").write_text(json.dumps({**CONFIG, **changes}), encoding="utf-8")


def test_a_cut_off_gguf_file_is_known_before_a_run(tmp_path, gguf_writer, small_weights):
    home = tmp_path.resolve()
    write_byte_tokenizer(home)
    gguf_writer.write_model(home / "m.gguf", small_weights)
    assert problems(home) == []
    whole = (home / "m.gguf").read_bytes()
    (home / "m.gguf").write_bytes(whole[: len(whole) * 7 // 8])
    (problem,) = problems(home)
    assert f"{home}: cut off: it has" in problem
