import copy
import math

import jsonschema
import pytest

from evsys.errors import ConfigError, StoreError
from evsys.types import (
    ArmResult,
    Comparison,
    Conclusion,
    EvaluationResult,
    ExperimentResult,
    Failure,
    MetricValue,
    Procedure,
    RunResult,
    Usage,
)
from evsys_record.attempts import Attempt
from evsys_record.audits import AuditCheck, audit_of
from evsys_record.citations import Retracting
from evsys_record.differing import Difference
from evsys_record.events import Event
from evsys_record.lookups import Lookup, Lookups
from evsys_record.past import (
    History,
    NearArm,
    PastExperiment,
    PastRun,
    RecordFile,
    Reindexed,
    Scored,
    Shown,
    ShownRun,
    Unreadable,
)
from evsys_record.result_trees import read_as, result_tree
from evsys_record.wait_result import Waited
from evsys_runtime.data.contamination import (
    BenchmarkCheck,
    DataCheck,
    DatasetCheck,
    FlaggedTask,
    MatchedRow,
    Overlap,
)
from evsys_runtime.data.result_store import StoreInfo
from evsys_runtime.experiment.command_results import (
    ControlPlace,
    Described,
    Launched,
    Previewed,
    PreviewedSequence,
    PreviewSpan,
    Requested,
    RunState,
    Status,
    Validated,
)
from evsys_runtime.experiment.estimate.results import (
    ComparedArms,
    ComparedMetric,
    ComparedSide,
    Comparing,
    Design,
    Neighbour,
    Planned,
    PlannedArm,
    PlannedScoring,
)
from evsys_runtime.experiment.insight.results import (
    Context,
    Finding,
    Fit,
    Next,
    NextStep,
    Retracted,
    Spent,
    Unfinished,
    WayToFail,
    Why,
    WhyArm,
    WhyFailed,
    WhyParent,
)
from evsys_runtime.experiment.result_schemas import RESULTS, result_schema, validate_result

