"""Experiments that never ran: their record is written down as plots read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_project import Project

from evsys.types import ArmResult, EvaluationResult, MetricValue, RunResult, Usage
from evsys_plots.material import Material, Run
from evsys_plots.style import settings


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def drawing() -> Iterator[None]:
    """matplotlib as it is while plots are drawn."""
    with settings():
        yield


@pytest.fixture
def scoring() -> Callable[..., EvaluationResult]:
    """Makes one scoring of the entry `val` by its mean reward."""

    def make(
        step: int,
        rewards: Mapping[str, float],
        *,
        low: float | None = None,
        high: float | None = None,
        **facts: Any,
    ) -> EvaluationResult:
        value = sum(rewards.values()) / len(rewards) if rewards else None
        facts = {"benchmark": "val", "split": "val", "status": "completed", **facts}
        return EvaluationResult(
            step=step,
            metrics={"mean_reward": MetricValue(value=value, low=low, high=high, n=len(rewards))},
            task_rewards={task: (reward,) for task, reward in rewards.items()},
            **facts,
        )

    return make


@pytest.fixture
def run() -> Callable[..., Run]:
    def make(
        arm: str,
        repeat: int = 0,
        *,
        evaluations: Sequence[EvaluationResult] = (),
        status: str = "completed",
        seconds: float = 1.0,
        usd: float | None = None,
        purpose: str = "candidate",
        **facts: Any,
    ) -> Run:
        stage = facts.get("stage", "")
        result = ArmResult(
            run_id=f"{arm}-s{repeat}{stage}",
            arm=arm,
            repeat=repeat,
            seed=repeat,
            status=status,  # type: ignore[arg-type]
            identity="sha256:0",
            purpose=purpose,
            run=RunResult(status=status),  # type: ignore[arg-type]
            evaluations=tuple(evaluations),
            seconds=seconds,
            usage=Usage(cost_usd=usd),
        )
        return Run(arm=arm, repeat=repeat, evaluations=tuple(evaluations), result=result, **facts)

    return make


@pytest.fixture
def material() -> Callable[..., Material]:
    def make(*runs: Run, last: Sequence[str] = (), **conclusion: Any) -> Material:
        told = {
            "metric": "val.mean_reward",
            "baseline": "base_model",
            "verdict": "INCONCLUSIVE",
            **conclusion,
        }
        return Material(
            name="trial",
            dry=False,
            metric="val.mean_reward",
            conclusion=told,
            verdict=told["verdict"],
            runs=runs,
            last=frozenset(last),
        )

    return make


@pytest.fixture
def compared() -> Callable[..., dict[str, Any]]:
    def make(
        arm: str, effect: float | None, low: float | None = None, high: float | None = None, **facts: Any
    ) -> dict[str, Any]:
        outcome = "unscored" if effect is None else "inconclusive"
        return {
            "arm": arm,
            "effect": effect,
            "low": low,
            "high": high,
            "outcome": outcome,
            "before": 0.0,
            **facts,
        }

    return make
