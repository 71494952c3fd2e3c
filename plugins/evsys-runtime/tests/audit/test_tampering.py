"""What was changed after the fact, an audit finds and names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evsys.errors import StoreError
from evsys_record.evidence_hashes import evidence_hashes
from evsys_record.hashing import file_digest
from evsys_runtime.audit.auditing import audit_experiment


def edit(path: Path, change: Callable[[Any], None]) -> None:
    tree = json.loads(path.read_text(encoding="utf-8"))
    change(tree)
    path.write_text(json.dumps(tree), encoding="utf-8")


def reseal(folder: Path) -> None:
    """Bring the hashes of conclusion and evidence in line with the files, as someone does who knows of them."""
    path = folder / "experiment.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    tree["evidence_hashes"] = evidence_hashes(folder)
    tree["conclusion_hash"] = file_digest(folder / "conclusion.json")
    path.write_text(json.dumps(tree), encoding="utf-8")


def differing(folder: Path, *, hashes: bool = False) -> dict[str, str]:
    """`part: about: name` of each check that differs, with the detail; by default as if the hashes of all files had been changed, too."""
    if not hashes:
        reseal(folder)
    audit = audit_experiment(folder)
    assert audit.passed == (audit.differs == 0)
    return {
        f"{check.part}: {check.about}: {check.name}": check.detail or ""
        for check in audit.checks
        if check.state == "differs"
    }


@pytest.mark.parametrize(
    ("kind", "name", "by"),
    [
        ("two arms", "effect", 0.01),
        ("two arms", "before", 0.01),
        ("two arms", "after", -0.01),
        ("two arms", "p_value", 0.02),
        ("two arms", "p_corrected", 0.001),
        ("two arms", "low", 0.05),
        ("two arms", "high", -0.05),
        ("two arms", "n_tasks", 1),
        ("two arms", "n_seeds", 1),
        ("two arms", "missing_samples", 1),
        ("binary", "low", 0.001),
        ("five runs", "high", 0.02),
        ("five runs", "p_value", 0.02),
    ],
)
def test_a_number_that_was_changed_in_the_conclusion_is_found(record_of, kind, name, by):
    folder = record_of(kind)
    edit(
        folder / "conclusion.json",
        lambda tree: tree["comparisons"][0].update({name: tree["comparisons"][0][name] + by}),
    )
    arm = json.loads((folder / "conclusion.json").read_text(encoding="utf-8"))["comparisons"][0]["arm"]
    assert f"numbers: comparisons: {arm}: {name}" in differing(folder)


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("two recipes", "SUPPORTED"),
        ("missing samples", "SUPPORTED"),
        ("two arms", "SUPPORTED"),
        ("invalid", "REFUTED"),
    ],
)
def test_a_verdict_that_was_flipped_is_found(record_of, kind, verdict):
    folder = record_of(kind)
    edit(folder / "conclusion.json", lambda tree: tree.update(verdict=verdict))
    ledger = [] if kind == "invalid" else ["files: ledger of looks: verdict"]  # which has tested looks only
    assert [*differing(folder)] == [*ledger, "verdict: experiment: verdict"]


def test_an_outcome_that_hangs_on_missing_samples_cannot_be_turned_into_a_win(record_of):
    folder = record_of("missing samples")

    def win(tree):
        tree["verdict"] = "SUPPORTED"
        tree["comparisons"][0]["outcome"] = "win"
        tree["claims"][0]["outcome"] = "supported"

    edit(folder / "conclusion.json", win)
    assert [*differing(folder)] == [
        "files: ledger of looks: verdict",
        "verdict: comparisons: run: outcome",
        "verdict: claim about the checkpoint: run: outcome",
    ]


def test_a_claim_about_a_checkpoint_cannot_be_turned_into_one_about_a_recipe(record_of):
    folder = record_of("binary")
    edit(folder / "conclusion.json", lambda tree: tree.update(subject="recipe"))
    assert [*differing(folder)] == ["verdict: experiment: subject"]


def test_a_confirmation_that_was_changed_is_found(record_of):
    folder = record_of("confirmed")
    edit(folder / "conclusion.json", lambda tree: tree["confirmed"]["comparison"].update(effect=0.5))
    assert "numbers: confirmed: learning_rate-0.1: effect" in differing(folder)


def change_rollout(folder: Path, run: str, value: float) -> None:
    path = folder / "runs" / run / "validation" / "rollouts.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    changed = next(
        line for line in lines if line["step"] > 0 and line["rollout"]["score"].get("value") != value
    )
    changed["rollout"]["score"]["value"] = value
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def test_a_rollout_whose_reward_was_changed_is_found_in_its_run_and_in_the_comparison(record_of):
    folder = record_of("binary")
    change_rollout(folder, "run-s0", 0.0)
    found = differing(folder)
    assert found["rollouts: run-s0: val at step 20: rewards"].startswith(
        "the rollouts have other rewards than the result of t00"
    )
    assert "numbers: comparisons: run: after" in found


def test_a_rollout_file_that_was_removed_is_named(record_of):
    folder = record_of("two arms")
    (folder / "runs" / "learning_rate-0.1-s0" / "validation" / "rollouts.jsonl").unlink()
    missing = "no rollouts on record have the rewards of this scoring"
    assert differing(folder) == {
        "rollouts: learning_rate-0.1-s0: val at step 0: rollouts": missing,
        "rollouts: learning_rate-0.1-s0: val at step 20: rollouts": missing,
        "rollouts: learning_rate-0.05-s0: val at step 0: rollouts": missing,
    }


@pytest.mark.parametrize("name", ["config.yaml", "resolved.json", "conclusion.md"])
def test_a_file_that_was_removed_is_named(record_of, name):
    folder = record_of("binary")
    (folder / name).unlink()
    assert differing(folder)[f"files: record: {name}"] == f"{name} is missing"


def test_a_result_that_was_removed_is_named(record_of):
    folder = record_of("binary")
    (folder / "runs" / "run-s0" / "run_result.json").unlink()
    assert differing(folder)["rollouts: run-s0: run_result.json"] == "run-s0/run_result.json is missing"


def test_a_config_that_was_changed_is_found(record_of):
    folder = record_of("binary")
    path = folder / "config.yaml"
    path.write_text(path.read_text(encoding="utf-8") + "# Nothing.\n", encoding="utf-8")
    assert [*differing(folder)] == ["files: record: config_hash"]


@pytest.mark.parametrize("key", ["margin", "minimum_effect", "success_metric", "baseline", "claim"])
def test_a_question_that_was_changed_afterwards_is_found(record_of, key):
    folder = record_of("a margin")
    edit(
        folder / "experiment.json",
        lambda tree: tree.update({key: 0.0 if key in ("margin", "minimum_effect") else "x"}),
    )
    assert f"files: question: experiment.json {key}" in differing(folder)


def test_a_question_on_record_that_was_changed_no_longer_has_its_digest(record_of):
    folder = record_of("a margin")
    edit(folder / "experiment.json", lambda tree: tree["preregistered"].update(minimum_effect=0.0))
    assert "files: question: digest" in differing(folder)


def test_training_rows_that_were_changed_are_found(record_of):
    folder = record_of("binary")
    path = folder / "runs" / "run-s0" / "data" / "training_data.jsonl"
    text = path.read_text(encoding="utf-8")
    path.unlink()
    path.write_text(text.replace("x", "z"), encoding="utf-8")
    assert [*differing(folder)] == ["files: run-s0: training rows"]


def test_a_checkpoint_that_was_changed_is_found(record_of):
    folder = record_of("binary")
    manifest = next(folder.glob("runs/run-s0/checkpoints/*/manifest.json"))
    name = min(json.loads(manifest.read_text(encoding="utf-8"))["files"])
    (manifest.parent / name).write_bytes(b"other weights")
    assert differing(folder) == {
        f"files: run-s0: checkpoints/{manifest.parent.name}": f"{name} changed since it was saved"
    }


def test_a_scoring_by_other_verifiers_is_found(record_of):
    folder = record_of("binary")

    def other(tree):
        tree["evaluations"][-1]["verifier_hash"] = "sha256:0"

    edit(folder / "runs" / "run-s0" / "run_result.json", other)
    assert differing(folder)["files: benchmark val: verifier_hash"] == "scorings of run-s0 have another one"


def test_text_that_was_changed_in_a_rollout_is_found_by_the_hash_of_its_file(record_of):
    folder = record_of("binary")
    path = folder / "runs" / "run-s0" / "validation" / "rollouts.jsonl"
    path.write_text(
        path.read_text(encoding="utf-8").replace('"output":"x"', '"output":"X"'), encoding="utf-8"
    )
    assert [*differing(folder, hashes=True)] == ["files: record: runs/run-s0/validation/rollouts.jsonl"]


def test_a_reason_that_was_changed_is_found_by_the_hash_of_the_conclusion(record_of):
    folder = record_of("binary")
    edit(folder / "conclusion.json", lambda tree: tree.update(reason="run is better"))
    assert [*differing(folder, hashes=True)] == ["files: record: conclusion_hash"]


def test_a_file_with_a_hash_that_was_removed_is_named(record_of):
    folder = record_of("binary")
    (folder / "runs" / "run-s0" / "evaluations.jsonl").unlink()
    assert differing(folder, hashes=True) == {"files: record: runs/run-s0/evaluations.jsonl": "it is missing"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("conclusion.json", lambda tree: tree["comparisons"][0].update(low="x")),
        ("conclusion.json", lambda tree: tree.update(comparisons=[None])),
        ("experiment.json", lambda tree: tree["arms"][0].update(run_id=None)),
        ("run_result.json", lambda tree: tree["evaluations"][-1].update(task_rewards=[True])),
    ],
    ids=["text for a number", "null for an object", "null for a name", "a list for an object"],
)
def test_a_value_of_another_type_is_a_difference_and_no_fault_of_the_program(record_of, name, change):
    folder = record_of("two arms")
    edit(next(folder.rglob(name)), change)
    found = audit_experiment(folder)
    assert all(isinstance(check.about, str) for check in found.checks)
    assert any("isn't as evsys writes it" in (check.detail or "") for check in found.checks)


def test_rollouts_of_another_shape_name_the_record(record_of):
    folder = record_of("two arms")
    path = next(folder.rglob("validation/rollouts.jsonl"))
    first, *others = path.read_text(encoding="utf-8").splitlines()
    lines = [json.dumps({**json.loads(first), "facts": None}), *others]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(StoreError, match="isn't as evsys writes it"):
        audit_experiment(folder)


@pytest.mark.parametrize(
    ("kind", "key", "by"),
    [
        ("continual", "values", 0.01),
        ("continual", "changes", 0.01),
        ("continual", "change_low", 0.05),
        ("continual", "change_high", -0.05),
        ("continual, several seeds", "changes", -0.01),
        ("continual, several seeds", "change_low", 0.1),
        ("continual, several seeds", "change_high", -0.1),
    ],
)
def test_a_number_of_what_is_forgotten_that_was_changed_is_found(record_of, kind, key, by):
    def change(tree):
        tree["forgetting"][0][key][0][-1] += by

    folder = record_of(kind)
    edit(folder / "conclusion.json", change)
    name = {"values": "after", "changes": "effect", "change_low": "low", "change_high": "high"}[key]
    assert f"numbers: forgetting: run: val after 3-third: {name}" in differing(folder)


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("outcome", "within", "verdict: forgetting: run: val after 2-other: outcome"),
        ("p_value", 0.2, "numbers: forgetting: run: val after 2-other: claim_p"),
        ("level", 0.01, "numbers: forgetting: run: val after 2-other: level"),
        ("limit", "maximum_loss 0.9", "verdict: forgetting: run: val after 2-other: limit"),
    ],
)
def test_a_test_of_the_allowed_loss_that_was_changed_is_found(record_of, key, value, name):
    folder = record_of("continual, ended early")
    edit(folder / "conclusion.json", lambda tree: tree["forgetting"][0]["tests"][0].update({key: value}))
    assert name in differing(folder)


def test_a_test_of_the_allowed_loss_that_was_removed_is_found(record_of):
    folder = record_of("continual, ended early")
    edit(folder / "conclusion.json", lambda tree: tree["forgetting"][0].update({"tests": [], "stopped": []}))
    assert "numbers: forgetting of run: tests" in differing(folder)
