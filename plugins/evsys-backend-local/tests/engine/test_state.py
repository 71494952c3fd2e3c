import json

import numpy as np
import pytest

from evsys.errors import ConfigError, DataError
from evsys_backend_local.engine.adam import AdamParams
from evsys_backend_local.engine.state import load_state, save_state, save_weights
from evsys_backend_local.models.safetensors import SafetensorsFile, write_safetensors


def step(engine, model, examples, loss):
    engine.forward_backward(model, examples, loss)
    engine.optim_step(model, AdamParams(learning_rate=0.05))


@pytest.mark.parametrize("full", [False, True])
def test_training_goes_on_from_a_saved_state_with_the_same_bits(
    make_engine, tmp_path, examples, curved_loss, full
):
    engine = make_engine(np.float32)
    model = engine.create_full() if full else engine.create_adapter(rank=3, seed=1)
    step(engine, model, examples, curved_loss)
    engine.forward_backward(model, examples, curved_loss)  # an open gradient is part of the state
    facts = save_state(model, tmp_path / "step")
    assert facts["optimizer_steps"] == 1
    assert facts["digest"] == model.digest
    assert all((tmp_path / "step" / name).is_file() for name in facts["files"])
    other = engine.create_full() if full else engine.create_adapter(rank=3, seed=2)
    load_state(other, tmp_path / "step", with_optimizer=True)
    for name in ("m", "v"):
        np.testing.assert_array_equal(getattr(other.adam, name), getattr(model.adam, name))
    for one in (model, other):
        engine.optim_step(one, AdamParams(learning_rate=0.05))
        step(engine, one, examples, curved_loss)
    np.testing.assert_array_equal(model.params.flat, other.params.flat)
    assert model.adam.step == other.adam.step == 3
    assert (model.version, other.version) == (3, 2)  # whoever restores says how many steps are this run's


@pytest.mark.parametrize("full", [False, True])
def test_the_running_mean_is_that_of_the_weights_and_is_saved_with_them(
    make_engine, tmp_path, examples, curved_loss, full
):
    engine = make_engine(np.float32)
    model = engine.create_full() if full else engine.create_adapter(rank=3, seed=1)
    wanted = model.params.flat.astype(np.float64)
    frozen = model.averaged(0.3)
    for rate in (0.25, 0.01):
        step(engine, model, examples, curved_loss)
        wanted += rate * (model.params.flat - wanted)
        before, frozen = frozen, model.averaged(rate)
    params = frozen.weights.params if full else frozen.lora.params
    np.testing.assert_allclose(params.flat, wanted, rtol=1e-6, atol=1e-8)
    assert frozen.digest != before.digest  # a snapshot stays what it was
    save_state(model, tmp_path)
    other = engine.create_full() if full else engine.create_adapter(rank=3, seed=2)
    load_state(other, tmp_path, with_optimizer=True)
    for one in (model, other):
        step(engine, one, examples, curved_loss)
    assert other.averaged(0.5).digest == model.averaged(0.5).digest
    assert load_alone(engine, tmp_path, full=full).average is None
    scored = engine.compute_logprobs(frozen, [[1, 2, 3, 4]])[0]
    alone = load_alone(engine, tmp_path, full=full)
    alone.load_params(
        {name: array.astype(np.float32) for name, array in views(alone, wanted).items()}, what="x"
    )
    np.testing.assert_allclose(engine.compute_logprobs(alone, [[1, 2, 3, 4]])[0], scored, atol=1e-5)


def load_alone(engine, directory, *, full):
    model = engine.create_full() if full else engine.create_adapter(rank=3, seed=2)
    load_state(model, directory, with_optimizer=False)
    return model


def views(model, flat):
    edges = np.cumsum([array.size for _, array in model.params.items()])
    return {
        name: part.reshape(array.shape)
        for (name, array), part in zip(model.params.items(), np.split(flat, edges[:-1]), strict=True)
    }


def test_the_mean_of_weights_that_stay_what_they_are_is_those_weights(make_engine):
    model = make_engine(np.float32).create_adapter(rank=3, seed=1)
    assert [model.averaged(0.37).digest for _ in range(3)] == [model.digest] * 3


