"""What an experiment may spend, and what happens when it is spent."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_project import METADATA

from evsys.errors import BudgetExceeded, ConfigError
from evsys.types import ArmResult, EvaluationResult, Usage
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.history import runs_of
from evsys_record.index import Index
from evsys_runtime.config.model import BudgetConfig
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.budget.budget import KEEP_SECONDS, WAIT, ExperimentBudget
from evsys_runtime.experiment.budget.spending import recorded_spending
from evsys_runtime.experiment.resume.unfinished_experiments import newest_unfinished


class Clock:
    time = 0.0

    def now(self):
        return self.time

    async def sleep(self, seconds):
        raise AssertionError("nobody waits here")


class Told:
    """A budget, with what it told and kept."""

    def __init__(self, known=None, **limits):
        self.told, self.kept, self.clock = [], [], Clock()
        self.budget = ExperimentBudget(
            BudgetConfig(**limits),
            known=known,
            keep=self.kept.append,
            tell=self.told.append,
            clock=self.clock,
        )

    def __getattr__(self, name):
        return getattr(self.budget, name)


def tokens(count, cost=0.0):
    return Usage(trained_tokens=count, cost_usd=cost)


# --- counting ------------------------------------------------------------------------------------------------------


def test_a_run_is_stopped_when_nothing_is_left_and_not_before():
    budget = Told(tokens=100)
    arm = budget.admit("a-s0")
    arm.charge(tokens(99))
    with pytest.raises(BudgetExceeded, match=r"budget.tokens: 100 of 100 spent"):
        arm.charge(Usage(prompt_tokens=1, cost_usd=0.0))
    assert arm.stopped == "budget.tokens: 100 of 100 spent"


def test_steps_that_are_used_up_stop_who_makes_steps_and_no_score():
    budget = Told(steps=2)
    arm = budget.admit("a-s0", steps=5)
    arm.charge(tokens(1), steps=1)
    with pytest.raises(BudgetExceeded, match="2 of 2 spent"):
        arm.charge(tokens(1), steps=1)
    arm.charge(tokens(1))


def test_time_passes_for_all():
    budget = Told(wall_seconds=60)
    arm = budget.admit("a-s0")
    budget.clock.time = 59.0
    arm.charge(tokens(1))
    budget.clock.time = 60.0
    with pytest.raises(BudgetExceeded, match="60 s of 60 s spent"):
        arm.charge(Usage())
    arm.settle("budget_stopped")
    assert budget.admit("b-s0") == "budget.wall_seconds: 60 s of 60 s spent"


def test_seconds_are_kept_for_scoring_as_soon_as_it_is_known_how_long_that_takes():
    budget = Told(wall_seconds=60)
    arm = budget.admit("a-s0")
    for seconds in (15.0, 20.0):
        arm.evsys_evaluation_finished(
            EvaluationResult(benchmark="val", split="val", step=0, status="completed", seconds=seconds)
        )
    budget.clock.time = 39.0
    arm.charge(tokens(1), steps=1)
    budget.clock.time = 40.0
    with pytest.raises(BudgetExceeded, match="40 s of 60 s spent, 20 s reserved"):
        arm.charge(tokens(1), steps=1)
    budget.clock.time = 59.0
    arm.charge(tokens(1))  # a rollout of the scoring
    arm.settle("budget_stopped")
    assert budget.admit("b-s0") == "budget.wall_seconds: 59 s of 60 s spent, 20 s reserved"


def test_at_four_fifths_it_is_warned_once():
    budget = Told(tokens=100, usd=10)
    arm = budget.admit("a-s0")
    arm.charge(tokens(79, cost=1.0))
    assert budget.told == []
    arm.charge(tokens(1, cost=1.0))
    arm.charge(tokens(1, cost=1.0))
    assert budget.told == ["80% of the budget is reached: budget.tokens: 80 of 100 spent"]


def test_what_has_no_price_is_told_of_where_money_is_limited():
    budget = Told(usd=1)
    arm = budget.admit("a-s0")
    for _ in range(3):
        arm.charge(Usage(completion_tokens=5))
    (told,) = budget.told
    assert told.startswith("budget.usd can't count all that a-s0 uses: a price isn't known")
    free = Told(tokens=100)
    free.admit("a-s0").charge(Usage(completion_tokens=5))
    assert free.told == []


# --- on record ------------------------------------------------------------------------------------------------------


def test_what_is_spent_goes_on_record_every_few_seconds_and_not_each_time():
    budget = Told(tokens=100)
    arm = budget.admit("a-s0")
    arm.charge(tokens(1))
    budget.clock.time = KEEP_SECONDS - 0.1
    arm.charge(tokens(1))
    assert [facts["spent"]["tokens"] for facts in budget.kept] == [0]
    budget.clock.time = KEEP_SECONDS
    arm.charge(tokens(1))
    budget.clock.time += KEEP_SECONDS - 0.1
    arm.charge(tokens(1))
    assert [facts["spent"]["tokens"] for facts in budget.kept] == [0, 3]


def test_what_ends_a_run_is_on_record_before_that_is_said():
    budget = Told(tokens=10)
    arm = budget.admit("a-s0")
    budget.clock.time = KEEP_SECONDS
    with pytest.raises(BudgetExceeded):
        arm.charge(tokens(12))
    assert budget.kept[-1]["spent"]["tokens"] == 12


def test_a_finished_scoring_goes_on_record_with_what_it_used():
    budget = Told(tokens=100)
    arm = budget.admit("a-s0")
    arm.charge(tokens(7))
    arm.evsys_evaluation_finished(EvaluationResult(benchmark="val", split="val", step=0, status="completed"))
    assert budget.kept[-1]["spent"]["tokens"] == 7


def test_a_hint_names_the_limit_that_is_needed_where_it_is_known():
    budget = Told(steps=10)
    arm = budget.admit("a-s0", steps=80)
    with pytest.raises(BudgetExceeded) as stopped:
        arm.charge(tokens(1), steps=10)
    assert stopped.value.hint == "to continue, raise it to 80 or more: evsys resume --set budget.steps=80"
    unknown = Told(tokens=10)
    with pytest.raises(BudgetExceeded) as stopped:
        unknown.admit("a-s0").charge(tokens(10))
    assert stopped.value.hint == "to continue, raise it: evsys resume --set budget.tokens=..."


# --- reservations --------------------------------------------------------------------------------------------------


def test_arms_side_by_side_do_not_take_from_each_other():
    budget = Told(steps=100)
    first, second = budget.admit("a-s0", steps=60), budget.admit("b-s0", steps=40)
    for _ in range(39):
        second.charge(tokens(1), steps=1)
    for _ in range(59):
        first.charge(tokens(1), steps=1)
    assert budget.remainder("steps", "a-s0") == budget.remainder("steps", "b-s0") == 1
    with pytest.raises(BudgetExceeded, match="100 of 100|99 of 100"):
        first.charge(tokens(1), steps=1)
    assert budget.remainder("steps", "b-s0") == 1


def test_an_arm_that_does_not_fit_waits_for_what_others_leave():
    budget = Told(steps=100)
    first = budget.admit("a-s0", steps=60)
    assert budget.admit("b-s0", steps=60) is WAIT
    first.charge(tokens(1), steps=1)
    first.settle("failed")
    assert budget.admit("b-s0", steps=60) is not WAIT
    assert budget.remainder("steps", "b-s0") == 99


def test_an_arm_that_can_not_be_paid_for_is_told_what_it_lacks():
    budget = Told(steps=100)
    arm = budget.admit("a-s0", steps=80)
    arm.charge(tokens(1), steps=80)
    arm.settle("completed")
    assert budget.admit("b-s0", steps=80) == ("budget.steps: 80 of 100 spent, and it would need about 80")
    assert not isinstance(budget.admit("c-s0", steps=20), str)


def test_the_first_arm_starts_however_much_it_needs():
    budget = Told(steps=10)
    arm = budget.admit("a-s0", steps=80)
    assert budget.remainder("steps", "a-s0") == 10
    arm.charge(tokens(1), steps=9)
    with pytest.raises(BudgetExceeded):
        arm.charge(tokens(1), steps=1)


def test_what_completed_runs_used_is_reserved_for_the_next_step_by_step():
    budget = Told(tokens=1000)
    arm = budget.admit("a-s0", steps=10)
    arm.charge(tokens(300), steps=10)
    arm.settle("completed")
    assert isinstance(budget.admit("b-s0", steps=40), str)
    budget.admit("b-s0", steps=20)
    assert budget.remainder("tokens") == 100


def test_a_failed_run_says_nothing_of_what_others_need():
    budget = Told(tokens=1000)
    arm = budget.admit("a-s0", steps=10)
    arm.charge(tokens(900), steps=1)
    arm.settle("failed")
    assert not isinstance(budget.admit("b-s0", steps=10), str)


def test_steps_that_are_known_late_are_reserved_then():
    budget = Told(steps=100)
    budget.admit("a-s0")
    assert budget.remainder("steps") == 100
    budget.expect("a-s0", 70)
    assert (budget.remainder("steps"), budget.remainder("steps", "a-s0")) == (30, 100)


def test_each_run_counts_as_an_arm_once():
    budget = Told(arms=2)
    first = budget.admit("a-s0")
    first.settle("failed")
    budget.admit("b-s0")
    assert budget.admit("c-s0") is WAIT
    budget.settle("b-s0", "completed")
    assert budget.admit("c-s0") == "budget.arms: 2 of 2 spent"
    assert not isinstance(budget.admit("a-s0"), str)


def test_a_later_launch_goes_on_with_what_is_left():
    before = Told(tokens=1000, wall_seconds=100, usd=5)
    arm = before.admit("a-s0", steps=4)
    before.clock.time = 30.0
    arm.charge(tokens(600, cost=2.5), steps=4)
    arm.settle("completed")
    killed = before.admit("b-s0", steps=2)
    killed.charge(tokens(50), steps=1)
    killed.evsys_checkpoint_saved()
    known = json.loads(json.dumps(before.kept[-1]))
    assert known["spent"] == {"usd": 2.5, "tokens": 650.0, "wall_seconds": 30.0, "steps": 5.0, "arms": 2.0}
    after = Told(known=known, tokens=1000, wall_seconds=100, usd=5)
    assert {name: after.spending(name) for name in known["spent"]} == known["spent"]
    assert isinstance(after.admit("c-s0", steps=4), str)
    assert not isinstance(after.admit("b-s0", steps=1), str)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.booleans()), max_size=40))
def test_whatever_runs_use_nothing_is_counted_twice_and_no_reservation_is_taken(events):
    budget, arms = Told(steps=100), {}
    used = dict.fromkeys(range(4), 0)
    for number, steps, ends in events:
        if number not in arms:
            found = budget.admit(f"{number}-s0", steps=steps)
            if isinstance(found, str) or found is WAIT:
                continue
            arms[number] = found
        others = {key: budget.remainder("steps", f"{key}-s0") for key in arms if key != number}
        room = budget.remainder("steps", f"{number}-s0")
        made = min(steps, max(0, int(room)))
        try:
            arms[number].charge(tokens(1), steps=made)
        except BudgetExceeded:
            assert made == 0 or budget.remainder("steps", f"{number}-s0") <= 0
        used[number] += made
        assert all(budget.remainder("steps", f"{key}-s0") >= min(left, 0) for key, left in others.items())
        assert budget.spending("steps") == sum(used.values()) <= 100
        if ends:
            arms.pop(number).settle("completed")


# --- experiments ---------------------------------------------------------------------------------------------------


def facts(result):
    return json.loads(Path(result.directory, "experiment.json").read_text(encoding="utf-8"))


def test_a_run_that_has_used_up_its_steps_stops_and_is_scored(project):
    result = project.experiment(extra="budget: {steps: 4}\n").run()
    (arm,) = result.arms
    assert (result.status, result.exit_code) == ("budget_stopped", 5)
    assert (arm.status, arm.run.steps, arm.run.stop_reason) == (
        "budget_stopped",
        4,
        "budget.steps: 4 of 4 spent",
    )
    assert arm.run.final_checkpoint == "checkpoints/4"
    assert [(e.step, e.status) for e in arm.evaluations] == [(0, "completed"), (4, "completed")]
    assert arm.failure is None
    assert result.conclusion.verdict == "INCONCLUSIVE"
    assert facts(result)["budget"]["spent"]["steps"] == 4
    assert any(w.startswith("budget.steps is 4, which doesn't pay for one arm") for w in result.warnings)


def test_a_budget_that_is_just_enough_stops_nothing(project):
    result = project.experiment(extra="budget: {steps: 6, arms: 1, usd: 0.01, wall_seconds: 3600}\n").run()
    assert (result.status, result.exit_code) == ("completed", 0)
    assert facts(result)["budget"]["runs"]["run-s0"]["ended"] == "completed"
    assert not any("price" in warning for warning in result.warnings)


def test_tokens_that_are_used_up_end_training_and_scores_are_missing_with_the_reason(project):
    counted = facts(project.experiment(extra="budget: {steps: 100}\n").run())["budget"]["spent"]["tokens"]
    extra = f"budget: {{tokens: {int(counted / 2)}}}\n"
    result = project.experiment(extra=extra, no_cache=True).run()
    (arm,) = result.arms
    assert (result.status, result.exit_code, arm.status) == ("budget_stopped", 5, "budget_stopped")
    assert arm.run.stop_reason.startswith("budget.tokens: ")
    missing = [e for e in arm.evaluations if e.status == "missing"]
    assert missing
    assert all("budget.tokens" in e.failure.message for e in missing)
    assert any("80% of the budget is reached: budget.tokens" in warning for warning in result.warnings)


def test_a_trained_model_whose_scores_are_not_paid_for_is_stopped_by_the_budget(project):
    text = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    num_samples: 40\n    temperature: 1.0")
    text = text.replace("metadata:\n", "metadata:\n  baseline: run\n")
    whole = facts(project.experiment(metadata=text, extra="budget: {steps: 100}\n", no_cache=True).run())
    spent = int(whole["budget"]["spent"]["tokens"])
    result = project.experiment(
        metadata=text, extra=f"budget: {{tokens: {spent - 20}}}\n", no_cache=True
    ).run()
    (arm,) = result.arms
    assert (arm.status, arm.run.steps, result.exit_code) == ("budget_stopped", 6, 5)
    assert [e.status for e in arm.evaluations] == ["missing"]
    assert arm.evaluations[0].scored > 0


def test_arms_that_can_not_be_paid_for_are_not_started_and_the_others_stay(project):
    result = project.experiment(extra="n_repeats: 3\nbudget: {steps: 14}\n").run()
    assert [arm.status for arm in result.arms] == ["completed", "completed", "budget_stopped"]
    assert (result.status, result.exit_code) == ("budget_stopped", 5)
    last = result.arms[2]
    assert (last.run.steps, last.run_dir) == (0, None)
    assert any(
        "to continue, raise it to 18 or more: evsys resume --set budget.steps=18" in w
        for w in result.warnings
    )
    assert last.run.stop_reason == "not started: budget.steps: 12 of 14 spent, and it would need about 6"
    assert facts(result)["budget"]["spent"]["arms"] == 2
    assert sorted(path.name for path in Path(result.directory, "runs").iterdir()) == ["run-s0", "run-s1"]
    with Index(Path(result.directory).parent) as index:
        shown = runs_of(index, result.experiment_id)
    assert [run.status for run in shown] == ["completed", "completed", "budget_stopped"]
    assert (shown[2].folder, shown[2].failure) == (None, last.run.stop_reason)


def test_an_algorithm_that_does_not_catch_it_ends_with_what_it_has_on_record(project, run_text):
    project.code(
        "algorithms",
        """