EVALUATION = EvaluationResult(
    benchmark="faq",
    split="val",
    step=10,
    status="completed",
    metrics={"pass@1": MetricValue(value=0.5, low=0.4, high=0.6, n=10), "pass@9": MetricValue(value=None)},
    task_rewards={"t1": (1.0, 0.0)},
    clusters={"t1": "c"},
    breakdown={"topic": {"a": {"pass@1": MetricValue(value=1.0)}}},
)
ARM = ArmResult(
    run_id="a-s0",
    arm="a",
    repeat=0,
    seed=1,
    status="failed",
    identity="sha256:1",
    run=RunResult(status="failed", steps=3, metrics={"loss": 0.25}, warnings=("w",)),
    evaluations=(EVALUATION,),
    failure=Failure(boundary="backend", message="m", error_type="RuntimeError"),
)
CONCLUSION = Conclusion(
    verdict=None,
    reason="r",
    comparisons=(Comparison(arm="a", outcome="unscored"),),
    extra={"any": [1, None]},
    checkpoints=(Comparison(arm="a", outcome="tie", claim="checkpoint"),),
    procedure=Procedure(level=0.05, draws=10, seed=3, numpy="2"),
)
FLAGGED = FlaggedTask(
    task_id="t1",
    match="equal",
    evidence=("instruction", "ngrams_13", "ngrams_8", "answer"),
    answer=True,
    ngrams_8=Overlap(found=3, of=4),
    ngrams_13=Overlap(found=1, of=1),
    rows_matched=1,
    closest=(MatchedRow(row=7, row_id="r", ngrams=3, instruction=True, near=False, answer=True),),
)
CHECKED = BenchmarkCheck(
    benchmark="faq",
    split="val",
    tasks=9,
    whole_text_only=1,
    not_compared=0,
    unused={},
    flagged=(FLAGGED,),
)
PAST = PastExperiment(
    experiment_id="e",
    status="crashed",
    tags=("t",),
    comparisons=(Comparison(arm="a", outcome="win", effect=0.5),),
    usage=Usage(trained_tokens=3),
)
PAST_RUN = PastRun(experiment_id="e", run_id="a-s0", status="failed", usage=Usage())
CHANGED = Difference(path="algorithm.params.steps", one="3", other=None)
EXAMPLES = {
    "plan": Planned(
        name="n",
        config="c.yaml",
        runs=1,
        concurrent=1,
        arms=(
            PlannedArm(
                arm="a",
                runs=1,
                algorithm="sft",
                model="m",
                backend="mock",
                unknown=("w",),
            ),
        ),
        scorings=(PlannedScoring(benchmark="faq", split="val", tasks=10, num_samples=1),),
        design=Design(
            metric="faq.pass@1",
            direction="max",
            baseline="base_model",
            minimum_effect=0.1,
            comparisons=1,
            runs=1,
            level=0.05,
            claim="checkpoint",
            tasks=10,
            units=10,
            clustered=False,
            smallest_p=0.002,
            notes=("n",),
        ),
        neighbours=(
            Neighbour(arm="a", experiment_id="e", other_arm="b", same_seeds=False, differences=(CHANGED,)),
        ),
    ),
    "compare": Comparing(
        one=ComparedSide(name="e", experiment_id="e"),
        other=ComparedSide(name="f/a-s0", experiment_id="f", run_id="a-s0", steps=3),
        arms=(ComparedArms(one="a", other="b", differences=(CHANGED,)),),
        metrics=(ComparedMetric(benchmark="faq", split="val", metric="pass@1", direction="max", arms="a"),),
        warnings=("w",),
    ),
    "context": Context(
        project="p",
        about=None,
        experiments=3,
        runs=4,
        verdicts={},
        metrics={},
        goals={},
        spent=Spent(cost_usd=1.5, unpriced=1, trained_tokens=9, sampled_tokens=8, seconds=2.5),
        retracted=(Retracted(experiment="e", reason="r", resting=("f",)),),
        supported=(Finding(name="e/a", effect=(0.5, None, None), says="recipe 4x9"),),
        failures=(WayToFail(way="failed backend/X", runs=2, arms=1, latest="e"),),
        unfinished=(Unfinished(experiment="g", status="crashed"),),
        fit=Fit(limit=400, tokens=399),
    ),
    "retract": Retracting(experiment_id="e", time="t", reason="r", withdrawn=False, resting=("f",)),
    "audit": audit_of(
        "e",
        "SUPPORTED",
        [
            AuditCheck(
                part="files", about="record", name="config_hash", state="ok", recorded="a", recomputed="a"
            ),
            AuditCheck(
                part="numbers",
                about="a",
                name="effect",
                state="differs",
                recorded=0.2,
                recomputed=0.1,
                tolerance=1e-9,
            ),
            AuditCheck(part="verdict", about="experiment", name="verdict", state="unchecked", detail="d"),
        ],
    ),
    "status": Status(
        experiment_id="e",
        status="running",
        cursor=3,
        pid=1,
        max_concurrent_arms=2,
        runs=(RunState(run="a", arm="a", status="running", phase="train", step=1, loss=0.5),),
    ),
    "request": Requested(experiment_id="e", ok=True, runs=("a",)),
    "validate": Validated(valid=True, arms=("a",), runs=1, warnings=("w",)),
    "preview": Previewed(
        rows=(
            PreviewedSequence(
                row_id="r", tokens=2, trained_tokens=1, spans=(PreviewSpan(text="t", trained=True, tokens=1),)
            ),
        ),
        dropped={},
        not_read=None,
    ),
    "launch": Launched(
        event="launch", experiment_id="e", directory="d", pid=1, control=ControlPlace(socket="s", port=None)
    ),
    "schema": Described(of="kinds", names=("metric",), outline="o"),
    "wait": Waited(
        experiment_id="e",
        status="running",
        reason="event",
        cursor=2,
        exit_code=0,
        event=Event(
            seq=2,
            at="2026-01-01T00:00:00Z",
            event="run.started",
            run="a-s0",
            attempt=1,
            facts={"total_steps": 9},
        ),
    ),
    "why": Why(
        experiment_id="e",
        arm=None,
        status="completed",
        verdict="REFUTED",
        reason="r",
        metric="m",
        direction="max",
        baseline="base_model",
        minimum_effect=0.1,
        arms=(WhyArm(comparison=Comparison(arm="a", outcome="tie"), says="s"),),
        failed=(
            WhyFailed(
                run_id="a-s0",
                status="failed",
                way="w",
                message="m",
                place=None,
                hint=None,
                steps=3,
                runs_on_record=2,
            ),
        ),
        changed=(WhyParent(arm="a", parent_arm="b", differences=(CHANGED,)),),
    ),
    "next": Next(
        total=2,
        steps=(
            NextStep(
                kind="confirm",
                experiment="e",
                arm="a",
                learns="l",
                needs="n",
                worth=1.0,
                config={},
            ),
        ),
    ),
    "history": History(
        records="r",
        index=None,
        full_text="like",
        total=1,
        experiments=(PAST,),
        runs=(PAST_RUN,),
        near=(NearArm(experiment_id="e", arm="a", near_to="b", distance=0.5, differences=(CHANGED,)),),
    ),
    "show": Shown(
        directory="d",
        experiment=PAST,
        conclusion=CONCLUSION,
        ancestors=("p",),
        runs=(
            ShownRun(
                past=PAST_RUN,
                attempts=(Attempt(n=1),),
                scores=(
                    Scored(benchmark="faq", split="val", step=3, metric="m", score=MetricValue(value=1.0)),
                ),
                files=(RecordFile(path="run.json", bytes=7),),
                result=ARM,
            ),
        ),
    ),
    "reindex": Reindexed(
        records="r",
        index="i",
        full_text="fts5",
        experiments=1,
        runs=1,
        dry=0,
        seconds=0.5,
        unreadable=(Unreadable(experiment_id="e", run_id=None, problem="torn"),),
    ),
    "run_result": ARM,
    "data_check": DataCheck(
        flagged=1,
        datasets=(
            DatasetCheck(
                source="train.jsonl",
                arms=("a",),
                repeats=(0,),
                rows=8,
                unused={},
                benchmarks=(CHECKED,),
            ),
        ),
    ),
    "cache_why": Lookups(
        lookups=(
            Lookup(
                run="a-s0",
                benchmark="faq",
                step=10,
                wanted=9,
                scoring="sha256:1",
                ingredients={"seed": 1},
                nearest={"run": "r", "differences": [{"path": "seed", "wanted": 1, "found": 2}]},
            ),
        )
    ),
    "cache_info": StoreInfo(path="results.sqlite", scorings=1, rollouts=2, size=3, most_bytes=4),
    "conclusion": CONCLUSION,
    "experiment_result": ExperimentResult(
        experiment_id="e",
        name="n",
        status="partial",
        directory="d",
        conclusion=CONCLUSION,
        arms=(ARM,),
        exit_code=1,
    ),
}


