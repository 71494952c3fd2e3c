"""Arms that an earlier experiment ran exactly as here are taken from its record, if the file asks for that."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from small_project import METADATA, RUN, Project

from evsys.errors import ConfigError
from evsys.types import ArmResult, ExperimentResult
from evsys_record.history import past_experiment, runs_of
from evsys_record.index import Index
from evsys_record.marks import labels
from evsys_record.retraction import retract
from evsys_record.run_checkpoint import checkpoint_named
from evsys_runtime.audit.auditing import audit_experiment
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.estimate.plan import plan_experiment
from evsys_runtime.experiment.estimate.results import Planned
from evsys_runtime.experiment.insight.evidence import Evidence
from evsys_runtime.experiment.open_session import bound_benchmarks
from evsys_runtime.experiment.prior.run_deviation import recipes_of
from evsys_runtime.experiment.state.options import Options
from evsys_runtime.experiment.verdict.question import question_of

JUDGED = METADATA + "  baseline: base\n"
REUSE = "reuse_arms: true\n"


def arms(*rates: tuple[str, float]) -> str:
    runs = "".join(
        f"  - name: {name}{RUN.replace('0.05', str(rate)).replace(chr(10), chr(10) + '  ').rstrip()}\n"
        for name, rate in rates
    )
    return f"runs:\n{runs}"


BEFORE = arms(("base", 0.05), ("other", 0.1))
AFTER = arms(("base", 0.05), ("new", 0.07))


@attrs.frozen
class Reruns:
    """An experiment on record, and what another one makes of it."""

    project: Project
    before: ExperimentResult

    def again(
        self, text: str = AFTER, *, metadata: str = JUDGED, extra: str = REUSE, **options: Any
    ) -> ExperimentResult:
        return self.project.experiment(text, metadata=metadata, extra=extra, **options).run()

    def planned(self, text: str = AFTER, *, metadata: str = JUDGED, extra: str = REUSE) -> Planned:
        plan = load_experiment(self.project.config(text, metadata=metadata, extra=extra))
        with Index(self.experiments) as index:
            index.refresh()
            return plan_experiment(plan, index)

    @property
    def experiments(self) -> Path:
        return Path(self.before.directory).parent

    def run_file(self, name: str, run: str = "base-s0") -> Path:
        return Path(self.before.directory, "runs", run, name)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Reruns:
    project = Project(tmp_path_factory.mktemp("recorded"))
    return Reruns(project, project.experiment(BEFORE, metadata=JUDGED).run())


@pytest.fixture
def reruns(recorded: Reruns, tmp_path: Path) -> Reruns:
    """A copy of it, to be changed."""
    shutil.copytree(recorded.project.root, tmp_path / "project")
    folder = tmp_path / "project" / Path(recorded.before.directory).relative_to(recorded.project.root)
    return Reruns(Project(tmp_path / "project"), attrs.evolve(recorded.before, directory=str(folder)))


def named(result: ExperimentResult, name: str) -> ArmResult:
    return next(arm for arm in result.arms if arm.arm == name)


def change(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    tree = json.loads(path.read_text(encoding="utf-8"))
    edit(tree)
    path.write_text(json.dumps(tree), encoding="utf-8")


def test_an_identical_arm_is_taken_from_the_record_and_paired(reruns: Reruns):
    result = reruns.again()
    base, new = named(result, "base"), named(result, "new")
    then = named(reruns.before, "base")
    assert base.reused is not None
    assert (base.reused.experiment_id, base.reused.run_id) == (reruns.before.experiment_id, "base-s0")
    assert base.status == "completed"
    assert base.usage.tokens == base.seconds // 1 == 0
    assert base.identity == then.identity
    assert [e.task_rewards for e in base.evaluations] == [e.task_rewards for e in then.evaluations]
    assert new.reused is None
    assert new.usage.tokens > 0
    (comparison,) = result.conclusion.comparisons
    assert comparison.arm == "new"
    assert comparison.n_tasks == 12
    assert comparison.before == then.evaluations[-1].metrics["mean_reward"].value


def test_the_verdict_is_that_of_a_run_of_its_own(reruns: Reruns):
    reused = reruns.again()
    shutil.rmtree(reused.directory)
    trained = reruns.again(extra="")
    assert reused.conclusion.comparisons[0].effect == trained.conclusion.comparisons[0].effect
    assert not trained.conclusion.reused


def test_nothing_is_reused_unless_the_file_asks_for_it(reruns: Reruns):
    assert not any(arm.reused for arm in reruns.again(extra="").arms)


def test_every_place_says_where_a_reused_arm_comes_from(reruns: Reruns):
    result = reruns.again()
    source = reruns.before.experiment_id
    assert result.conclusion.reused == {"base-s0": source}
    folder = Path(result.directory)
    text = (folder / "conclusion.md").read_text(encoding="utf-8")
    assert f"(reuses runs of {source})" in text
    assert f"Reused from the record, not trained again: `base-s0` of {source}." in text
    facts = json.loads((folder / "runs" / "base-s0" / "run.json").read_text(encoding="utf-8"))
    assert facts["reused"]["experiment_id"] == source
    assert f"it is base-s0 of {source}" in (folder / "runs/base-s0/conclusion.md").read_text(encoding="utf-8")
    with Index(reruns.experiments) as index:
        index.refresh()
        past = past_experiment(index, result.experiment_id)
        assert past is not None
        assert f"reuses runs of {source}" in labels(past.marks)
        assert source in past.cites
        assert {run.run_id: run.reused_from for run in runs_of(index, result.experiment_id)} == {
            "base-s0": source,
            "new-s0": None,
        }


def test_a_look_counts_although_an_arm_was_reused(reruns: Reruns):
    assert reruns.before.conclusion.looks is not None
    assert reruns.before.conclusion.looks.number == 1
    looks = reruns.again().conclusion.looks
    assert looks is not None
    assert looks.number == 2


def test_a_plan_promises_nothing_for_a_reused_arm(reruns: Reruns):
    planned = reruns.planned(extra=f"{REUSE}budget: {{steps: 6, arms: 1}}\n")
    base, new = planned.arms
    assert base.reused == (reruns.before.experiment_id,)
    assert not new.reused
    assert planned.steps == 6
    assert planned.scorings[0].scorings == 1
    assert [limit.fits for limit in planned.budget] == [True, True]
    assert not reruns.planned(extra="").arms[0].reused


def test_a_reused_arm_takes_no_part_of_a_budget(reruns: Reruns):
    result = reruns.again(extra=f"{REUSE}budget: {{steps: 6, arms: 1}}\n")
    assert [arm.status for arm in result.arms] == ["completed", "completed"]


def test_a_spent_budget_reuses_arms_and_trains_none(reruns: Reruns):
    text = arms(("new", 0.07), ("base", 0.05), ("late", 0.03))
    result = reruns.again(text, extra=f"{REUSE}budget: {{steps: 6}}\nmax_concurrent_arms: 1\n")
    assert [arm.status for arm in result.arms] == ["completed", "completed", "budget_stopped"]
    assert [arm.reused is not None for arm in result.arms] == [False, True, False]
    late = named(result, "late").run
    assert late is not None
    assert late.steps == 0
    assert late.stop_reason is not None
    assert late.stop_reason.startswith("not started: budget.steps")


def test_an_audit_follows_a_reused_arm_to_its_source(reruns: Reruns):
    folder = Path(reruns.again().directory)
    assert audit_experiment(folder).passed
    rollouts = reruns.run_file("validation/rollouts.jsonl")
    rollouts.write_text(rollouts.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    differing = [check for check in audit_experiment(folder).checks if check.state == "differs"]
    assert [(check.about, check.name) for check in differing] == [
        (f"base-s0, reused from {reruns.before.experiment_id}", "runs/base-s0/validation/rollouts.jsonl")
    ]


def test_an_audit_fails_where_the_source_is_gone(reruns: Reruns):
    folder = Path(reruns.again().directory)
    shutil.rmtree(reruns.before.directory)
    audit = audit_experiment(folder)
    assert not audit.passed
    assert f"{reruns.before.experiment_id} isn't on record any more" in [
        check.detail for check in audit.checks
    ]


def test_an_audit_recomputes_from_the_rollouts_of_the_source(reruns: Reruns):
    folder = Path(reruns.again().directory)
    change(
        folder / "runs/base-s0/run_result.json",
        lambda tree: tree["evaluations"][-1]["task_rewards"].update({"t00": [0.5]}),
    )
    wrong = {check.name for check in audit_experiment(folder).checks if check.state == "differs"}
    assert {"rewards", "run_result.json", "runs/base-s0/run_result.json"} <= wrong


def test_a_foreign_record_cannot_lead_an_audit_out_of_the_records(reruns: Reruns):
    folder = Path(reruns.again().directory)
    change(
        folder / "runs/base-s0/run_result.json",
        lambda tree: tree["reused"].update({"experiment_id": "../../secrets"}),
    )
    with pytest.raises(Exception, match="which is not a run of a record"):
        audit_experiment(folder)


def edited(reruns: Reruns) -> None:
    change(
        Path(reruns.before.directory, "conclusion.json"), lambda tree: tree.update({"verdict": "SUPPORTED"})
    )


def tampered(reruns: Reruns) -> None:
    path = reruns.run_file("validation/rollouts.jsonl")
    path.write_text(path.read_text(encoding="utf-8").replace('"value":0.0', '"value":1.0'), encoding="utf-8")


def retracted(reruns: Reruns) -> None:
    retract(Path(reruns.before.directory), "the rows were wrong")


def unscored(reruns: Reruns) -> None:
    change(
        reruns.run_file("run_result.json"), lambda tree: tree["evaluations"][-1].update({"status": "invalid"})
    )


def ended_early(reruns: Reruns) -> None:
    change(reruns.run_file("run_result.json"), lambda tree: tree["run"].update({"stop_reason": "enough"}))


def of_before(reruns: Reruns) -> None:
    change(reruns.run_file("run.json"), lambda tree: tree.pop("made_with"))


def unconcluded(reruns: Reruns) -> None:
    change(Path(reruns.before.directory, "experiment.json"), lambda tree: tree.update({"finished": None}))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (retracted, "it was retracted: the rows were wrong"),
        (edited, "its conclusion.json was edited after the run wrote it"),
        (tampered, "the audit of that experiment finds"),
        (unscored, "samples of it have no score"),
        (ended_early, "it was ended early: enough"),
        (of_before, "its version of evsys didn't record how runs are scored"),
        (unconcluded, "that experiment isn't concluded"),
    ],
)
def test_an_unreliable_run_is_never_reused(reruns: Reruns, spoil: Callable[[Reruns], None], why: str):
    spoil(reruns)
    start = f"base-s0 is run again, although {reruns.before.experiment_id} base-s0 is the same run: {why}"
    planned = reruns.planned()
    assert not any(arm.reused for arm in planned.arms)
    assert [text for text in planned.warnings if text.startswith(start)]


def test_an_arm_whose_source_fails_its_audit_trains(reruns: Reruns):
    tampered(reruns)
    result = reruns.again()
    assert not any(arm.reused for arm in result.arms)
    assert named(result, "base").status == "completed"
    assert any("the audit of that experiment finds" in text for text in result.warnings)


def test_a_source_that_is_gone_leaves_the_arm_to_train(reruns: Reruns):
    shutil.rmtree(reruns.before.directory)
    assert not any(arm.reused for arm in reruns.again().arms)


@pytest.mark.parametrize(
    ("text", "extra"),
    [
        (AFTER, "base_seed: 1\n"),
        (AFTER.replace("kind: mock", "kind: local"), ""),
        (AFTER.replace("steps: 6", "steps: 5"), ""),
    ],
    ids=["seed", "backend", "recipe"],
)
def test_what_differs_is_another_run(reruns: Reruns, text: str, extra: str):
    assert not any(arm.reused for arm in reruns.planned(text, extra=REUSE + extra).arms)


def test_other_rows_are_another_run(reruns: Reruns):
    reruns.project.write("train.jsonl", [{"prompt": f"say {c}", "completion": c} for c in "hgfedcba"])
    assert not any(arm.reused for arm in reruns.planned().arms)


def test_other_tasks_are_another_run(reruns: Reruns):
    reruns.project.tasks([(f"t{i:02d}", "say b", "b") for i in range(12)])
    assert not any(arm.reused for arm in reruns.planned().arms)


STOPS = "callbacks: [{kind: early_stopping, params: {monitor: loss, patience: 2}}]\n"


@pytest.mark.parametrize(
    ("old", "new", "extra", "why"),
    [
        ("max_tokens: 4", "max_tokens: 5", "", "its scores on val differ"),
        (
            "max_tokens: 4",
            "max_tokens: 4\n    run_every: 3",
            "",
            "its selected checkpoint and its scores on val differ",
        ),
        ("", "", STOPS, "its callbacks differ"),
    ],
)
def test_a_run_made_otherwise_is_not_reused(reruns: Reruns, old: str, new: str, extra: str, why: str):
    planned = reruns.planned(metadata=JUDGED.replace(old, new), extra=REUSE + extra)
    assert not any(arm.reused for arm in planned.arms)
    assert any(text.endswith(f"base-s0 is the same run: {why}") for text in planned.warnings)


OWN_VERIFIER = """
from evsys import register_verifier