def test_weights_alone_start_a_fresh_optimiser(make_engine, tmp_path, examples, curved_loss):
    engine = make_engine(np.float32)
    model = engine.create_adapter(rank=3)
    step(engine, model, examples, curved_loss)
    save_weights(model.snapshot(), tmp_path)
    other = engine.create_adapter(rank=3, seed=9)
    load_state(other, tmp_path, with_optimizer=False)
    np.testing.assert_array_equal(model.params.flat, other.params.flat)
    assert other.version == 0
    with pytest.raises(DataError, match="missing"):
        load_state(other, tmp_path, with_optimizer=True)


def test_adapters_have_the_names_and_settings_that_peft_reads(make_engine, tmp_path):
    engine = make_engine(np.float32)
    engine.weights.name = "some/base"
    save_weights(engine.create_adapter(rank=3, alpha=6, targets=("q_proj", "down_proj")), tmp_path)
    file = SafetensorsFile(tmp_path / "adapter_model.safetensors")
    assert "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight" in file
    assert file["base_model.model.model.layers.0.mlp.down_proj.lora_B.weight"].shape == (12, 3)
    config = json.loads((tmp_path / "adapter_config.json").read_text(encoding="utf-8"))
    assert config["base_model_name_or_path"] == "some/base"
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (3, 6.0, ["q_proj", "down_proj"])


@pytest.mark.parametrize("settings", [{"rank": 2}, {"alpha": 8.0}, {"targets": ("q_proj",)}])
def test_a_checkpoint_with_other_lora_settings_is_refused(make_engine, tmp_path, settings):
    engine = make_engine(np.float32)
    save_weights(engine.create_adapter(rank=3), tmp_path)
    with pytest.raises(ConfigError, match="other LoRA settings"):
        load_state(engine.create_adapter(**{"rank": 3, **settings}), tmp_path, with_optimizer=False)


def test_a_checkpoint_of_another_base_model_is_refused(make_engine, tmp_path):
    save_weights(make_engine(np.float32).create_adapter(rank=3), tmp_path)
    other = make_engine(np.float32, hidden=11).create_adapter(rank=3)
    with pytest.raises(ConfigError, match="does not fit the base model"):
        load_state(other, tmp_path, with_optimizer=False)


def test_a_checkpoint_with_nan_is_refused(make_engine, tmp_path):
    engine = make_engine(np.float32)
    model = engine.create_adapter(rank=3)
    save_weights(model, tmp_path)
    path = tmp_path / "adapter_model.safetensors"
    arrays = {name: SafetensorsFile(path)[name].copy() for name in SafetensorsFile(path)}
    next(iter(arrays.values()))[0] = np.nan
    write_safetensors(path, arrays)
    before = model.params.flat.copy()
    with pytest.raises(DataError, match="NaN"):
        load_state(model, tmp_path, with_optimizer=False)
    np.testing.assert_array_equal(model.params.flat, before)


@pytest.mark.parametrize(
    ("arrays", "metadata", "message"),
    [
        ({}, None, "says '' steps"),
        ({}, {"step": "-1"}, "says '-1' steps"),
        ({"m": np.full(4, np.nan, np.float32)}, {"step": "1"}, "m is missing or has another size"),
        ({"v": np.nan}, {"step": "1"}, "v holds NaN"),
    ],
)
def test_a_damaged_optimiser_is_refused(make_engine, tmp_path, arrays, metadata, message):
    model = make_engine(np.float32).create_adapter(rank=3)
    save_state(model, tmp_path)
    path = tmp_path / "optimizer.safetensors"
    saved = {name: SafetensorsFile(path)[name].copy() for name in SafetensorsFile(path)}
    for name, value in arrays.items():
        saved[name] = value if isinstance(value, np.ndarray) else np.full_like(saved[name], value)
    write_safetensors(path, saved, metadata)
    with pytest.raises(DataError, match=message):
        load_state(model, tmp_path, with_optimizer=True)


def test_an_empty_folder_is_an_error(make_engine, tmp_path):
    engine = make_engine(np.float32)
    with pytest.raises(DataError, match="adapter"):
        load_state(engine.create_adapter(rank=2), tmp_path, with_optimizer=False)
    with pytest.raises(DataError, match="missing"):
        load_state(engine.create_full(), tmp_path, with_optimizer=False)