from evsys.types import RunResult, Usage
from evsys_sdk import register_algorithm

@register_algorithm("own")
class Own:
    def __init__(self, **fields):
        pass

    async def train(self, ctx):
        for step in range(1, 10):
            ctx.record.metrics(step, {"loss": 1.0 / step})
            ctx.budget.charge(Usage(trained_tokens=10, cost_usd=0.0), steps=1)
        return RunResult(status="completed", steps=9)
""",
    )
    text = "run:" + run_text(
        ("kind: sft", "kind: own"),
        ("    params: {learning_rate: 0.05, steps: 6, batch_size: 4, lora_rank: 4}\n", ""),
    )
    (arm,) = project.experiment(text, extra="budget: {tokens: 35}\n").run().arms
    assert (arm.status, arm.failure) == ("budget_stopped", None)
    assert arm.run.stop_reason == "budget.tokens: 40 of 35 spent"
    assert arm.run.metrics == {"loss": 0.25}


def test_a_budget_without_limits_limits_nothing(project):
    result = project.experiment(extra="budget: {}\n").run()
    assert result.status == "completed"


def test_validate_warns_of_what_a_budget_does_not_pay_for(project):
    def warnings(budget):
        path = project.config(extra=f"n_repeats: 3\nbudget: {budget}\n")
        return [w for w in Experiment.from_yaml(path).plan.warnings if "budget" in w]

    assert warnings("{steps: 5}") == [
        "budget.steps is 5, which doesn't pay for one arm: 'run' alone takes 6 steps"
    ]
    assert warnings("{steps: 17}") == [
        "budget.steps is 17, and the planned runs take 18 steps; what it doesn't pay for won't be started"
    ]
    assert warnings("{arms: 2}") == ["budget.arms is 2, so 1 of the 3 planned runs won't be started"]
    assert warnings("{steps: 18, arms: 3, usd: 1}") == []


def test_the_first_arm_goes_on_where_it_was_cut_off_however_much_it_needs():
    account = {"steps": 4.0, "tokens": 9.0, "usd": 0.0, "ended": "cancelled"}
    budget = Told(known={"runs": {"a-s0": account}}, steps=10)
    budget.admit("a-s0", steps=80).charge(tokens(1), steps=5)
    other = Told(known={"runs": {"a-s0": account, "b-s0": account}}, steps=10)
    assert other.admit("a-s0", steps=80).startswith("budget.steps: 8 of 10 spent, and it would need about 80")
    spent = Told(known={"runs": {"a-s0": {**account, "steps": 10.0}}}, steps=10)
    assert spent.admit("a-s0", steps=80) == "budget.steps: 10 of 10 spent"


KILLS_ONCE = """
import os, signal
from pathlib import Path
from evsys_sdk import register_callback

