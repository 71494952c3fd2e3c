"""Stretched positions: transformers' numbers are in `test_families`; here is the way from settings to divisors and back."""

import numpy as np
import pytest

from evsys.errors import DataError
from evsys_backend_local.engine import ops
from evsys_backend_local.models import rope

LLAMA31 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_short_waves_are_kept_long_ones_stretched_and_those_between_lie_between():
    factors = rope.factors_of(LLAMA31, 128, 500000.0, "x")
    assert len(factors) == 64
    assert factors[0] == 1
    assert factors[-1] == 8
    assert list(factors) == sorted(factors)
    assert any(1 < factor < 8 for factor in factors)


def test_linear_stretches_every_wave_alike():
    assert rope.factors_of({"type": "linear", "factor": 4}, 6, 10000.0, "x") == (4.0, 4.0, 4.0)
    cos, sin = ops.rope_table(9, 6, 10000.0, np.dtype(np.float64), (4.0, 4.0, 4.0))
    plain_cos, plain_sin = ops.rope_table(3, 6, 10000.0, np.dtype(np.float64))
    np.testing.assert_allclose(cos[::4], plain_cos, rtol=1e-12)
    np.testing.assert_allclose(sin[::4], plain_sin, rtol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"rope_type": "default", "rope_theta": 5.0}])
def test_without_a_kind_nothing_is_stretched(settings):
    assert rope.factors_of(settings, 6, 10000.0, "x") is None


def test_numbers_that_make_no_sense_are_named():
    with pytest.raises(DataError, match="low below high"):
        rope.factors_of({**LLAMA31, "low_freq_factor": 5.0}, 8, 10000.0, "x")


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_settings_of_llama_3_are_found_again_from_its_divisors(factor):
    factors = rope.factors_of({**LLAMA31, "factor": factor}, 64, 500000.0, "x")
    stored = np.asarray(factors, np.float32).tolist()
    assert rope.settings_of(stored, 64, 500000.0) == {**LLAMA31, "factor": pytest.approx(factor)}
    assert rope.settings_of((4.0,) * 32, 64, 500000.0) == {"rope_type": "linear", "factor": 4.0}


def test_divisors_that_no_settings_give_are_told_apart():
    factors = rope.factors_of({**LLAMA31, "high_freq_factor": 2.0}, 64, 500000.0, "x")
    assert rope.settings_of(factors, 64, 500000.0) is None