def paths(tree, path=()):
    """Every place of a mapping that is a class, not free keys."""
    free = {
        "metrics",
        "task_rewards",
        "clusters",
        "breakdown",
        "extra",
        "facts",
        "test_looks",
        "ingredients",
        "nearest",
    }
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield (*path, key)
            if key not in free:
                yield from paths(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from paths(value, (*path, index))


def inner(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def refused(tree, name):
    validator = jsonschema.Draft202012Validator(result_schema(name))
    by_schema = not validator.is_valid(tree)
    try:
        validate_result(tree, name)
    except (ConfigError, StoreError):
        by_us = True
    else:
        by_us = False
    assert by_schema == by_us
    return by_us


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_fits_its_schema_and_comes_back(name):
    schema = result_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    tree = result_tree(EXAMPLES[name])
    assert tree["format"] == 1
    assert not refused(tree, name)
    assert read_as(RESULTS[name], tree) == EXAMPLES[name]


@pytest.mark.parametrize("name", RESULTS)
def test_no_field_may_be_absent_at_any_depth(name):
    tree = result_tree(EXAMPLES[name])
    places = list(paths(tree))
    assert len(places) >= 5
    for place in places:
        changed = copy.deepcopy(tree)
        del inner(changed, place[:-1])[place[-1]]
        assert refused(changed, name), place


@pytest.mark.parametrize("name", RESULTS)
def test_unknown_fields_and_other_formats_are_refused(name):
    tree = result_tree(EXAMPLES[name])
    assert refused({**tree, "other": 1}, name)
    assert refused({**tree, "format": 2}, name)
    assert refused({**tree, "warnings": "one"}, name)


def test_what_is_absent_is_named_with_its_path():
    tree = result_tree(ARM)
    del tree["evaluations"][0]["metrics"]["pass@1"]["low"]
    with pytest.raises(
        StoreError, match=r"lacks \$\.evaluations\[0\]\.metrics\.pass@1\.low; .*null, never absent"
    ):
        validate_result(tree, "run_result")


def test_an_unknown_result_is_refused():
    with pytest.raises(StoreError, match="known: run_result, conclusion, experiment_result"):
        result_schema("verdict")


def test_a_number_that_is_not_finite_is_null_where_null_may_stand():
    conclusion = Conclusion(
        verdict=None, reason="r", comparisons=(Comparison(arm="a", outcome="tie", effect=math.nan),)
    )
    tree = result_tree(conclusion)
    assert tree["comparisons"][0]["effect"] is None
    assert not refused(tree, "conclusion")


def test_final_metrics_that_are_not_finite_become_warnings_in_every_arm():
    import attrs

    odd = attrs.evolve(ARM, run=RunResult(status="failed", steps=1, metrics={"loss": math.inf}))
    tree = result_tree(attrs.evolve(EXAMPLES["experiment_result"], arms=(odd, ARM)))
    assert not refused(tree, "experiment_result")
    assert tree["arms"][0]["run"]["metrics"] == {}
    assert tree["arms"][0]["run"]["warnings"] == ["metric 'loss' wasn't finite at the end"]
    assert tree["arms"][1]["run"]["metrics"] == {"loss": 0.25}


def test_a_conclusion_with_two_intervals_is_read_with_the_one_that_holds_for_all_arms():
    tree = result_tree(CONCLUSION)
    comparison = tree["comparisons"][0]
    assert {"low", "high", "level"} <= comparison.keys()
    del comparison["level"]
    comparison |= {"low": 0.1, "high": 0.3, "corrected_low": 0.05, "corrected_high": 0.35}
    found = read_as(Conclusion, tree).comparisons[0]
    assert (found.low, found.high, found.level) == (0.05, 0.35, None)