@register_callback("kills")
class Kills:
    def evsys_step_finished(self, ctx, step):
        mark = Path(ctx.run_dir).parents[4] / "killed"
        if step == 3 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize(("limit", "status"), [(8, "budget_stopped"), (9, "completed")])
def test_what_was_spent_before_an_interruption_stays_spent(project, limit, status):
    project.code("callbacks", KILLS_ONCE)
    experiment = project.experiment(extra=f"callbacks: [{{kind: kills}}]\nbudget: {{steps: {limit}}}\n")
    with pytest.raises(KeyboardInterrupt):
        experiment.run()
    assert facts(experiment.result)["budget"]["spent"]["steps"] == 3
    again = Experiment.resume(
        experiment.result.directory, quiet=True
    ).run()  # without a checkpoint it starts over
    assert again.arms[0].status == status
    assert facts(again)["budget"]["spent"]["steps"] == limit  # the first run goes as far as that goes


SAVED = """
from evsys_sdk import register_callback

seen = []

@register_callback("saved")
class Saved:
    def evsys_step_finished(self, ctx, step):
        import json
        facts = json.loads((ctx.run_dir.parents[1] / "experiment.json").read_text(encoding="utf-8"))
        seen.append((step, facts["budget"]["spent"]["steps"]))
"""


