"""Each family against what transformers, peft and torch gave for a small checkpoint: see `scripts/make_families.py`."""

import json

import numpy as np
import pytest

from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.decode import final_logits
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.model import Forward
from evsys_backend_local.engine.packing import pack_sequences
from evsys_backend_local.engine.sampler import SampleRequest
from evsys_backend_local.engine.state import load_state, save_weights
from evsys_backend_local.engine.workspace import Workspace
from evsys_backend_local.models.adapter import peft_name, read_adapter
from evsys_backend_local.models.load import load_weights, read_header
from evsys_backend_local.models.safetensors import SafetensorsFile, bfloat16, write_safetensors

FAMILIES = {
    "llama": ("Llama", "llama"),
    "smollm2": ("Llama", "llama"),
    "mistral": ("Mistral", "llama"),
    "qwen2": ("Qwen2", "qwen2"),
    "qwen3": ("Qwen3", "qwen3"),
}
each = pytest.mark.parametrize("family", list(FAMILIES))


@pytest.fixture
def home(families, family):
    return families / family


@pytest.fixture
def expected(home):
    file = SafetensorsFile(home / "expected.safetensors")
    return {name: file[name] for name in file}


@pytest.fixture
def engine(home):
    # Blocks shorter than the sequence, so that keys outside a block take part.
    engine = Engine(load_weights(home), workers=2, max_rows=64, block_rows=7)
    yield engine
    engine.close()


def adapted(engine, home):
    saved = read_adapter(home / "adapter")
    model = engine.create_adapter(rank=saved.rank, alpha=saved.alpha, targets=saved.targets)
    load_state(model, home / "adapter", with_optimizer=False)
    return model


def logits_of(engine, tokens):
    dtype = np.dtype(np.float32)
    (pack,) = pack_sequences(
        [tokens], max_rows=64, streams=1, block_rows=7, dtype=dtype, window=engine.shape.window
    )
    ws = Workspace(dtype)
    x = Forward(engine.weights, None, pack, engine.rope, ws, keep=False).run()
    return final_logits(engine.weights, x[pack.rows_of[0]], ws)


@each
def test_the_header_names_the_family(home, family):
    header = read_header(home)
    assert header.family.name == FAMILIES[family][0]
    assert header.declared_context == header.shape.max_context == 256
    assert header.rope == ("llama3" if family == "llama" else "")


@each
def test_logits_are_those_of_transformers(engine, expected):
    logits = logits_of(engine, expected["tokens"])
    assert np.abs(expected["logits"]).max() > 3
    np.testing.assert_allclose(logits, expected["logits"], atol=2e-5, rtol=0)


@each
def test_logprobs_under_an_adapter_of_peft_are_those_of_torch(engine, home, expected):
    logprobs = engine.compute_logprobs(adapted(engine, home), [expected["tokens"]])[0][1:]
    base = engine.compute_logprobs(engine.base, [expected["tokens"]])[0][1:]
    assert np.abs(logprobs - base).max() > 0.3
    np.testing.assert_allclose(logprobs, expected["logprobs"], atol=2e-5, rtol=0)


@each
def test_lora_gradients_are_those_of_torch_autograd(engine, home, expected):
    model, tokens = adapted(engine, home), expected["tokens"]

    def loss(_, logprobs):
        return -float(logprobs[0] @ expected["weights"]), [-expected["weights"]], {}

    engine.forward_backward(model, [Example(tokens=tokens[:-1], targets=tokens[1:])], loss)
    gradients = dict(model.grad.items())
    assert {peft_name(name) for name in gradients} == {name for name in expected if "lora_" in name}
    for name, gradient in gradients.items():
        wanted = expected[peft_name(name)]
        error = np.linalg.norm(gradient - wanted) / np.linalg.norm(wanted)
        assert error < 5e-5, f"{name}: {error}"


@each
def test_sampled_logprobs_are_those_that_training_computes(engine, home, expected):
    model = adapted(engine, home)
    prompts = [expected["tokens"][:9].tolist(), expected["tokens"][3:].tolist()]
    requests = [
        SampleRequest(prompt=prompt, n=3, max_tokens=12, seed=index) for index, prompt in enumerate(prompts)
    ]
    for request, output in zip(requests, engine.sample(model, requests), strict=True):
        for sample in output.samples:
            scored = engine.compute_logprobs(model, [[*request.prompt, *sample.tokens]])[0]
            ratio = np.exp(scored[len(request.prompt) :] - sample.logprobs)
            assert np.abs(ratio - 1).max() < 1e-4


@each
def test_an_adapter_of_peft_comes_back_as_it_was(engine, home, tmp_path):
    save_weights(adapted(engine, home), tmp_path)
    first, second = read_adapter(home / "adapter"), read_adapter(tmp_path)
    assert (first.rank, first.alpha, set(first.targets)) == (2, 6.0, set(second.targets))
    assert (second.rank, second.alpha) == (2, 6.0)
    for name, array in first.arrays.items():
        np.testing.assert_array_equal(second.arrays[name], array)


@each
def test_a_gguf_file_gives_the_same_model(home, family, tmp_path, gguf_writer):
    weights = load_weights(home)
    gguf_writer.write_model(tmp_path / "m.gguf", weights, FAMILIES[family][1])
    loaded = load_weights(tmp_path)
    np.testing.assert_array_equal(loaded.params.flat, weights.params.flat)
    ours, theirs = weights.shape.to_dict(), loaded.shape.to_dict()
    if family == "mistral":  # these files don't tell that the model has a window
        ours["window"] = None
    assert theirs.pop("rope_factors") == (
        None if ours["rope_factors"] is None else pytest.approx(ours["rope_factors"], rel=1e-6)
    )
    del ours["rope_factors"]
    assert theirs == ours


def write_shards(folder, arrays, convert, names):
    """The arrays in two files with an index, as `save_pretrained` splits a large model."""
    half = len(arrays) // 2
    items = list(arrays.items())
    for name, part in zip(names, (items[:half], items[half:]), strict=True):
        convert(folder / name, dict(part))
    places = {key: names[index >= half] for index, key in enumerate(arrays)}
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_sharded_files_of_each_type_are_widened(families, tmp_path, kind):
    weights = load_weights(families / "qwen2")
    (tmp_path / "config.json").write_bytes((families / "qwen2" / "config.json").read_bytes())

    def convert(path, arrays):
        write_safetensors(path, arrays, kind=kind)

    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    write_shards(tmp_path, dict(weights.params.items()), convert, names)
    # What lies beside the files that the index names isn't the model.
    write_safetensors(tmp_path / "consolidated.safetensors", {"model.norm.weight": np.zeros(16, np.float32)})
    flat = weights.params.flat
    rounded = {
        "F32": flat,
        "F16": flat.astype(np.float16).astype(np.float32),
        "BF16": (bfloat16(flat).astype(np.uint32) << 16).view(np.float32),
    }[kind]
    np.testing.assert_array_equal(load_weights(tmp_path).params.flat, rounded)
    assert (np.abs(rounded - flat).max() > 0) == (kind != "F32")


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even():
    one = np.float32(1)
    step = np.float32(2**-7)
    values = np.array(
        [one, one + step / 2, one + 3 * step / 2, one + 0.49 * step, one + 0.51 * step, -one - 0.51 * step]
    )
    found = (bfloat16(values.astype(np.float32)).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(found, [1, 1, 1 + 2 * step, 1, 1 + step, -1 - step])
