"""What a loss is given has one precision, wherever the model trains."""

import numpy as np

from evsys.types import Datum
from evsys_runtime.training.precision import in_float32


def datum(**inputs):
    return Datum(
        tokens=np.arange(3), loss_inputs={"target_tokens": np.arange(3), **inputs}, meta={"row_id": "r"}
    )


def test_wider_floats_are_rounded_and_the_rest_stays():
    wide = np.array([0.1, 1 / 3, -2.0])
    made = in_float32(datum(advantages=wide, weights=np.ones(3, np.float32)))
    assert made.loss_inputs["advantages"].dtype == np.float32
    np.testing.assert_array_equal(made.loss_inputs["advantages"], wide.astype(np.float32))
    assert made.loss_inputs["target_tokens"].dtype == np.int64
    assert made.meta == {"row_id": "r"}
    assert wide.dtype == np.float64


def test_what_is_narrow_already_is_the_same_object():
    narrow = datum(weights=np.ones(3, np.float32))
    assert in_float32(narrow) is narrow