def test_what_is_on_record_with_a_checkpoint_has_its_own_step(project, run_text):
    project.code("callbacks", SAVED)
    runs = "run:" + run_text(("steps: 6", "steps: 6, save_every: 2"))
    project.experiment(runs, extra="callbacks: [{kind: saved}]\nbudget: {steps: 8}\n").run()
    assert sys.modules["src.callbacks"].seen[2:] == [(3, 2), (4, 2), (5, 4), (6, 4)]


def test_a_budget_that_is_raised_pays_for_what_was_left(project):
    first = project.experiment(extra="n_repeats: 2\nbudget: {steps: 8}\n").run()
    assert [arm.status for arm in first.arms] == ["completed", "budget_stopped"]
    again = Experiment.resume(first.directory, overrides=["budget.steps=12"], quiet=True).run()
    assert [arm.status for arm in again.arms] == ["completed", "completed"]
    assert (again.status, facts(again)["budget"]["spent"]["steps"]) == ("completed", 12)
    assert not any("doesn't pay" in warning for warning in again.warnings)


def test_a_run_that_was_stopped_in_the_middle_goes_on_from_its_checkpoint_once_there_is_more(project):
    first = project.experiment(extra="budget: {steps: 4}\n").run()
    assert first.arms[0].run.steps == 4
    again = Experiment.resume(first.directory, overrides=["budget.steps=6"], quiet=True).run()
    assert (again.status, again.arms[0].run.steps) == ("completed", 6)
    assert facts(again)["budget"]["spent"]["steps"] == 6


