"""What could have led to a verdict without a look at its question is a mark wherever the verdict is: in its line, its warnings, its JSON and history."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from small_project import RUN

from evsys import use_registry
from evsys.types import Conclusion
from evsys_backend_mock.backend import MockBackend
from evsys_record import experiment_record
from evsys_record.files import read_json, write_json
from evsys_record.history import past_experiment
from evsys_record.index import Index
from evsys_record.marks import concluded_labels, labels
from evsys_record.run_record import RunRecord
from evsys_record.user_ledger import user_ledger
from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.config.project import project_registry
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment import experiment as running
from evsys_runtime.experiment.evaluated_models import find_saved_model
from evsys_runtime.experiment.evaluation import ascore
from evsys_runtime.experiment.prior import doubts
from evsys_runtime.experiment.verdict.prose import verdict_line

METADATA = """
metadata:
  hypothesis: it learns
  success_metric: val.mean_reward
  benchmark:
    - {name: val, path: tasks.jsonl, max_tokens: 4}
"""
WITHOUT_QUESTION = f"""{METADATA.replace("  success_metric: val.mean_reward\n", "")}
    - {{name: more, path: tasks.jsonl, max_tokens: 4}}
"""
AGAIN = "\nbase_seed: 1\n"


@pytest.fixture(autouse=True)
def different_tasks(project):
    project.tasks([(f"t{i:02d}", f"say {'abcdefgh'[i % 8]} for {i}", "abcdefgh"[i % 8]) for i in range(40)])


def marked(experiment, label):
    """Run it; its series, after checking that a label is in the verdict line, a warning, the JSON, and history."""
    conclusion = experiment.run().conclusion
    assert f"({label})" in verdict_line(conclusion)
    assert any(label in warning for warning in conclusion.warnings)
    assert label in concluded_labels(conclusion)
    with Index(experiment.record.directory.parent) as index:
        past = past_experiment(index, experiment.record.experiment_id)
    assert label in labels(past.marks)
    return conclusion.looks


def test_looks_on_other_tasks(project):
    project.experiment(metadata=METADATA).run()
    project.tasks(
        [(f"u{i:02d}", f"write {'abcdefgh'[i % 8]} after {100 + i}", "abcdefgh"[i % 8]) for i in range(40)]
    )
    series = marked(project.experiment(metadata=METADATA, extra=AGAIN), "1 look on other tasks")
    assert (series.number, series.other_tasks, series.similar) == (1, 1, 0)


def test_runs_scored_by_an_experiment_that_asked_nothing(project):
    first = project.experiment(metadata=WITHOUT_QUESTION, extra="\nn_repeats: 2\n")
    first.run()
    shutil.rmtree(first.record.directory)
    series = marked(project.experiment(metadata=METADATA, extra=AGAIN), "2 runs scored without a look")
    assert (series.number, series.unasked) == (1, 2)


def test_runs_scored_by_an_experiment_that_was_cut_off_before_its_conclusion(project):
    def killed(*_args, **_options):
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(running, "conclude_and_write", killed)
        project.experiment(metadata=METADATA).run()
    shutil.rmtree(next((project.root / ".evsys" / "experiments").glob("2*")))
    assert (
        marked(project.experiment(metadata=METADATA, extra=AGAIN), "1 run scored without a look").number == 1
    )


def cut_off(experiment, *, step, killed=True):
    """Run it, end it where all rewards of a scoring are there and it isn't on record yet, and delete what that leaves.

    Where it is killed, it concludes nothing.
    """

    def end(_record, result):
        if result.step == step:
            raise SystemExit

    def fail(*_args, **_options):
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(RunRecord, "evaluation", end)
        if killed:
            patch.setattr(running, "conclude_and_write", fail)
        experiment.run()
    shutil.rmtree(experiment.record.directory)


def test_runs_whose_scoring_was_cut_off(project):
    cut_off(project.experiment(metadata=METADATA), step=6)
    marked(project.experiment(metadata=METADATA, extra=AGAIN), "1 run scored without a look")


@pytest.mark.parametrize("killed", [True, False])
def test_a_checkpoint_scored_as_the_starting_weights_of_an_experiment_that_was_cut_off(project, killed):
    first = project.experiment(metadata="metadata: {hypothesis: it learns}\n")
    first.run()
    (checkpoint, *_) = sorted(first.record.directory.glob("runs/*/checkpoints/*"), reverse=True)
    kept = shutil.copytree(checkpoint, project.root / "kept")
    shutil.rmtree(first.record.directory)
    start = f"{{name: evsys/tiny, init_from_checkpoint: {kept}}}"
    from_it = f"run:{RUN.replace('{name: evsys/tiny}', start)}"
    cut_off(project.experiment(from_it, metadata=METADATA), step=0, killed=killed)
    marked(project.experiment(metadata=METADATA, extra=AGAIN), "1 run scored without a look")


def test_a_dry_run_that_trains_as_much_as_a_run(project):
    short = f"run:{RUN.replace('steps: 6', 'steps: 2')}"
    project.experiment(short, metadata=METADATA, dry=True).run()
    marked(project.experiment(short, metadata=METADATA), "1 run scored without a look")


def test_untrained_weights_whose_scoring_was_cut_off_are_no_run(project):
    cut_off(project.experiment(metadata=METADATA), step=0)
    conclusion = project.experiment(metadata=METADATA, extra=AGAIN).run().conclusion
    assert (conclusion.looks.number, conclusion.looks.unasked) == (1, 0)


def test_runs_scored_by_an_invalid_experiment(project):
    limited = METADATA.replace("max_tokens: 4", "max_tokens: 4, limit: 9")
    assert project.experiment(metadata=limited).run().conclusion.verdict == "INVALID"
    assert (
        marked(project.experiment(metadata=METADATA, extra=AGAIN), "1 run scored without a look").number == 1
    )


def test_a_checkpoint_scored_by_an_evaluation(project):
    first = project.experiment(metadata="metadata: {hypothesis: it learns}\n")
    first.run()
    (checkpoint, *_) = sorted(first.record.directory.glob("runs/*/checkpoints/*"), reverse=True)
    registry = project_registry()
    with use_registry(registry):
        scoring = ascore(
            find_saved_model(checkpoint),
            [BenchmarkConfig(path="tasks.jsonl", max_tokens=4)],
            project_root=project.root,
            registry=registry,
            quiet=True,
        )
        asyncio.run(scoring)
    marked(project.experiment(metadata=METADATA, extra=AGAIN), "1 run scored without a look")


def test_runs_of_experiments_that_are_held_after_their_scores(project):
    """Several are held before they conclude, and only the best one is released."""
    held, conclude = [], running.conclude_and_write

    def begin_next():
        experiment = project.experiment(metadata=METADATA, extra=f"\nbase_seed: {len(held)}\n")
        return experiment.run() if len(held) < 3 else marked(experiment, "3 runs scored without a look")

    def hold(*args, **options):
        if len(held) < 3:
            held.append(args[0])
            with ThreadPoolExecutor(1) as other:
                other.submit(begin_next).result()
        return conclude(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "conclude_and_write", hold)
        project.experiment(metadata=METADATA).run()
    assert len(held) == 3


def test_an_experiment_that_ends_with_a_look_is_none_of_them(project):
    project.experiment(metadata=METADATA).run()
    conclusion = project.experiment(metadata=METADATA, extra=AGAIN).run().conclusion
    assert (conclusion.looks.number, conclusion.looks.unasked) == (2, 0)


def test_a_run_of_an_earlier_look_that_is_repeated_for_its_scores(project):
    """Renamed tasks in another order, with the record of the first run gone."""
    project.tasks([(f"t{i:02d}", f"say {'abcdefgh'[i % 8]} for {i}", "abcdefgh"[i % 8]) for i in range(96)])
    first = project.experiment(metadata=METADATA)
    first.run()
    shutil.rmtree(first.record.directory)
    rows = [
        json.loads(line) for line in (project.root / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    project.write("tasks.jsonl", [{**row, "task_id": f"x{i}"} for i, row in enumerate(reversed(rows))])
    series = marked(project.experiment(metadata=METADATA), "1 run scored as in earlier looks")
    assert (series.number, series.repeated) == (2, 1)


def test_graders_that_were_not_checked(project):
    marked(project.experiment(metadata=METADATA, skip_grader_check=True), "grader check skipped")


STATEFUL = """
from evsys import register_verifier_fn

