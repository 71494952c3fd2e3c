"""What an experiment on record came to, without what two equal ones may differ in."""

from __future__ import annotations

import hashlib

from evsys_record.experiment_record import ExperimentRecord
from evsys_record.files import read_json

STATEMENTS = {
    "seconds",
    "cut_off",
    "attempt",
    "run_dir",
    "final_checkpoint",
    "best_checkpoint",
    "checkpoint",
    "experiment_id",
    "directory",
}
"""What two runs of one experiment may differ in."""


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in STATEMENTS}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def metrics_of(run, phase):
    """Each step's numbers, whatever was written first: scorings end when they end."""
    lines = [
        (line["step"], sorted((k, v) for k, v in line["values"].items() if not k.endswith("seconds")))
        for line in run.read_metrics(phase)
    ]
    return sorted(lines)


def outcome_of(root):
    """All that may not depend on a kill: weights, live metrics, rollouts and journal, results and conclusion."""
    [path] = (root / ".evsys/experiments").glob("*/experiment.json")
    record = ExperimentRecord.open(path.parent)
    conclusion = record.directory / "conclusion.json"
    found = {"conclusion": without_times(read_json(conclusion)), "status": record.facts["status"]}
    for run in record.runs():
        result = run.read_result()
        saved = run.directory / result["run"]["final_checkpoint"]
        found[run.run_id] = {
            "result": without_times(result),
            "weights": {
                path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in saved.iterdir()
                if path.name != "manifest.json"
            },
            "metrics": {phase: metrics_of(run, phase) for phase in ("training", "validation")},
            "rollouts": sorted(
                (line["step"], line["rollout"]["task_id"], line["rollout"]["output"])
                for line in run.read_rollouts("validation")
            ),
            "journal": [(line["step"], line["event"], line["batch_id"]) for line in run.read_journal()],
            "facts": [run.facts.get(name) for name in ("identity", "order", "stages", "begins_with")],
        }
    return found
