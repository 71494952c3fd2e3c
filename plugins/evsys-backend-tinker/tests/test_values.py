"""Values between evsys and the wire that need no client: settings, names, logprobs, states, fingerprints, errors."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_server import small_server

from evsys.errors import BackendError
from evsys.types import Checkpoint, Datum, ModelSpec
from evsys_backend_tinker import convert, sdk
from evsys_backend_tinker.http_json import JsonApi
from evsys_backend_tinker.meter import Meter
from evsys_backend_tinker.selftest import Fingerprint
from evsys_backend_tinker.state import checkpoint_resource, delete, fresh_name, set_ttl, starting_point
from evsys_backend_tinker.targets import target_flags
from evsys_runtime.accounting.prices import Price

PATH = "tinker://abc:train:0/weights/step-4"


def test_groups_of_layers_are_what_the_protocol_trains():
    assert target_flags(["all-linear"]) == {"train_mlp": True, "train_attn": True, "train_unembed": False}
    assert target_flags(["q_proj", "k_proj", "v_proj", "o_proj"]) == {
        "train_mlp": False,
        "train_attn": True,
        "train_unembed": False,
    }
    assert target_flags(["all-linear", "lm_head"])["train_unembed"]


@pytest.mark.parametrize(
    ("loss", "params", "expected"),
    [
        ("cross_entropy", None, None),
        ("importance_sampling", {}, None),
        ("ppo", {}, {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}),
        (
            "ppo",
            {"clip_low": 0.1, "dual_clip": 3.0},
            {"clip_low_threshold": 0.9, "clip_high_threshold": 1.28, "dual_clip": 3.0},
        ),
        ("cispo", {"clip_high": 4.0}, {"clip_low_threshold": 0.0, "clip_high_threshold": 5.0}),
    ],
)
def test_a_losss_settings_are_sent_whole_as_bounds_of_the_ratio(loss: str, params, expected):
    assert convert.loss_config(loss, params) == expected


@given(st.integers(0, 2**63 - 1), st.integers(0, 64))
def test_samples_of_a_seeded_call_have_seeds_of_their_own(seed: int, index: int):
    assert convert.derived_seed(seed, 0) == seed
    assert 0 <= convert.derived_seed(seed, index + 1) < 2**31
    assert convert.derived_seed(seed, index + 1) != convert.derived_seed(seed, index + 2)


@pytest.mark.parametrize(
    "given_", [[None, -1.0, -2.0], [-1.0, -2.0], [math.nan, -1.0, -2.0], [-9.0, -1.0, -2.0]]
)
def test_prompt_logprobs_are_one_a_token_whatever_a_server_does_with_the_first(given_):
    assert convert.prompt_logprobs(given_, 3) == [None, -1.0, -2.0]


@pytest.mark.parametrize("given_", [None, [-1.0], [-1.0] * 5])
def test_prompt_logprobs_of_another_length_are_refused(given_):
    with pytest.raises(BackendError, match="for a prompt of 3 tokens"):
        convert.prompt_logprobs(given_, 3)


def test_empty_cells_of_a_table_of_likeliest_tokens_are_left_out():
    table = [None, [(5, -0.5), (0, -99_999.0)], [(7, -0.1), (8, -3.0)]]
    assert convert.top_prompt_logprobs(table, 3) == [None, {5: -0.5}, {7: -0.1, 8: -3.0}]


class _Tensor:
    def __init__(self, values) -> None:
        self.values = np.array(values)

    def to_numpy(self):
        return self.values


class _Output:
    def __init__(self, logprobs, metrics) -> None:
        self.loss_fn_outputs = [{"logprobs": _Tensor(values)} for values in logprobs]
        self.metrics = metrics


def _datum(count: int) -> Datum:
    return Datum(
        tokens=np.arange(count),
        loss_inputs={"target_tokens": np.arange(count), "weights": np.full(count, 0.5, np.float32)},
    )


def test_a_loss_that_a_server_does_not_tell_is_computed_from_its_logprobs():
    output = _Output([[-1.0, -2.0], [-4.0]], {"clock_cycle:unique": 3.0})
    result = convert.forward_result(output, [_datum(2), _datum(1)], "cross_entropy")
    assert result.loss == pytest.approx(3.5)
    assert result.tokens == 3
    assert result.metrics == {"clock_cycle": 3.0}
    told = convert.forward_result(
        _Output([[-1.0, -2.0], [-4.0]], {"loss:sum": 9.0}), [_datum(2), _datum(1)], "cross_entropy"
    )
    assert told.loss == 9.0
    assert told.metrics == {}


def test_metrics_of_a_loss_are_those_of_the_whole_batch_whatever_the_client_makes_of_its_parts():
    data = [
        Datum(
            tokens=np.arange(len(sampled)),
            loss_inputs={
                "target_tokens": np.arange(len(sampled)),
                "logprobs": np.array(sampled, np.float32),
                "advantages": np.ones(len(sampled), np.float32),
            },
        )
        for sampled in ([-1.0, -2.0], [-4.5])
    ]
    told = {"loss:sum": 9.0, "ratio_mean:mean": 7.0, "kl_k1:mean": 0.1, "clock_cycle:unique": 3.0}
    result = convert.forward_result(_Output([[-1.0, -2.0], [-4.0]], told), data, "ppo")
    assert result.loss == 9.0
    assert result.metrics["kl_k1"] == pytest.approx(-0.5 / 3)  # by tokens, not by examples
    assert result.metrics["ratio_mean"] == pytest.approx((2 + math.exp(0.5)) / 3)
    assert result.metrics["clock_cycle"] == 3.0


def test_a_mask_goes_to_a_server_beside_the_advantages_where_its_loss_has_one():
    pytest.importorskip("tinker")
    datum = Datum(
        tokens=np.arange(2),
        loss_inputs={
            "target_tokens": np.arange(2),
            "weights": np.array([0.0, 0.3], np.float32),
            "advantages": np.array([1.0, 2.0], np.float32),
            "logprobs": np.full(2, -1.0, np.float32),
        },
    )

    def sent(loss: str, one: Datum) -> dict[str, list[float]]:
        [found] = convert.data_for([one], loss)
        return {name: tensor.to_numpy().tolist() for name, tensor in found.loss_fn_inputs.items()}

    assert "weights" not in sent("ppo", datum)
    assert sent("ppo", datum)["advantages"] == pytest.approx([0.0, 0.6])
    for loss in ("dro", "gspo"):
        assert sent(loss, datum)["advantages"] == [1.0, 2.0]
        assert sent(loss, datum)["weights"] == pytest.approx([0.0, 0.3])
    del datum.loss_inputs["weights"]
    assert "weights" not in sent("dro", datum)


def test_a_logprob_that_was_not_computed_is_no_certain_token():
    datum = Datum(
        tokens=np.arange(4),
        loss_inputs={
            "target_tokens": np.arange(4),
            "weights": np.array([0.0, 1.0, 1.0, 1.0], np.float32),
            "advantages": np.array([1.0, 0.0, 0.0, 1.0], np.float32),
            "logprobs": np.full(4, -1.0, np.float32),
        },
    )
    output = _Output([[0.0, 0.0, -3.0, 0.0]], {"loss:sum": 1.0})
    [policy] = convert.forward_result(output, [datum], "ppo").logprobs
    np.testing.assert_array_equal(policy, [np.nan, np.nan, -3.0, 0.0])
    [weighted] = convert.forward_result(output, [datum], "cross_entropy").logprobs
    np.testing.assert_array_equal(weighted, [np.nan, 0.0, -3.0, 0.0])
    [bare] = convert.forward_result(output, [datum], None).logprobs
    np.testing.assert_array_equal(bare, [0.0, 0.0, -3.0, 0.0])


def test_an_answer_of_another_shape_is_refused():
    with pytest.raises(BackendError, match="answered for 1 data of 2"):
        convert.forward_result(_Output([[-1.0, -2.0]], {}), [_datum(2), _datum(1)], None)
    with pytest.raises(BackendError, match="3 logprobs for datum 0, which has 2 targets"):
        convert.forward_result(_Output([[-1.0, -2.0, -3.0]], {}), [_datum(2)], None)


@pytest.mark.parametrize("name", ["grad_norm", "grad_norm:mean", "skyrl.ai/grad_norm"])
def test_the_gradients_norm_is_known_by_its_names(name: str):
    result = convert.optim_result(SimpleNamespace(metrics={name: 2.5, "step_time:mean": 0.1}))
    assert result.grad_norm == 2.5
    assert result.metrics == {"step_time": 0.1}


def test_a_state_is_addressed_as_the_protocol_does():
    assert checkpoint_resource(PATH) == "/api/v1/training_runs/abc:train:0/checkpoints/weights/step-4"
    with pytest.raises(ValueError, match="is not tinker://RUN/weights/NAME"):
        checkpoint_resource("tinker://abc/elsewhere/x")
    assert fresh_name(4) != fresh_name(4)


def test_a_states_time_and_end_are_asked_of_the_server():
    place = checkpoint_resource(PATH)
    with small_server({f"{place}/ttl": (200, {}), place: (404, {"error": "gone"})}) as small:
        api = JsonApi(base_url=small.base_url, key="tml-x")
        assert set_ttl(api, PATH, None, seconds=5) is None
        assert delete(api, PATH, seconds=5) is None
        small.answers[place] = (500, {"error": "no"})
        assert delete(api, PATH, seconds=5) == "it answers 500: no"
    assert [(method, body) for method, _, _, body in small.asked][:2] == [
        ("PUT", b'{"ttl_seconds": null}'),
        ("DELETE", b""),
    ]


def test_a_run_starts_where_its_checkpoint_or_its_address_says(tmp_path: Path):
    model = ModelSpec(name="evsys/tiny")
    assert starting_point(model, None) is None
    state = {"backend": "tinker", "path": PATH}
    found = starting_point(model, Checkpoint(step=4, directory=tmp_path, state=state, with_optimizer=False))
    assert (found.path, found.with_optimizer, found.step) == (PATH, False, 4)
    found = starting_point(ModelSpec(name="evsys/tiny", load_checkpoint_path=PATH), None)
    assert (found.path, found.with_optimizer, found.step) == (PATH, True, 0)
    assert not starting_point(ModelSpec(name="evsys/tiny", init_from_checkpoint=PATH), None).with_optimizer
    with pytest.raises(BackendError, match="another backend saved it"):
        starting_point(model, Checkpoint(step=4, directory=tmp_path, state={"backend": "mock"}))


def test_a_fingerprint_tells_other_weights_from_the_same_ones():
    made = Fingerprint.of_batch([_datum(100)])
    assert len(made.tokens) == 64
    noted = made.noted(np.full(64, -1.0, np.float32))
    read = Fingerprint.read(noted)
    assert read.distance(made.noted(np.full(64, -1.0))) == 0
    assert read.distance(made.noted(np.full(64, -1.25))) == 0.25
    assert Fingerprint.read({}) is None
    assert Fingerprint.of_batch([]) is None


def test_costs_are_unknown_without_a_price_and_never_0():
    assert Meter().training_cost(1_000_000) is None
    assert Meter().sampling_cost(10, 10) is None
    assert Meter(price=Price(prompt=1.0, completion=2.0)).training_cost(1_000_000) is None
    meter = Meter(price=Price(prompt=1.0, completion=2.0, training=3.0))
    assert meter.training_cost(2_000_000) == pytest.approx(6.0)
    assert meter.sampling_cost(1_000_000, 500_000) == pytest.approx(2.0)


def _wrapped(inner: Exception) -> Exception:
    try:
        raise ValueError("Error retrieving result") from inner
    except ValueError as error:
        return error


class _Status(Exception):
    def __init__(self, status: int, text: str = "", body: object = None) -> None:
        super().__init__(text)
        self.status_code = status
        self.body = body


class RetryableException(Exception):
    """As the client has it."""


@pytest.mark.parametrize(
    ("error", "lost", "rejected"),
    [
        (_Status(410), True, False),
        (_wrapped(_Status(404)), True, False),
        (RetryableException("Promise expired"), True, False),
        (RuntimeError("A previous request failed; this TrainingClient is poisoned"), True, False),
        (_Status(400), False, True),
        (_Status(500), False, False),
        (ValueError("nothing to do with it"), False, False),
    ],
)
def test_errors_of_the_client_are_told_apart(error: Exception, lost: bool, rejected: bool):
    assert (sdk.is_lost(error), sdk.is_rejected(error)) == (lost, rejected)


def test_an_error_is_said_in_the_servers_words():
    assert sdk.error_line(_Status(400, "Error code: 400", {"error": "no such token"})) == "no such token"
    text = "Request failed: disk full for self.request_id='x' and expected type self.model_cls=None"
    assert sdk.error_line(Exception(text)) == "disk full"


@pytest.mark.parametrize("outcome", ["plain", 3, None])
def test_what_has_no_result_is_the_result(outcome):
    assert sdk.resolve(outcome) == outcome


def test_what_has_a_result_is_resolved():
    class Future:
        def result(self):
            return "resolved"

    assert sdk.resolve(Future()) == "resolved"