asked = {}


@register_verifier_fn("second_time")
def second_time(output, expected, params):
    asked[expected] = asked.get(expected, 0) + 1
    return float(asked[expected] > 1)


@register_verifier_fn("first_letter")
def first_letter(output, expected, params):
    return float(output[:1] == expected)
"""


@pytest.mark.parametrize(
    ("change", "label"),
    [
        ((), "40 of 40 answers judged otherwise again"),
        (("params):", "params, rollout):"), "40 of 40 answers judged otherwise again"),
        (
            (
                "return float",
                "return params.get('none') if __import__('sys').argv[0].endswith('rejudging.py') else float",
            ),
            "40 of 40 answers judged otherwise again",
        ),
        (
            (
                '\n\n@register_verifier_fn("first',
                '\n\nsecond_time.free = False\n\n\n@register_verifier_fn("first',
            ),
            "answers not judged again",
        ),
        (
            ("\n\nasked", "\nimport sys\n\nsys.argv[0].endswith('rejudging.py') and sys.exit(1)\nasked"),
            "answers not judged again",
        ),
    ],
    ids=["by the answer", "by the rollout", "no reward again", "paid", "a process that ends"],
)
def test_a_verifier_that_remembers_what_it_was_asked(project, change, label):
    project.code("stateful", STATEFUL.replace(*change, 1) if change else STATEFUL)
    project.tasks([(f"t{i:02d}", f"say a for {i}", f"{i}") for i in range(40)], verifier="second_time")
    experiment = project.experiment(metadata=METADATA, skip_grader_check=True)
    assert marked(experiment, label).number == 1


@pytest.mark.parametrize("grows", [True, False])
def test_a_metric_that_remembers_what_it_was_asked(monkeypatch, grows):
    calls = []

    def task_value(rewards):
        calls.append(rewards)
        return sum(rewards) + grows * len(calls)

    entry = SimpleNamespace(name="val", metric=lambda _name: SimpleNamespace(task_value=task_value))
    scoring = SimpleNamespace(benchmark="val@selected", model=None, task_rewards={"a": (0.0,), "b": (1.0,)})
    session = SimpleNamespace(
        benchmarks=[entry],
        results={"run-s0": SimpleNamespace(evaluations=[scoring])},
        options=SimpleNamespace(dry=False, skip_grader_check=False),
        unknown_weights={},
        plan=SimpleNamespace(success=SimpleNamespace(benchmark="val", metric="rising")),
    )
    monkeypatch.setattr(doubts, "rejudge", lambda _session, _entry: None)
    found = doubts.find_doubts(session, Conclusion(verdict="SUPPORTED", reason="it wins"))
    assert [mark.label for mark in found] == ["rising computed otherwise again"] * grows


def test_a_verifier_that_judges_by_the_answer_alone_is_not_marked(project):
    project.code("stateful", STATEFUL)
    project.tasks(
        [(f"t{i:02d}", f"say {'abcdefgh'[i % 8]} for {i}", "abcdefgh"[i % 8]) for i in range(40)],
        verifier="first_letter",
    )
    conclusion = project.experiment(metadata=METADATA).run().conclusion
    assert conclusion.verdict == "SUPPORTED"
    assert "judged otherwise" not in verdict_line(conclusion)


def test_a_checkpoint_that_was_copied_out_of_a_record_that_is_gone(project):
    """It may have been trained on the benchmark."""
    first = project.experiment(metadata="metadata: {hypothesis: it learns}\n")
    first.run()
    (checkpoint, *_) = sorted(first.record.directory.glob("runs/*/checkpoints/*"), reverse=True)
    kept = shutil.copytree(checkpoint, project.root / "kept")
    from_record = RUN.replace(
        "{name: evsys/tiny}", f"{{name: evsys/tiny, init_from_checkpoint: {checkpoint}}}"
    )
    on_record = project.experiment(f"run:{from_record}", metadata=METADATA).run().conclusion
    assert "unknown origin" not in verdict_line(on_record)
    shutil.rmtree(first.record.directory)
    start = RUN.replace("{name: evsys/tiny}", f"{{name: evsys/tiny, init_from_checkpoint: {kept}}}")
    series = marked(
        project.experiment(f"run:{start}", metadata=METADATA, extra=AGAIN),
        "starting weights of unknown origin: run",
    )
    assert series.number == 2


def test_a_question_that_was_changed_after_results(project):
    project.experiment(metadata=METADATA).run()
    changed = project.experiment(metadata=METADATA.replace("it learns", "it learns much"))
    assert "(question changed after results)" in verdict_line(changed.run().conclusion)


@pytest.mark.parametrize("first", ["inside", "outside"])
def test_another_folder_for_records_hides_no_look(project, tmp_path_factory, first):
    elsewhere = f"\noutput_dir: {tmp_path_factory.mktemp('elsewhere') / 'runs'}\n"
    for number, extra in enumerate(("", elsewhere) if first == "inside" else (elsewhere, ""), start=1):
        experiment = project.experiment(metadata=METADATA, extra=f"{extra}\nbase_seed: {number}\n")
        assert experiment.run().conclusion.looks.number == number
        shutil.rmtree(experiment.record.directory)


def name_all_alike(monkeypatch):
    """Have experiments named as if they began in one second, as by a clock that is set back."""
    moment = time.gmtime(1_800_000_000)
    clock = SimpleNamespace(time=time.time, strftime=time.strftime, gmtime=lambda _seconds: moment)
    monkeypatch.setattr(experiment_record, "time", clock)


@pytest.fixture
def of_a_real_model(monkeypatch, tmp_path):
    monkeypatch.setattr(MockBackend, "simulated", False)
    monkeypatch.setenv("EVSYS_LOOKS", str(tmp_path / "looks-of-the-user"))


@pytest.mark.usefixtures("of_a_real_model")
def test_looks_whose_records_and_ledger_are_gone_or_in_a_copy_of_the_project(project, monkeypatch):
    """Also where a clock that was set back gives the name again."""
    name_all_alike(monkeypatch)
    project.experiment(metadata=METADATA).run()
    shutil.rmtree(project.root / ".evsys")
    series = marked(project.experiment(metadata=METADATA, extra=AGAIN), "1 look in other places")
    assert (series.number, series.elsewhere) == (1, 1)
    conclusion = project.experiment(metadata=METADATA, extra="\nbase_seed: 2\n").run().conclusion
    assert (conclusion.looks.number, conclusion.looks.elsewhere) == (2, 1)


def test_the_ledger_of_the_user_has_no_looks_at_simulated_models(project, monkeypatch, tmp_path):
    """They show nothing about a real one, and their verdict says so."""
    monkeypatch.setenv("EVSYS_LOOKS", str(tmp_path / "looks-of-the-user"))
    conclusion = project.experiment(metadata=METADATA).run().conclusion
    assert "(a model simulated by mock)" in verdict_line(conclusion)
    assert not (tmp_path / "looks-of-the-user").exists()


@pytest.mark.usefixtures("of_a_real_model")
def test_the_ledger_of_the_user_can_be_turned_off(project, monkeypatch, tmp_path):
    monkeypatch.setenv("EVSYS_LOOKS", "off")
    project.experiment(metadata=METADATA).run()
    shutil.rmtree(project.root / ".evsys")
    assert project.experiment(metadata=METADATA, extra=AGAIN).run().conclusion.looks.elsewhere == 0
    assert not (tmp_path / "looks-of-the-user").exists()


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"EVSYS_LOOKS": "/own", "XDG_STATE_HOME": "/state"}, "/own"),
        ({"EVSYS_LOOKS": "", "XDG_STATE_HOME": "/state"}, "/state/evsys/looks"),
        ({"EVSYS_LOOKS": "off"}, None),
    ],
)
def test_the_ledger_of_the_user_is_in_the_state_folder(environ, folder):
    from evsys_record.questions import AskedQuestion

    question = AskedQuestion(
        metric="m", direction="max", claim="better", baseline="b", levers=(), simulated=False
    )
    found = user_ledger(question, environ)
    assert (found and found.parent.as_posix()) == folder


def test_a_verdict_that_was_edited_together_with_its_hash(project):
    experiment = project.experiment(
        metadata=METADATA.replace("hypothesis", "minimum_effect: 0.99\n  hypothesis")
    )
    assert experiment.run().conclusion.verdict != "SUPPORTED"
    folder = experiment.record.directory
    tree = json.loads((folder / "conclusion.json").read_text(encoding="utf-8"))
    write_json(folder / "conclusion.json", {**tree, "verdict": "SUPPORTED"})
    facts = read_json(folder / "experiment.json")
    write_json(
        folder / "experiment.json", {key: value for key, value in facts.items() if key != "conclusion_hash"}
    )
    with Index(folder.parent) as index:
        assert "edited" in labels(past_experiment(index, folder.name).marks)


@pytest.mark.parametrize(
    "edit",
    [
        {"effect": 0.999, "high": 1.0},
        {"effect": -0.3},
        {"outcome": "inconclusive"},
    ],
    ids=["another effect", "a negative one", "no win"],
)
def test_an_effect_that_was_edited_together_with_its_hash(project, edit):
    experiment = project.experiment(metadata=METADATA)
    assert experiment.run().conclusion.verdict == "SUPPORTED"
    folder = experiment.record.directory
    tree = json.loads((folder / "conclusion.json").read_text(encoding="utf-8"))
    tree["comparisons"][0] |= edit
    write_json(folder / "conclusion.json", tree)
    facts = read_json(folder / "experiment.json")
    assert facts.pop("conclusion_hash")
    write_json(folder / "experiment.json", facts)
    with Index(folder.parent) as index:
        assert "edited" in labels(past_experiment(index, folder.name).marks)


def test_scores_that_changed_before_a_repeated_conclusion_are_a_look_of_their_own(project):
    """By whatever clock their attempts began."""
    experiment = project.experiment(metadata=METADATA)
    experiment.run()
    folder = experiment.record.directory
    write_json(folder / "experiment.json", {**read_json(folder / "experiment.json"), "status": "running"})
    (path,) = folder.glob("runs/*/run_result.json")
    tree = read_json(path)
    tree["evaluations"][-1]["task_rewards"]["t00"] = [0.5]
    write_json(path, tree)
    Experiment.resume(folder, quiet=True).run()
    assert read_json(folder / "conclusion.json")["looks"]["number"] == 2


def test_the_name_of_a_deleted_experiment_that_took_a_look_is_not_given_again(project, monkeypatch):
    name_all_alike(monkeypatch)
    first = project.experiment(metadata=METADATA)
    first.run()
    shutil.rmtree(first.record.directory)
    second = project.experiment(metadata=METADATA)
    assert second.run().conclusion.looks.number == 2
    assert second.record.experiment_id == f"{first.record.experiment_id}-2"
