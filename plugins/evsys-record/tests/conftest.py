"""Tests of the record: files are written for real, but nobody waits for the disk."""

import time
from pathlib import Path

import pytest

from evsys.types import (
    ArmResult,
    Comparison,
    Conclusion,
    EvaluationResult,
    ExperimentResult,
    Failure,
    MetricValue,
    RunResult,
    Usage,
)
from evsys_record.experiment_record import ExperimentRecord

MOMENT = 1_767_270_896.0  # 2026-01-01 12:34:56 UTC


class Past:
    """Writes records of experiments as a run writes them, without running anything."""

    def __init__(self, experiments: Path) -> None:
        self.experiments = experiments
        self.made = 0

    def begin(
        self,
        name="sweep",
        *,
        arms=("a",),
        algorithm="evsys-algo-sft/sft",
        model="evsys/tiny",
        dry=False,
        **facts,
    ):
        """An experiment under way; each begins a minute after the one before."""
        planned = [{"run_id": f"{arm}-s0", "arm": arm, "repeat": 0} for arm in arms]
        facts = {"arms": planned, "success_metric": "faq.pass@1", "direction": "max", "tags": [], **facts}
        moment = MOMENT + 60 * self.made
        self.made += 1
        hypothesis = facts.pop("hypothesis", None)
        facts["hypothesis"] = hypothesis
        record = ExperimentRecord.create(
            self.experiments,
            name,
            b"version: 1\n",
            hypothesis=hypothesis,
            facts=facts,
            moment=moment,
            dry=dry,
        )
        began = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(moment))
        record.note(created=began)
        run = {
            "algorithm": {"kind": algorithm},
            "model": {"name": model},
            "backend": {"kind": "evsys-backend-mock/mock"},
        }
        record.write_resolved([{**each, "run": run} for each in planned])
        return record

    def train(self, record, arm="a", *, score=0.5, status="completed", failure=None, attempt=1, cost=0.25):
        """A run from its first attempt, or its next, to its result."""
        run = record.run(f"{arm}-s0", facts={"arm": arm, "repeat": 0, "data": {"fingerprint": "sha256:d"}})
        if len(run.attempts) < attempt:
            run.start_attempt("start" if attempt == 1 else "resume", parent=attempt - 1 or None)
        run.close()
        metrics = {"pass@1": MetricValue(value=score, low=score - 0.1, high=score + 0.1, n=10)}
        common = {"benchmark": "faq", "split": "val", "status": "completed"}
        before = EvaluationResult(
            **common, step=0, metrics={"pass@1": MetricValue(value=0.1, low=0.0, high=0.2)}
        )
        after = EvaluationResult(**common, step=9, metrics=metrics)
        failed = failure and Failure(
            boundary="backend", message=failure, error_type="RuntimeError", place="x.py:3"
        )
        result = ArmResult(
            run_id=f"{arm}-s0",
            arm=arm,
            repeat=0,
            seed=7,
            status=status,
            identity=f"sha256:{arm}",
            run=RunResult(status=status, steps=9),
            evaluations=(before, after),
            failure=failed,
            attempt=attempt,
            seconds=2.5,
            usage=Usage(trained_tokens=100, prompt_tokens=10, completion_tokens=1, cost_usd=cost),
        )
        run.write_result(result)
        return run

    def end(self, record, *, status="completed", verdict="SUPPORTED", arms=(), cost=0.25, **facts):
        """What an experiment ends with; `arms` maps an arm to its outcome and effect."""
        compared = tuple(
            Comparison(
                arm=arm, outcome=outcome, before=0.1, after=0.1 + effect, effect=effect, low=0.0, high=0.9
            )
            for arm, (outcome, effect) in dict(arms).items()
        )
        best = max(compared, key=lambda each: each.effect, default=None)
        conclusion = Conclusion(
            verdict=verdict,
            reason=f"it is {status}",
            metric="faq.pass@1",
            direction="max",
            baseline="base_model",
            best_arm=best and best.arm,
            comparisons=compared,
            **facts,
        )
        result = ExperimentResult(
            experiment_id=record.experiment_id,
            name=record.facts["name"],
            directory=str(record.directory),
            status=status,
            conclusion=conclusion,
            seconds=3.5,
            usage=Usage(trained_tokens=100, cost_usd=cost),
        )
        record.write_result(result, "It is so.")
        return record

    def whole(
        self,
        name="sweep",
        *,
        arm="a",
        outcome="win",
        effect=0.4,
        status="completed",
        verdict="SUPPORTED",
        cost=0.25,
        **facts,
    ):
        """An experiment of one run from its beginning to its end."""
        record = self.begin(name, arms=(arm,), **facts)
        self.train(record, arm, score=0.1 + effect, cost=cost)
        return self.end(record, status=status, verdict=verdict, arms={arm: (outcome, effect)}, cost=cost)


@pytest.fixture
def past(tmp_path):
    return Past(tmp_path / ".evsys" / "experiments")