def test_a_limit_below_what_is_spent_is_refused_with_both_numbers_and_the_one_that_is_needed(project):
    first = project.experiment(extra="n_repeats: 3\nbudget: {steps: 14}\n").run()
    again = Experiment.resume(first.directory, overrides=["budget.steps=10"], quiet=True)
    with pytest.raises(ConfigError) as refused:
        again.run()
    assert "budget.steps: 12 of 10 spent" in str(refused.value)
    assert "raise budget.steps above that; budget.steps=18 pays for what is left" in str(refused.value)
    assert facts(first)["budget"]["limits"]["steps"] == 14
    whole = Experiment.resume(first.directory, overrides=["budget.steps=18"], quiet=True).run()
    assert whole.status == "completed"


def test_a_limit_that_was_passed_by_what_was_under_way_is_no_reason_to_refuse_a_resume(project):
    extra = "n_repeats: 2\nbudget: {tokens: 100}\n"
    first = project.experiment(extra=extra, no_cache=True).run()
    assert facts(first)["budget"]["spent"]["tokens"] > 100
    assert Experiment.resume(first.directory, quiet=True).run().status == "budget_stopped"


ORACLE = """
import os, signal
from pathlib import Path
from evsys_sdk import register_callback
from evsys import register_inference_client
from evsys.types import Completion, Message, Usage

HERE = Path(__file__).parent

def die(where):
    if (HERE / where).exists():
        (HERE / where).unlink()
        os.kill(os.getpid(), signal.SIGKILL)

@register_callback("dies")
class Dies:
    def evsys_step_finished(self, ctx, step):
        if step == 3:
            die("at-a-step")

@register_inference_client("oracle")
class Oracle:
    calls = 0

    def __init__(self, **fields):
        pass

    async def generate(self, messages, sampling, *, n=1, tools=()):
        Oracle.calls += 1
        if Oracle.calls == 5:
            die("at-a-rollout")
        used = Usage(prompt_tokens=2, completion_tokens=1, cost_usd=0.5)
        said = Message(role="assistant", content="a")
        return [Completion(message=said, finish_reason="stop", usage=used)] * n
"""

