"""Running an experiment, and reading what came of it."""

import asyncio
from pathlib import Path
from typing import Literal, assert_type

from evsys_sdk import (
    ArmResult,
    BackendError,
    BudgetExceeded,
    ConfigError,
    DataError,
    EvsysError,
    Experiment,
    ExperimentResult,
    PluginError,
    Problem,
    RunError,
    RunResult,
    StoreError,
    Workspace,
    arun_experiment,
    run_experiment,
)


def told(config: Path) -> list[str]:
    """A line for each score of each arm."""
    result = Experiment.from_yaml(config, overrides=["run.backend.kind=mock"], quiet=True).run()
    assert_type(result, ExperimentResult)
    assert_type(
        result.conclusion.verdict,
        Literal["INVALID", "SUPPORTED", "CANDIDATE", "REFUTED", "INCONCLUSIVE"] | None,
    )
    lines: list[str] = []
    for arm in result.arms:
        assert_type(arm, ArmResult)
        for evaluation in arm.evaluations:
            for name, metric in evaluation.metrics.items():
                assert_type(name, str)
                assert_type(metric.value, float | None)
                lines.append(f"{arm.run_id} {evaluation.benchmark}@{evaluation.step} {name}={metric.value}")
    for comparison in result.conclusion.comparisons:
        assert_type(comparison.outcome, Literal["win", "tie", "loss", "inconclusive", "unscored"])
        if comparison.effect is not None and comparison.low is not None:
            lines.append(f"{comparison.arm} {comparison.effect + comparison.low:.0f}")
    return lines


def losses(config: Path) -> list[float]:
    """The last loss of each arm."""
    runs = run_experiment(config)
    assert_type(runs, list[RunResult])
    return [run.metrics["loss"] for run in runs]


async def side_by_side(configs: list[Path]) -> list[int]:
    """Steps of the first arm of each file."""
    runs = await asyncio.gather(*(arun_experiment(config) for config in configs))
    again = await Experiment.from_yaml(configs[0], dry=True, quiet=True).arun()
    assert_type(again, ExperimentResult)
    return [first.steps for first, *_ in runs]


def explained(config: Path) -> list[str]:
    """What is wrong with a file, or with running it."""
    try:
        Experiment.from_yaml(config, quiet=True).run()
    except ConfigError as error:
        assert_type(error.problems, tuple[Problem, ...])
        return [f"{problem.path} {problem.line}: {problem.message}" for problem in error.problems]
    except DataError as error:
        return [f"{error.source}:{error.line}"]
    except (PluginError, StoreError, BudgetExceeded) as error:
        return [error.message]
    except BackendError as error:
        return [f"{error.boundary}: {error.hint}"]
    except (RunError, EvsysError) as error:
        return [str(error.exit_code)]
    return []


def rows_of(root: Path, name: str) -> int:
    """How many rows a dataset of a project has."""
    workspace = Workspace(root)
    assert_type(workspace.datasets(), list[str])
    return sum(1 for _ in workspace.pull_dataset(name).rows())
