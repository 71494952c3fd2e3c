"""Params: what is refused, with the reason, and what a schema tells."""

import pytest

from evsys import Registry, current_registry
from evsys.errors import ConfigError
from evsys_algo_rl import RL, RLParams
from evsys_backend_mock import MockBackend
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.losses import BUILTIN_LOSSES
from evsys_runtime.losses.policy import KL_ESTIMATORS
from evsys_runtime.training.params import TrainingParams


def build(**params):
    return current_registry().build("algorithm", "rl", params)


def test_groups_and_samples_have_the_names_of_other_tools_too():
    algorithm = build(groups_per_step=3, num_samples=5)
    assert (algorithm.config.batch_size, algorithm.config.group_size) == (3, 5)


def test_one_rollout_a_task_is_refused_unless_nothing_is_compared():
    with pytest.raises(ConfigError, match="'group_size' 1 leaves nothing to compare a rollout with"):
        build(group_size=1)
    assert build(group_size=1, advantage="none").config.group_size == 1


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"loss": "dro", "clip_high": 0.2}, "loss 'dro' knows beta; 'clip_high' means nothing to it"),
        ({"clip_low": 0.1}, "loss 'importance_sampling' has no settings; 'clip_low' means nothing to it"),
        ({"loss": "ppo", "loss_params": {"clip": 0.2}}, "'clip' means nothing to it"),
        ({"loss": "cross_entropy"}, "algorithm `sft` trains with it"),
        ({"overlong_buffer": 3}, "'overlong_buffer' means something with overlong: penalise only"),
        ({"mask_token_ratio": [1.5, 2.0]}, "0 <= low < 1 < high"),
        ({"mask_sequence_ratio": [0.5]}, "mask_sequence_ratio"),
        ({"ratio_cap": 0.5}, "ratio_cap"),
        ({"advantage": "median"}, "advantage"),
        ({"temperature": 0}, "temperature"),
        ({"steps": 2, "epochs": 1}, "both 'steps' and 'epochs'"),
    ],
)
def test_what_makes_no_sense_is_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        build(**params)


def test_a_loss_that_nobody_has_is_told_before_anything_is_prepared():
    from evsys.types import ModelSpec

    model = ModelSpec(name="evsys/tiny")
    assert [*RL(loss="ppo").validate_model(model)] == []
    (complaint,) = RL(loss="pppo").validate_model(model)
    assert "pppo" in complaint


def test_every_param_is_explained():
    schema = current_registry().schema("algorithm", "rl")["properties"]
    assert all(prop.get("description") for prop in schema.values())
    own = set(schema) - set(current_registry().schema("algorithm", "sft")["properties"])
    assert {"group_size", "advantage", "loss", "loss_agg", "kl_coef", "max_staleness", "num_samples"} <= own


def test_defaults_are_those_of_the_training_page():
    params = RLParams()
    assert (params.advantage, params.loss_agg, params.group_size) == ("mean", "token", 8)
    assert (params.temperature, params.kl_coef, params.entropy_coef) == (1.0, 0.0, 0.0)
    assert isinstance(params, TrainingParams)


def test_names_are_those_of_the_losses():
    from evsys_algo_rl.params import BUILTIN_SETTINGS
    from evsys_algo_rl.params import KL_ESTIMATORS as OFFERED

    assert OFFERED == KL_ESTIMATORS
    assert set(BUILTIN_SETTINGS) == set(BUILTIN_LOSSES) - {"cross_entropy"}


CONFIG = """
version: 1
name: held-near
metadata: {hypothesis: h}
run:
  data: {source_kind: jsonl, path: tasks.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: rl, params: {steps: 1, kl_coef: KL}}
  backend: {kind: plain}
"""


@pytest.mark.parametrize(("kl_coef", "refused"), [("0.01", True), ("0.0", False)])
def test_a_backend_that_tells_no_logprobs_of_prompts_is_refused_where_a_reference_is_needed(
    tmp_path, kl_coef, refused
):
    class Plain(MockBackend):
        capabilities = MockBackend.capabilities - {"prompt_logprobs"}

    task = '{"task_id": "a", "instruction": "b", "verifier": {"name": "exact_match", "expected": "c"}}'
    (tmp_path / "tasks.jsonl").write_text(task + "\n", encoding="utf-8")
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.replace("KL", kl_coef), encoding="utf-8")
    registry = Registry()
    registry.register("backend", "plain", Plain)
    try:
        load_experiment(path, registry=registry)
        problems = []
    except ConfigError as error:
        problems = [p for p in error.problems if p.path.endswith("algorithm.params.kl_coef")]
    assert bool(problems) == refused
    assert all("plain" in problem.message and "prompt_logprobs" in problem.message for problem in problems)