RUN_IT = """
import sys
from evsys_runtime.experiment import Experiment
Experiment.from_yaml(sys.argv[1], quiet=True, no_cache=True).run()
"""

KEEPS_EACH = """
import sys
from evsys_runtime.evaluation import result_cache
result_cache._BATCH = 1
"""

BESIDE = f"{METADATA.rstrip()}\n    n_concurrent: 1\n    models: [{{kind: oracle}}]\n"


def lines(folder, pattern):
    return [
        json.loads(line)
        for path in sorted(Path(folder).glob(pattern))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def used_on_file(folder):
    """Steps, tokens and dollars of all that was ever done there, kept or not."""
    used = [line["rollout"]["usage"] for line in lines(folder, "runs/*/*/rollouts.jsonl")]
    trained = sum(line["values"]["tokens"] for line in lines(folder, "runs/*/training/metrics.jsonl"))
    return {
        "steps": sum(line["event"] == "done" for line in lines(folder, "runs/*/journal.jsonl")),
        "tokens": trained + sum(one["prompt_tokens"] + one["completion_tokens"] for one in used),
        "usd": sum(one["cost_usd"] for one in used),
    }


@pytest.mark.parametrize("where", ["at-a-step", "at-a-rollout"])
def test_what_was_spent_before_a_kill_stays_spent(project, where):
    project.code("plugins", ORACLE)
    (project.root / "src" / where).touch()
    extra = "callbacks: [{kind: dies}]\nbudget: {usd: 100, tokens: 100000, steps: 100}\n"
    path = project.config(metadata=BESIDE, extra=extra)
    ended = subprocess.run([sys.executable, "-c", RUN_IT, str(path)], cwd=project.root, check=False)
    assert ended.returncode == -signal.SIGKILL
    folder = newest_unfinished(project.root / ".evsys/experiments")
    lost, used = (
        json.loads((folder / "experiment.json").read_text(encoding="utf-8"))["budget"],
        used_on_file(folder),
    )
    assert used["usd" if where == "at-a-rollout" else "steps"] > 0
    assert any(lost["spent"][name] < amount for name, amount in used.items())
    found = recorded_spending(ExperimentRecord.open(folder))
    assert {name: found["runs"]["run-s0"][name] for name in used} == used
    assert found["spent"]["wall_seconds"] > lost["spent"]["wall_seconds"]
    again = Experiment.resume(folder, quiet=True, no_cache=True).run()
    spent = facts(again)["budget"]["spent"]
    assert {name: spent[name] for name in used} == used_on_file(folder)
    assert spent["steps"] == (9 if where == "at-a-step" else 6)
    assert agree(again) > 0


def agree(result):
    """See that the budget and the conclusion tell of the same tokens and dollars; those of work that was cut off."""
    conclusion, spent = result.conclusion, facts(result)["budget"]["spent"]
    assert spent["tokens"] == conclusion.usage.tokens + conclusion.cut_off.tokens
    assert spent["usd"] == pytest.approx(
        (conclusion.usage.cost_usd or 0) + (conclusion.cut_off.cost_usd or 0)
    )
    assert conclusion.cut_off == sum((arm.cut_off for arm in result.arms), Usage())
    return conclusion.cut_off.tokens


def test_rollouts_of_a_cut_off_scoring_that_come_from_the_cache_are_paid_for_once(project):
    project.code("plugins", ORACLE)
    (project.root / "src/at-a-rollout").touch()
    extra = "callbacks: [{kind: dies}]\nbudget: {usd: 100, tokens: 100000}\n"
    metadata = BESIDE.replace("n_concurrent: 1", "n_concurrent: 4")
    code = RUN_IT.replace(", no_cache=True", "").replace("import sys\n", KEEPS_EACH)
    path = project.config(metadata=metadata, extra=extra)
    ended = subprocess.run([sys.executable, "-c", code, str(path)], cwd=project.root, check=False)
    assert ended.returncode == -signal.SIGKILL
    again = Experiment.resume(newest_unfinished(project.root / ".evsys/experiments"), quiet=True).run()
    asked = [line for line in lines(again.directory, "runs/*/*/rollouts.jsonl") if line["facts"].get("model")]
    assert len(asked) > 12  # some are there twice: as they were made, and as they came from the cache
    assert facts(again)["budget"]["spent"]["usd"] == 6.0
    assert agree(again) == 0


def test_nothing_that_was_cut_off_is_nothing_to_tell(project):
    result = project.experiment(extra="budget: {steps: 100}\n").run()
    assert agree(result) == 0
    assert "cut off" not in (Path(result.directory) / "conclusion.md").read_text(encoding="utf-8")


def test_a_conclusion_says_what_work_used_that_was_cut_off(project):
    project.code("callbacks", KILLS_ONCE)
    first = project.experiment(extra="callbacks: [{kind: kills}]\nbudget: {steps: 100}\n")
    with pytest.raises(KeyboardInterrupt):
        first.run()
    again = Experiment.resume(first.result.directory, quiet=True).run()
    lost = agree(again)
    assert lost > 0
    text = (Path(again.directory) / "conclusion.md").read_text(encoding="utf-8")
    assert f"Work that was cut off and made again used {lost} tokens besides" in text


def test_rollouts_that_come_again_from_the_cache_after_a_resume_are_shown_once(project):
    project.code("plugins", ORACLE)
    first = project.experiment(metadata=BESIDE, extra="budget: {usd: 100}\n", no_cache=True).run()
    record = ExperimentRecord.open(Path(first.directory))
    path = Path(first.arms[0].run_dir) / "validation/rollouts.jsonl"
    once = recorded_spending(record)["runs"]
    again = [{**line, "attempt": 2} for line in lines(first.arms[0].run_dir, "validation/rollouts.jsonl")]
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in again)
    assert recorded_spending(record)["runs"] == once
    for line in again:
        line["rollout"]["usage"]["seconds"] += 1.0  # made anew
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in again)
    assert recorded_spending(record)["runs"]["run-s0"]["usd"] == 2 * once["run-s0"]["usd"] == 12.0


