"""Records of experiments as runs write them, without running anything."""

from pathlib import Path
from typing import Any

from evsys.types import (
    ArmResult,
    Comparison,
    Conclusion,
    ExperimentResult,
    Message,
    Rollout,
    RunResult,
    Score,
    Usage,
)
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.run_record import RunRecord

MOMENT = 1_767_270_896.0  # 2026-01-01 12:34:56 UTC


class Lab:
    """The folder of all experiments of a project; each begins a minute after the one before."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.experiments = project / ".evsys" / "experiments"
        self.made = 0

    def begin(self, name: str = "trial", *, arms: tuple[str, ...] = ("a",), **facts: Any) -> ExperimentRecord:
        planned = [{"run_id": f"{arm}-s0", "arm": arm, "repeat": 0} for arm in arms]
        facts = {"arms": planned, "success_metric": "faq.pass@1", "direction": "max", "tags": [], **facts}
        record = ExperimentRecord.create(
            self.experiments,
            name,
            b"version: 1\n",
            hypothesis=facts.get("hypothesis"),
            facts=facts,
            moment=MOMENT + 60 * self.made,
        )
        self.made += 1
        run = {
            "algorithm": {"kind": "evsys-algo-sft/sft"},
            "model": {"name": "evsys/tiny"},
            "backend": {"kind": "evsys-backend-mock/mock"},
        }
        record.write_resolved([{**each, "run": run} for each in planned])
        return record

    def run(
        self, record: ExperimentRecord, arm: str = "a", *, steps: int = 3, rollouts: int = 2
    ) -> RunRecord:
        run = record.run(f"{arm}-s0", facts={"arm": arm, "repeat": 0})
        run.start_attempt()
        for step in range(1, steps + 1):
            run.metrics(step, {"loss": 1 / step, "grad_norm": float("nan")})
        for sample in range(rollouts):
            run.rollout(
                steps, rollout(f"task-{sample}", float(sample % 2)), phase="validation", benchmark="faq"
            )
        return run

    def end(self, record: ExperimentRecord, *, verdict: str = "SUPPORTED", effect: float = 0.2) -> None:
        results = []
        for run in record.runs():
            arm = run.facts["arm"]
            common = {"run_id": run.run_id, "arm": arm, "repeat": 0, "seed": 0, "identity": f"sha256:{arm}"}
            result = ArmResult(**common, status="completed", run=RunResult(status="completed", steps=3))
            writer = record.run(run.run_id)
            writer.write_result(result)
            writer.close()
            results.append(result)
        comparison = Comparison(
            arm="a",
            before=0.5,
            after=0.5 + effect,
            effect=effect,
            low=effect - 0.1,
            high=effect + 0.1,
            outcome="win",
        )
        conclusion = Conclusion(
            verdict=verdict,
            reason="a beats base_model",
            metric="faq.pass@1",
            baseline="base_model",
            best_arm="a",
            comparisons=(comparison,),
        )
        record.write_result(
            ExperimentResult(
                experiment_id=record.experiment_id,
                name=str(record.facts["name"]),
                directory=str(record.directory),
                status="completed",
                arms=tuple(results),
                conclusion=conclusion,
                usage=Usage(cost_usd=0.5),
                seconds=60.0,
                exit_code=0,
            ),
            "It holds.",
        )

    def whole(
        self, name: str = "trial", *, verdict: str = "SUPPORTED", effect: float = 0.2, **facts: Any
    ) -> ExperimentRecord:
        record = self.begin(name, **facts)
        self.run(record)
        self.end(record, verdict=verdict, effect=effect)
        return record


def rollout(task: str, score: float, text: str = "yes") -> Rollout:
    messages = (Message(role="user", content="Is it?"), Message(role="assistant", content=text))
    return Rollout(task_id=task, sample_index=0, messages=messages, score=Score(value=score), output=text)