@register_verifier("own")
def own(model_output, expected, params):
    return {score}
"""


def test_a_changed_verifier_makes_the_arm_train_again(project: Project):
    project.tasks([(f"t{i:02d}", "say a", "a") for i in range(12)], verifier="own")
    project.code("verifiers", OWN_VERIFIER.format(score="float(model_output == expected)"))
    reruns = Reruns(project, project.experiment(BEFORE, metadata=JUDGED, skip_grader_check=True).run())
    assert named(reruns.again(skip_grader_check=True), "base").reused is not None
    shutil.copytree(project.root, project.root.with_name("edited"))
    copied = Project(project.root.with_name("edited"))
    copied.tasks([(f"t{i:02d}", "say a", "a") for i in range(12)], verifier="own")
    copied.code("verifiers", OWN_VERIFIER.format(score="0.5 * (model_output == expected)"))
    result = Reruns(copied, reruns.before).again(skip_grader_check=True)
    assert not any(arm.reused for arm in result.arms)
    assert any("its scores on val differ" in text for text in result.warnings)


def test_runs_whose_judge_may_judge_otherwise_are_not_looked_for(project: Project):
    project.tasks([(f"t{i:02d}", "say a", "a") for i in range(12)], verifier="moody")
    code = OWN_VERIFIER.format(score="1.0").replace('"own"', '"moody"') + "\n\nown.deterministic = False\n"
    project.code("verifiers", code)
    reruns = Reruns(project, project.experiment(BEFORE, metadata=JUDGED, skip_grader_check=True).run())
    result = reruns.again(skip_grader_check=True)
    assert not any(arm.reused for arm in result.arms)
    assert any("verifier 'moody' may judge the same answer otherwise" in text for text in result.warnings)


def test_a_chain_of_experiments_leads_to_the_one_that_trained(reruns: Reruns):
    second = reruns.again()
    third = reruns.again(arms(("base", 0.05), ("third", 0.03)))
    for result in (second, third):
        assert result.conclusion.reused == {"base-s0": reruns.before.experiment_id}
        assert not [text for text in result.warnings if "is run again" in text]


def test_a_dry_run_reuses_nothing_and_is_never_reused(project: Project):
    project.experiment(BEFORE, metadata=JUDGED, dry=True).run()
    first = project.experiment(BEFORE, metadata=JUDGED, extra=REUSE).run()
    assert not any(arm.reused for arm in first.arms)
    assert not any(
        arm.reused for arm in project.experiment(BEFORE, metadata=JUDGED, extra=REUSE, dry=True).run().arms
    )


def test_without_the_cache_everything_is_made_again(reruns: Reruns):
    result = reruns.again(no_cache=True)
    assert not any(arm.reused for arm in result.arms)
    assert "base-s0 isn't looked for on record: everything is to be scored again" in result.warnings


def test_a_reused_run_counts_once_for_the_deviation_between_runs(project: Project):
    """By two repeats of an arm, and by the same two in an experiment that reused them."""
    metadata = JUDGED.replace("max_tokens: 4", "max_tokens: 1\n    temperature: 1.0")
    before = project.experiment(BEFORE, metadata=metadata, extra="n_repeats: 2\n").run()
    reruns = Reruns(project, before)
    result = reruns.again(metadata=metadata, extra=f"{REUSE}n_repeats: 2\n")
    assert [arm.run_id for arm in result.arms if arm.reused] == ["base-s0", "base-s1"]
    plan = load_experiment(project.config(AFTER, metadata=metadata, extra="n_repeats: 2\n"))
    benchmarks = bound_benchmarks(plan, Options())
    question = question_of(plan, benchmarks)
    assert question is not None
    with Index(reruns.experiments) as index:
        index.refresh()
        evidence = Evidence(index)
        recipes = [
            (arm.experiment.experiment_id, found.arm)
            for arm in evidence.arms_scored_on(benchmarks[0].benchmark_hash)
            for found in recipes_of(arm, evidence, question, benchmarks[0])
        ]
    assert sorted(recipes) == [
        *((before.experiment_id, name) for name in ("base", "other")),
        (result.experiment_id, "new"),
    ]


def test_the_checkpoint_of_a_reused_run_is_that_of_its_source(reruns: Reruns):
    result = reruns.again()
    found = checkpoint_named(f"{result.experiment_id}/base-s0", reruns.experiments)
    assert found is not None
    assert found.is_relative_to(reruns.before.directory)


def test_a_winner_that_was_reused_is_confirmed_by_its_own_weights(project: Project):
    confirm = "confirm: {seeds: 0}\n"
    text = arms(("base", 0.000001), ("good", 0.1), ("fair", 0.05)).replace("steps: 6", "steps: 30")
    metadata = JUDGED.replace("max_tokens: 4", "max_tokens: 1\n    temperature: 1.0\n    num_samples: 8")
    before = project.experiment(text, metadata=metadata, extra=confirm).run()
    assert before.conclusion.confirmed is not None
    result = project.experiment(text, metadata=metadata, extra=confirm + REUSE).run()
    assert {arm.run_id for arm in result.arms if arm.reused} == {"base-s0", "good-s0", "fair-s0"}
    assert result.conclusion.confirmed is not None
    assert result.status == before.status == "completed"


def test_a_resumed_experiment_keeps_what_it_reused(reruns: Reruns):
    result = reruns.again()
    again = type(reruns.project.experiment(AFTER, metadata=JUDGED)).resume(result.directory, quiet=True)
    assert again.run().conclusion.reused == result.conclusion.reused
    assert again.nothing_to_do


@pytest.mark.parametrize("recipe", ["stages", "continual"])
def test_runs_in_stages_are_never_reused(project: Project, recipe: str):
    data = "{source_kind: jsonl, path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}"
    algorithm = "{kind: sft, params: {learning_rate: 0.05, steps: 2, batch_size: 4, lora_rank: 4}}"
    more = {
        "stages": f"stages:\n  - {{name: one, data: {data}, algorithm: {algorithm}}}\n"
        f"run:\n  model: {{name: evsys/tiny}}\n  backend: {{kind: mock}}\n",
        "continual": f"continual: {{datasets: [{data}, {data}]}}\n"
        f"run:\n  model: {{name: evsys/tiny}}\n  algorithm: {algorithm}\n  backend: {{kind: mock}}\n",
    }[recipe]
    with pytest.raises(ConfigError, match=f"runs in {recipe} are never reused"):
        project.experiment(more, extra=REUSE)