def test_of_a_run_whose_files_can_not_be_read_what_was_kept_counts_and_it_is_told(project):
    first = project.experiment(extra="budget: {steps: 100}\n").run()
    journal = Path(first.arms[0].run_dir) / "journal.jsonl"
    journal.write_bytes(b"\xff\n" + journal.read_bytes())
    told = []
    found = recorded_spending(ExperimentRecord.open(Path(first.directory)), told.append)
    assert found["runs"] == facts(first)["budget"]["runs"]
    (said,) = told
    assert said.startswith("what run-s0 spent may be more than is counted: ")


def test_a_budget_that_is_set_later_counts_what_was_spent_without_one(project):
    project.code("callbacks", KILLS_ONCE)
    first = project.experiment(extra="callbacks: [{kind: kills}]\n")
    with pytest.raises(KeyboardInterrupt):
        first.run()
    again = Experiment.resume(first.result.directory, overrides=["budget.steps=8"], quiet=True).run()
    assert again.arms[0].run.stop_reason == "budget.steps: 8 of 8 spent"
    assert again.arms[0].run.steps == 5  # 3 were spent before


def test_a_comparison_that_is_not_paid_for_leaves_an_arm_as_it_is(project):
    project.code("plugins", ORACLE)
    (arm,) = project.experiment(metadata=BESIDE, extra="budget: {usd: 2}\n", no_cache=True).run().arms
    assert {(e.model, e.status) for e in arm.evaluations} == {("oracle", "missing"), (None, "completed")}
    assert (arm.status, arm.run.stop_reason) == ("completed", None)


