"""What configs are compared by: values by their path, without what changes no result."""

import pytest

from evsys_record.leaves import arm_leaves


@pytest.mark.parametrize(
    "place", ["backend", "teacher.backend", "reference.backend", "teacher.inference", "reference.inference"]
)
def test_where_a_model_is_isnt_among_them_and_which_one_it_is_is(place):
    spec = {"kind": "k", "params": {"base_url": "http://a", "api_key_env": "KEY", "model": "m"}}
    run = {"name": "a", "tags": ["x"], "seed": 3}
    inside = run
    *outer, last = place.split(".")
    for key in outer:
        inside = inside.setdefault(key, {})
    inside[last] = spec
    assert arm_leaves(run) == {"seed": 3, f"{place}.kind": "k", f"{place}.params.model": "m"}


def test_how_a_service_is_asked_and_what_it_costs_isnt_among_them():
    params = {
        "model": "m",
        "max_retries": 2,
        "timeout_seconds": 3.0,
        "price": {"prompt": 1, "completion": 2},
        "extra": {"max_tokens": 0},
    }
    found = arm_leaves({"teacher": {"inference": {"kind": "k", "params": params}}})
    inside = "teacher.inference"
    assert found == {
        f"{inside}.kind": "k",
        f"{inside}.params.model": "m",
        f"{inside}.params.extra.max_tokens": 0,
    }


def test_a_param_of_the_same_name_elsewhere_stays():
    found = arm_leaves(
        {"algorithm": {"params": {"base_url": "x", "price": 1}}, "backend": {"params": {"price": 2}}}
    )
    assert found == {
        "algorithm.params.base_url": "x",
        "algorithm.params.price": 1,
        "backend.params.price": 2,
    }
