"""An audit passes on what evsys concluded, whatever kind of experiment it was."""

from __future__ import annotations

import json

import pytest

from evsys_record.result_trees import result_tree
from evsys_runtime.audit.auditing import audit_experiment
from evsys_runtime.experiment.result_schemas import validate_result


def not_ok(audit):
    return [check for check in audit.checks if check.state != "ok"]


VERDICTS = {
    "binary": "SUPPORTED",
    "a margin": "SUPPORTED",
    "partial credit": "SUPPORTED",
    "several samples": "SUPPORTED",
    "pass at k": "SUPPORTED",
    "clusters": "SUPPORTED",
    "five runs": "SUPPORTED",
    "two recipes": "REFUTED",
    "two arms": "CANDIDATE",
    "contrast": "SUPPORTED",
    "confirmed": "SUPPORTED",
    "no_worse": "SUPPORTED",
    "equal": "SUPPORTED",
    "equal, binary": "SUPPORTED",
    "on the floor": "INCONCLUSIVE",
    "missing samples": "INCONCLUSIVE",
    "invalid": "INVALID",
    "selected": "SUPPORTED",
    "search": "SUPPORTED",
    "continual": "SUPPORTED",
    "continual, several seeds": "SUPPORTED",
    "continual, ended early": "INCONCLUSIVE",
}


@pytest.mark.parametrize("kind", VERDICTS)
def test_an_audit_finds_the_numbers_and_the_verdict_of_every_kind_of_experiment(record_of, kind):
    audit = audit_experiment(record_of(kind))
    assert not [check for check in audit.checks if check.state == "differs"]
    assert audit.passed
    assert audit.verdict == VERDICTS[kind]


def test_an_audit_is_a_published_result_with_its_counts(record_of):
    audit = audit_experiment(record_of("binary"))
    validate_result(json.loads(json.dumps(result_tree(audit))), "audit")
    counts = [sum(check.state == state for check in audit.checks) for state in ("ok", "differs", "unchecked")]
    assert counts == [audit.ok, audit.differs, audit.unchecked]
    assert counts[0] > 40
    assert counts[2] == 0


def test_an_audit_writes_nothing(record_of):
    folder = record_of("binary")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    audit_experiment(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_missing_samples_that_decide_are_put_at_both_extremes(record_of):
    checks = audit_experiment(record_of("missing samples")).checks
    bounds = {check.name: check for check in checks if check.name.startswith("effect_bounds")}
    assert {name: (check.state, check.recomputed) for name, check in bounds.items()} == {
        "effect_bounds[0]": ("ok", pytest.approx(5 / 36)),
        "effect_bounds[1]": ("ok", pytest.approx(6 / 36)),
    }


def without_claims(tree):
    del tree["claims"]


def with_two_intervals(tree):
    for comparison in tree["comparisons"]:
        del comparison["level"]
        comparison |= {"corrected_low": comparison["low"], "corrected_high": comparison["high"]}


@pytest.mark.parametrize("written_before", [without_claims, with_two_intervals])
def test_a_record_of_an_earlier_version_is_audited_as_far_as_it_goes(record_of, written_before):
    folder = record_of("binary")
    path = folder / "conclusion.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    written_before(tree)
    path.write_text(json.dumps(tree), encoding="utf-8")
    facts = json.loads((folder / "experiment.json").read_text(encoding="utf-8"))
    for name in ("evidence_hashes", "conclusion_hash"):
        del facts[name]
    (folder / "experiment.json").write_text(json.dumps(facts), encoding="utf-8")
    audit = audit_experiment(folder)
    assert audit.passed
    assert [check.detail for check in not_ok(audit)] == [
        "this version recorded no hashes of rollouts and results",
        "an earlier version of evsys concluded this, by other rules",
    ]


def test_tasks_that_changed_in_the_project_cannot_be_checked(record_of):
    folder = record_of("binary")
    tasks = folder.parents[2] / "tasks.jsonl"
    tasks.write_text(tasks.read_text(encoding="utf-8").replace("now a", "now c"), encoding="utf-8")
    audit = audit_experiment(folder)
    (unchecked,) = not_ok(audit)
    assert unchecked.detail == "tasks.jsonl is no longer the scored file: its hash differs"
    assert audit.passed
