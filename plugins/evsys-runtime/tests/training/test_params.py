"""Parameters of training: one rule for how long, defaults with reasons, and what is sent to a backend."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys import schema_for_config, structure
from evsys.errors import ConfigError
from evsys.types import AdamParams, LoraSpec
from evsys_runtime.training.params import TrainingParams, adam_params, lora_spec, resolve_steps


def test_steps_win_over_nothing_and_every_batch_is_full():
    assert resolve_steps(TrainingParams(steps=7, batch_size=10), rows=3) == (7, None)


@given(rows=st.integers(1, 500), batch_size=st.integers(1, 64), epochs=st.floats(0.1, 5))
def test_epochs_take_as_many_rows_as_they_say(rows, batch_size, epochs):
    steps, limit = resolve_steps(TrainingParams(epochs=epochs, batch_size=batch_size), rows)
    assert limit == max(round(epochs * rows), 1)
    assert (steps - 1) * batch_size < limit <= steps * batch_size


def test_without_steps_and_epochs_it_is_one_epoch():
    assert resolve_steps(TrainingParams(batch_size=10), rows=25) == (3, 25)


def test_steps_and_epochs_together_are_refused():
    with pytest.raises(ConfigError, match="both 'steps' and 'epochs'"):
        structure(TrainingParams, {"steps": 1, "epochs": 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [("lora_rank", 0), ("learning_rate", -1e-3), ("beta1", 1.0), ("batch_size", 0), ("steps", 0), ("epochs", 0),
     ("lr_schedule", "cubic"), ("grad_clip", -1.0), ("save_every", -1), ("target_modules", [])],
)  # fmt: skip
def test_a_value_that_makes_no_sense_is_refused_with_its_path(key, value):
    with pytest.raises(ConfigError, match=rf"\$\.{key}"):
        structure(TrainingParams, {key: value})


def test_every_field_has_help_and_every_measured_default_its_source():
    properties = schema_for_config(TrainingParams)["properties"]
    assert all(part.get("description") for part in properties.values())
    for name in (
        "lora_rank",
        "lora_alpha",
        "target_modules",
        "learning_rate",
        "lr_schedule",
        "beta2",
        "grad_clip",
    ):
        assert TrainingParams.__attrs_attrs__
        assert "http" in str(properties[name]), name


def test_the_optimiser_gets_every_setting_and_the_defaults_are_ours():
    assert adam_params(TrainingParams(), 1e-3) == AdamParams(
        learning_rate=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0, grad_clip=1.0
    )


def test_what_is_trained_follows_from_the_params():
    assert lora_spec(TrainingParams()) == LoraSpec(rank=32, alpha=32.0, targets=("all-linear",))
    given_list = structure(TrainingParams, {"lora_rank": None, "target_modules": ["q_proj", "v_proj"]})
    assert lora_spec(given_list) == LoraSpec(rank=None, alpha=32.0, targets=("q_proj", "v_proj"))
