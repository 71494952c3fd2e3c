"""The engine against torch, transformers, peft, gguf and jax: `nox -s oracles` installs them and runs this.

Those libraries live in an environment of their own, whose interpreter is named by `EVSYS_ORACLES_PEER`; they are asked
twice: for models and their numbers, then for what they make of the files that were written here.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from evsys.errors import ConfigError
from evsys_backend_local.engine.adam import AdamParams
from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.draw import log_normaliser, reshape_distribution
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.engine.state import load_state, save_weights
from evsys_backend_local.engine.workspace import Workspace
from evsys_backend_local.models.adapter import peft_name, read_adapter
from evsys_backend_local.models.export import export_model
from evsys_backend_local.models.gguf import GgufFile
from evsys_backend_local.models.quantisation import PACKINGS
from evsys_backend_local.models.resolve import load_base
from evsys_backend_local.models.tokenizer import tokenizer_from_gguf
from evsys_runtime.rendering.resolve import load_renderer
from evsys_runtime.rendering.tokenizers import ByteTokenizer

pytestmark = [pytest.mark.oracles, pytest.mark.timeout(900)]

STORED = ("llama", "smollm2", "mistral", "qwen2", "qwen3")
VOCAB, LENGTH = 259, 24
BASE = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
LORA = {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "v_proj", "down_proj"]}
#: Models that transformers makes anew: other options of the families, and other ways to store them.
MADE = {
    "linear": {
        "config_class": "LlamaConfig",
        "config": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    },
    "ungrouped": {
        "config_class": "LlamaConfig",
        "config": {"num_key_value_heads": 4, "tie_word_embeddings": True},
    },
    "windowed": {
        "config_class": "Qwen2Config",
        "config": {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0},
    },
    "sharded": {"config_class": "Qwen3Config", "config": {"head_dim": 8}, "max_shard_size": "20KB"},
    "bfloat16": {"config_class": "MistralConfig", "config": {"sliding_window": None}, "dtype": "bfloat16"},
    "float16": {"config_class": "Qwen2Config", "config": {"tie_word_embeddings": True}, "dtype": "float16"},
}
MODELS = (*STORED, *MADE)
WARPS = [
    {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    for temperature in (0.6, 1.0, 1.7)
    for top_k in (0, 7)
    for top_p in (1.0, 0.8)
]
QUANTISED = {kind: packing for kind, packing in PACKINGS.items() if packing.numbers > 1}
TEXTS = ["hello", "größe  \n\t漢字 🎉", "<|im_start|>user\nhi<|im_end|>", " a  b "]
SPLITS = [
    *TEXTS,
    "I'll we've THEY'RE 12345,678.9",
    "a\r\n\r\n b  \u00a0c",
    "e\u0301 --$$ __x__",
    "  \n\n  hehe",
]
MESSAGES = [{"role": "user", "content": "turn: abc"}]


def tokens_of(seed=0, length=LENGTH, vocab=VOCAB):
    return np.random.default_rng(seed).integers(0, vocab, length).tolist()


WEIGHTS = np.random.default_rng(1).random(LENGTH - 1).astype(np.float32)


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """Folder of each model; those of :data:`MADE` appear when the first peer runs."""
    root = tmp_path_factory.mktemp("models")
    stored = Path(__file__).parent / "models" / "families"
    return {name: stored / name if name in STORED else root / name for name in MODELS}


def adapter_of(home):
    return home / "adapter" if (home / "adapter").exists() else home.with_name(home.name + "-adapter")


@pytest.fixture(scope="module")
def first(homes, gguf_writer, make_peer, tmp_path_factory):
    """Numbers of the libraries alone."""
    peer = make_peer(tmp_path_factory.mktemp("first") / "out")
    for seed, (name, made) in enumerate(MADE.items()):
        config = {**BASE, **made["config"]}
        settings = {**made, "config": config, "seed": seed, "model": homes[name]}
        peer.ask(name, "make", **settings, adapter=f"{homes[name]}-adapter", lora=LORA)
    for name, home in homes.items():
        adapter = home / "adapter" if name in STORED else f"{home}-adapter"
        job = {"model": home, "tokens": tokens_of()}
        peer.ask(f"{name}-logits", "logits", **job)
        peer.ask(f"{name}-gradients", "gradients", **job, adapter=adapter, weights=WEIGHTS.tolist())
        peer.ask(f"{name}-merged", "merge", **job, adapter=adapter)
        peer.ask(f"{name}-greedy", "greedy", **job, adapter=adapter, count=30)
        if name not in ("bfloat16", "float16"):
            peer.ask(f"{name}-jax", "jax_gradients", **job, adapter=adapter, weights=WEIGHTS.tolist())
    rows = np.random.default_rng(2).normal(0, 2, (len(WARPS), 40))
    for index, settings in enumerate(WARPS):
        peer.ask(f"warp-{index}", "warp", logits=rows[index].tolist(), **settings)
    for kind, packing in QUANTISED.items():
        raw = peer.folder / f"raw-{kind}.npz"
        np.savez(raw, raw=blocks(kind, packing))
        peer.ask(f"dequantised-{kind}", "dequantise", raw=raw, kind=kind)
    metadata = gguf_writer.tokenizer_metadata()
    vocab, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    peer.ask("qwen", "qwen_tokens", vocab=vocab, merges=merges, special=gguf_writer.TOKENS, texts=SPLITS)
    peer.ask("patterns", "patterns")
    peer.ask("versions", "versions")
    peer.run()
    return peer


def blocks(kind, packing):
    """Random blocks whose scales are finite numbers."""
    rng = np.random.default_rng(kind)
    raw = rng.integers(0, 256, (30, packing.size), np.uint8)
    at = {"Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}.get(
        packing.name, (0,)
    )
    for start in at:
        raw[:, start : start + 2] = rng.normal(size=(30, 1)).astype("<f2").view(np.uint8)
    return raw


@pytest.fixture(scope="module")
def written(first, homes, tmp_path_factory):
    """For each model an adapter that was trained and saved here, and folders that were exported here."""
    root = tmp_path_factory.mktemp("written")
    found = {}
    for name, home in homes.items():
        engine = Engine(load_base(home.resolve()), workers=2, max_rows=64, block_rows=7)
        model = engine.create_adapter(rank=4, alpha=8.0, seed=1)
        tokens = np.asarray(tokens_of(5))
        for _ in range(8):
            engine.forward_backward(model, [Example(tokens=tokens[:-1], targets=tokens[1:])], likelihood)
            engine.optim_step(model, AdamParams(learning_rate=0.03))
        save_weights(model, root / name / "adapter")
        export_model(str(root / name / "adapter"), root / name / "merged")
        logprobs = engine.compute_logprobs(model, [tokens_of()])[0][1:]
        base = engine.compute_logprobs(engine.base, [tokens_of()])[0][1:]
        found[name] = {"folder": root / name, "logprobs": logprobs, "base": base}
        engine.close()
    export_model("evsys/tiny", root / "tiny")
    found["tiny"] = {"folder": root / "tiny"}
    return found


def likelihood(_, logprobs):
    return -float(sum(own.sum() for own in logprobs)), [-np.ones_like(own) for own in logprobs], {}


@pytest.fixture(scope="module")
def second(written, homes, make_peer, tmp_path_factory):
    """What the libraries make of the files that were written here."""
    peer = make_peer(tmp_path_factory.mktemp("second") / "out")
    for name, home in homes.items():
        folder, tokens = written[name]["folder"], tokens_of()
        peer.ask(f"{name}-adapter", "logits", model=home, adapter=folder / "adapter", tokens=tokens)
        peer.ask(f"{name}-export", "logits", model=folder / "merged", tokens=tokens)
    tiny = written["tiny"]["folder"]
    peer.ask("tiny-logits", "logits", model=tiny, tokens=tokens_of())
    peer.ask("tiny-text", "tokenize", model=tiny, texts=TEXTS, messages=MESSAGES)
    peer.run()
    return peer


@pytest.fixture
def engine(homes, first, name):
    engine = Engine(load_base(homes[name].resolve()), workers=2, max_rows=64, block_rows=7)
    yield engine
    engine.close()


def adapted(engine, folder):
    saved = read_adapter(folder)
    model = engine.create_adapter(rank=saved.rank, alpha=saved.alpha, targets=saved.targets)
    load_state(model, folder, with_optimizer=False)
    return model


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def all_logprobs(engine, model, tokens):
    """Logprobs of every token at every position, ``[T, vocab]``."""
    targets = np.tile(np.arange(engine.shape.vocab), (len(tokens), 1))
    return engine.forward(model, [Example(tokens=tokens, targets=targets)])[0]


each = pytest.mark.parametrize("name", MODELS)


def test_every_library_takes_part(first, record_property):
    found = json.loads((first.folder / "versions.json").read_text(encoding="utf-8"))
    record_property("versions", found)
    assert all(found.values()), found


@each
def test_logits_equal_those_of_transformers(engine, first, name):
    expected = log_softmax(first[f"{name}-logits"]["logits"])
    assert np.ptp(expected) > 5
    np.testing.assert_allclose(all_logprobs(engine, engine.base, tokens_of()), expected, atol=3e-5, rtol=0)


@each
def test_logprobs_and_gradients_equal_those_of_torch(engine, homes, first, name):
    compare_gradients(engine, adapter_of(homes[name]), first[f"{name}-gradients"], 5e-5)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("bfloat16", "float16")])
def test_logprobs_and_gradients_equal_those_of_jax_in_float64(homes, first, name):
    engine = Engine(load_base(homes[name].resolve(), np.float64), workers=2, max_rows=64, block_rows=7)
    compare_gradients(engine, adapter_of(homes[name]), first[f"{name}-jax"], 1e-9)
    engine.close()


def compare_gradients(engine, folder, expected, tolerance):
    model, tokens = adapted(engine, folder), np.asarray(tokens_of())

    def loss(_, logprobs):
        return -float(logprobs[0] @ WEIGHTS), [-WEIGHTS.astype(logprobs[0].dtype)], {}

    result = engine.forward_backward(model, [Example(tokens=tokens[:-1], targets=tokens[1:])], loss)
    np.testing.assert_allclose(result.logprobs[0], expected["logprobs"], atol=tolerance, rtol=0)
    gradients = dict(model.grad.items())
    assert {peft_name(key) for key in gradients} == {key for key in expected if "lora_" in key}
    for key, gradient in gradients.items():
        wanted = expected[peft_name(key)]
        assert np.linalg.norm(gradient - wanted) < tolerance * np.linalg.norm(wanted), key


@each
def test_greedy_continuations_equal_those_of_generate(engine, homes, first, name):
    model = adapted(engine, adapter_of(homes[name]))
    request = SampleRequest(prompt=tokens_of(), temperature=0, max_tokens=30)
    assert engine.sample(model, [request])[0].samples[0].tokens == first[f"{name}-greedy"]["tokens"].tolist()


@each
def test_a_merged_export_equals_the_merge_of_peft(homes, first, tmp_path, name):
    home = homes[name]
    export_model(str(adapter_of(home)), tmp_path / "merged", base=str(home.resolve()))
    engine = Engine(load_base((tmp_path / "merged").resolve()), workers=1)
    expected = log_softmax(first[f"{name}-merged"]["logits"])
    # Merged weights are rounded to float32 once more, here and there.
    np.testing.assert_allclose(all_logprobs(engine, engine.base, tokens_of()), expected, atol=1e-4, rtol=0)
    engine.close()


@each
def test_a_trained_adapter_reloads_in_peft_with_equal_logprobs(written, second, name):
    told = written[name]
    assert np.abs(told["logprobs"] - told["base"]).max() > 0.1
    table = log_softmax(second[f"{name}-adapter"]["logits"])
    found = np.take_along_axis(table[:-1], np.asarray(tokens_of())[1:, None], 1)[:, 0]
    np.testing.assert_allclose(found, told["logprobs"], atol=3e-5, rtol=0)


@each
def test_a_merged_folder_loads_in_transformers_with_the_logits_of_base_and_adapter(second, name):
    left, right = (log_softmax(second[f"{name}-{kind}"]["logits"]) for kind in ("adapter", "export"))
    np.testing.assert_allclose(left, right, atol=1e-4, rtol=0)


def test_the_built_in_model_is_one_of_transformers_once_exported(second):
    engine = Engine(load_base("evsys/tiny"), workers=1)
    expected = log_softmax(second["tiny-logits"]["logits"])
    np.testing.assert_allclose(all_logprobs(engine, engine.base, tokens_of()), expected, atol=3e-5, rtol=0)
    engine.close()


def test_the_built_in_models_texts_are_the_same_tokens_in_transformers(second):
    found, tokenizer = second["tiny-text"], ByteTokenizer()
    expected = [tokenizer.encode(text) for text in TEXTS]
    assert found["lengths"].tolist() == [len(ids) for ids in expected]
    assert found["ids"].tolist() == [token for ids in expected for token in ids]
    renderer = load_renderer("evsys/tiny")
    chat = renderer.template.render(MESSAGES, add_generation_prompt=True)
    assert found["chat"].tolist() == tokenizer.encode(chat)


@pytest.mark.parametrize("index", range(len(WARPS)))
def test_temperature_top_k_and_top_p_are_those_of_transformers(first, index):
    logits = np.random.default_rng(2).normal(0, 2, (len(WARPS), 40))[index : index + 1]
    top, weights, _ = log_normaliser(logits, Workspace(np.float64))
    settings = {key: np.asarray([value]) for key, value in WARPS[index].items()}
    reshape_distribution(weights, logits, top, **settings)
    ours = weights[0, :40] / weights[0, :40].sum()
    np.testing.assert_allclose(ours, first[f"warp-{index}"]["probabilities"], atol=1e-12)


@pytest.mark.parametrize("kind", list(QUANTISED), ids=[packing.name for packing in QUANTISED.values()])
def test_blocks_are_dequantised_to_the_same_bits_as_by_the_gguf_library(first, kind):
    packing = QUANTISED[kind]
    np.testing.assert_array_equal(
        packing.decode(blocks(kind, packing)), first[f"dequantised-{kind}"]["numbers"]
    )


def test_text_is_split_for_qwen_as_by_transformers(first, tmp_path, gguf_writer):
    metadata = {**gguf_writer.tokenizer_metadata(), "tokenizer.ggml.pre": "qwen2"}
    gguf_writer.write_gguf(tmp_path / "t.gguf", metadata, {})
    tokenizer = tokenizer_from_gguf(GgufFile(tmp_path / "t.gguf"))
    ids = [tokenizer.encode(text).ids for text in SPLITS]
    assert first["qwen"]["lengths"].tolist() == [len(own) for own in ids]
    assert first["qwen"]["ids"].tolist() == [token for own in ids for token in own]


def test_text_is_split_for_llama_3_as_by_transformers(first, tmp_path, gguf_writer):
    metadata = {**gguf_writer.tokenizer_metadata(), "tokenizer.ggml.pre": "llama-bpe"}
    gguf_writer.write_gguf(tmp_path / "t.gguf", metadata, {})
    settings = json.loads(tokenizer_from_gguf(GgufFile(tmp_path / "t.gguf")).to_str())
    expected = json.loads((first.folder / "patterns.json").read_text(encoding="utf-8"))["llama-bpe"]
    assert settings["pre_tokenizer"]["pretokenizers"][0]["pattern"] == {"Regex": expected}


@pytest.fixture(scope="module")
def smollm2(make_peer, tmp_path_factory):
    """The fetched model's folder, with what transformers reads out of its GGUF file."""
    try:
        weights = load_base("smollm2-135m")
    except ConfigError as error:
        pytest.skip(str(error))
    from evsys_backend_local.models.resolve import resolve

    peer = make_peer(tmp_path_factory.mktemp("smollm2") / "out")
    exported = peer.folder.with_name("exported")
    export_model("smollm2-135m", exported)
    tokens = tokens_of(3, 60, weights.shape.vocab)
    peer.ask("gguf", "logits", model=resolve("smollm2-135m"), gguf="model.gguf", tokens=tokens)
    peer.ask("export", "logits", model=exported, tokens=tokens)
    peer.run()
    engine = Engine(weights)
    yield log_softmax(peer["gguf"]["logits"]), log_softmax(peer["export"]["logits"]), engine, tokens
    engine.close()


def test_smollm2_out_of_its_gguf_file_is_what_transformers_reads(smollm2):
    gguf, export, engine, tokens = smollm2
    ours = all_logprobs(engine, engine.base, tokens)
    np.testing.assert_allclose(ours, gguf, atol=2e-4, rtol=0)
    np.testing.assert_allclose(ours, export, atol=2e-4, rtol=0)
