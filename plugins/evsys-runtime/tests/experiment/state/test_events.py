"""What happens in an experiment is on record as events, over resumes as well."""

from pathlib import Path

from faulty_project import FaultyProject

from evsys_record.reader import Experiment as Recorded


def events(directory):
    return list(Recorded(Path(directory)).events())


def test_events_lead_from_the_start_of_an_experiment_to_its_verdict(project):
    result = project.experiment().run()
    found = events(result.directory)
    assert [one.seq for one in found] == list(range(1, len(found) + 1))
    names = [one.event for one in found]
    assert (names[0], names[-1]) == ("experiment.started", "experiment.finished")
    assert found[0].facts == {"runs": ["run-s0"]}
    assert found[-1].facts["verdict"] == result.conclusion.verdict
    of_run = [one.event for one in found if one.run == "run-s0"]
    assert (of_run[0], of_run[-1]) == ("phase.changed", "run.finished")
    assert [one.facts["phase"] for one in found if one.event == "phase.changed"] == [
        "data",
        "model",
        "training",
        "evaluation",
    ]
    assert "run.started" in of_run
    assert of_run.count("evaluation.started") == of_run.count("evaluation.finished") == 2
    (scored,) = [one for one in found if one.event == "evaluation.finished" and one.facts["step"] > 0]
    assert scored.facts["metrics"] == {
        "mean_reward": result.arms[0].evaluations[-1].metrics["mean_reward"].value
    }


def test_a_resumed_experiment_continues_the_numbers(project, run_text):
    lab = FaultyProject(project)
    lab.fault("interrupt-run-s0-3")
    cut = lab.carried_out(project.experiment("run:" + run_text(), extra="callbacks: [{kind: faults}]\n"))
    first = events(cut.directory)
    lab.resume(cut.directory)
    found = events(cut.directory)
    assert found[: len(first)] == first
    assert [one.seq for one in found] == list(range(1, len(found) + 1))
    assert {one.attempt for one in found if one.run == "run-s0"} == {1, 2}
    assert found[-1].event == "experiment.finished"
    (resumed,) = [one for one in found if one.event == "experiment.resumed"]
    assert (resumed.seq, resumed.facts["runs"]) == (len(first) + 1, ["run-s0"])
    (run,) = [one for one in found if one.event == "run.resumed"]
    assert (run.run, run.attempt, run.facts["from_step"]) == ("run-s0", 2, 0)


def test_a_budget_and_its_warnings_are_events(project):
    found = events(project.experiment(extra="budget: {steps: 3}\n").run().directory)
    reserved = [one.facts for one in found if one.event == "budget.reserved"]
    spent = [one.facts for one in found if one.event == "budget.spent"]
    assert reserved == [{"steps": 3.0}]
    assert spent[-1] == {"spent": {"steps": 3}, "limits": {"steps": 3}}
    warned = [one.facts for one in found if one.event == "warning.raised"]
    assert any(one["warning"] == "budget.warned" and "80% of the budget" in one["message"] for one in warned)


def test_the_failure_of_a_run_is_an_event_with_its_reason(project, run_text):
    lab = FaultyProject(project)
    lab.fault("break-run-s0-3")
    result = lab.carried_out(project.experiment("run:" + run_text().replace("kind: sft", "kind: breaks")))
    failed = [one for one in events(result.directory) if one.event == "run.failed"]
    assert [(one.run, one.facts["message"]) for one in failed] == [("run-s0", result.arms[0].failure.message)]
