"""`evsys gate` on checkpoints of the mock backend: its record, its looks, and what a deployer accepts."""

import json
import shutil
from pathlib import Path

import pytest
from gated_project import SUITE, carry_out, checkpoint, tasks

from evsys.errors import ConfigError, DeployError
from evsys_deployers.gate.record import read_gate, require_promotion
from evsys_deployers.gate.suite import load_suite


def test_a_promoted_record_names_everything_and_opens_the_door(project):
    code, record = carry_out(project)
    assert (code, record["decision"]["verdict"]) == (0, "PROMOTE")
    path = Path(record["record"])
    assert record["entries"][0]["hashes"]["tasks"].startswith("sha256:")
    assert record["entries"][0]["hashes"]["verifiers"].startswith("sha256:")
    assert record["candidate"]["digest"].startswith("sha256:")
    assert record["suite"]["digest"].startswith("sha256:")
    assert record["look"] == {"number": 1, "level": pytest.approx(0.04)}
    assert require_promotion(path, checkpoint(project)).decision.verdict == "PROMOTE"


@pytest.mark.parametrize(
    "edit",
    [
        lambda tree: tree["decision"].update(verdict="PROMOTE", why="trust me"),
        lambda tree: tree["entries"][0]["candidate"]["values"].update(gate0=[0.0, 0.0]),
        lambda tree: tree["candidate"].update(digest="sha256:0"),
        lambda tree: tree["look"].update(level=0.5),
    ],
)
def test_an_edited_record_is_refused(project, edit):
    _, record = carry_out(project)
    path = Path(record["record"])
    tree = json.loads(path.read_bytes())
    edit(tree)
    path.write_text(json.dumps(tree))
    with pytest.raises(DeployError, match="was changed after the gate wrote it"):
        read_gate(path)


def test_a_decision_that_does_not_follow_is_refused_though_its_digest_fits(project):
    from evsys_deployers.gate.record import _digest

    _, record = carry_out(project, project)
    path = Path(record["record"])
    tree = json.loads(path.read_bytes())
    assert tree["decision"]["verdict"] == "PROMOTE"
    for task in tree["entries"][0]["candidate"]["values"]:
        tree["entries"][0]["candidate"]["values"][task] = [0.0, 0.0]
        tree["entries"][0]["incumbent"]["values"][task] = [1.0, 1.0]
    path.write_text(json.dumps({**tree, "digest": _digest(tree)}))
    with pytest.raises(DeployError, match="doesn't follow from its scores"):
        read_gate(path)


def test_other_weights_are_refused(project):
    _, record = carry_out(project)
    folder = checkpoint(project)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    name = next(name for name in manifest["files"] if not name.startswith("optimizer"))
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    with pytest.raises(DeployError, match="is not the file that the run saved"):
        require_promotion(Path(record["record"]), folder)


def test_what_is_held_is_no_promotion(project):
    code, record = carry_out(project, project, SUITE.replace("margin: 0.2", "margin: 0") + "claim: better\n")
    assert (code, record["decision"]["verdict"]) == (10, "HOLD")
    with pytest.raises(DeployError, match="the gate says HOLD"):
        require_promotion(Path(record["record"]), checkpoint(project))


def test_a_checkpoint_selected_on_the_target_is_held(project):
    text = SUITE.replace("gate.jsonl", "steering.jsonl")
    code, record = carry_out(project, "base", text)
    assert code == 10
    assert "was selected by the tasks of gate in" in record["decision"]["why"]
    code, _ = carry_out(project, "base", f"{text}allow_selected: true\n")
    assert code == 0


def test_a_required_score_that_is_missed_rejects(project):
    tasks(Path("safety.jsonl"), "safe", answer="never said")
    text = SUITE + "must_pass:\n  - {benchmark: {name: safety, path: safety.jsonl, max_tokens: 4}}\n"
    code, record = carry_out(project, "base", text)
    assert (code, record["decision"]["verdict"]) == (11, "REJECT")
    assert record["decision"]["why"] == "safety: 0.000 of 1"


def test_candidates_against_one_incumbent_are_looks(project):
    carry_out(project)
    _, again = carry_out(project)
    assert again["look"]["number"] == 1  # the same pair
    shutil.copytree(checkpoint(project), checkpoint(project).with_name("61"))
    other = checkpoint_with_other_weights(checkpoint(project).with_name("61"))
    _, second = carry_out(str(other))
    assert second["look"]["number"] == 2
    assert second["look"]["level"] < 0.01


def checkpoint_with_other_weights(folder):
    import hashlib

    manifest = json.loads((folder / "manifest.json").read_bytes())
    name = next(name for name in manifest["files"] if not name.startswith("optimizer"))
    content = (folder / name).read_bytes() + b"\n"
    (folder / name).write_bytes(content)
    manifest["files"][name] = {
        "bytes": len(content),
        "sha256": f"sha256:{hashlib.sha256(content).hexdigest()}",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize(
    ("suite", "message"),
    [
        (SUITE.replace("margin: 0.2", "margin: 0"), "needs a margin above 0"),
        (SUITE + "slices: {language: 0}\n", "the margin of a slice is above 0"),
        (
            SUITE + "guards: [{benchmark: {name: gate, path: gate.jsonl}, margin: 0.1}]\n",
            "two benchmarks are called 'gate'",
        ),
        (SUITE + "bonds: {}\n", "unknown key 'bonds'"),
    ],
)
def test_a_faulty_suite_is_refused_with_its_place(project, suite, message):
    Path("gate.yaml").write_text(suite)
    with pytest.raises(ConfigError) as caught:
        load_suite("gate.yaml")
    assert message in str(caught.value)


def test_a_name_that_is_no_run_is_refused(project):
    with pytest.raises(ConfigError, match="'nothing' is not a run or the folder of a checkpoint"):
        carry_out("nothing")