def test_what_was_made_twice_is_spent_but_decides_nothing_about_further_runs():
    budget = Told(steps=20, tokens=300)
    arm = budget.admit("a-s0", steps=6)
    arm.charge(tokens(150), steps=9)
    budget.add_rework("a-s0", {"steps": 3.0, "tokens": 50.0})
    arm.settle("completed")
    assert budget.pays_for(2, 6)  # 14 steps and 200 tokens are left of what it would have used in one go
    assert not budget.pays_for(3, 6)
    assert (budget.remainder("steps"), budget.remainder("tokens")) == (11, 150)
    second = budget.admit("b-s0", steps=6)
    assert budget.remainder("tokens") == 50  # what a run is going to need isn't what another one used twice
    second.charge(tokens(100), steps=6)
    second.settle("completed")
    assert budget.admit("c-s0", steps=6).startswith("budget.steps: 15 of 20 spent")


def test_what_a_run_that_went_back_lost_belongs_to_it():
    lost = Usage(trained_tokens=40, cost_usd=1.0)
    for went_back, pays in ((False, True), (True, False)):
        budget = Told(tokens=150)
        arm = budget.admit("a-s0")
        arm.charge(tokens(100))
        arm.close(
            ArmResult(
                run_id="a-s0", arm="a", repeat=0, seed=0, status="completed", identity="x", cut_off=lost
            ),
            went_back=went_back,
        )
        assert budget.pays_for(1, None) is pays
