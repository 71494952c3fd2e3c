"""The answer of the agent `training-decider`: the next experiment, with what it is expected to show, or the end of the work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from evsys import option, schema_for_config, structure
from evsys.errors import ConfigError, Problem

if TYPE_CHECKING:
    from evsys_runtime.config.plan import Plan

__all__ = ["Decision", "ExpectedEffect", "check_decision", "decision_schema"]


@attrs.frozen(kw_only=True)
class ExpectedEffect:
    """The prediction of a hypothesis, in the units of the metric."""

    metric: str = option(
        ..., "The success metric, as the experiment file has it: `benchmark.metric`.", min_len=1
    )
    at_least: float = option(
        ..., "Smallest difference that would be worth acting on: `minimum_effect`.", gt=0
    )


@attrs.frozen(kw_only=True)
class Decision:
    """A decision: to run an experiment file, or to stop."""

    format: Literal[1] = option(1, "The version of this format.")
    action: Literal["run", "stop"] = option(..., "Run the experiment, or end the work.")
    why: str = option(..., "The reason on record, in a sentence or two.", min_len=1)
    experiment: str | None = option(None, "The experiment file, relative to the project; with `run`.")
    hypothesis: str | None = option(
        None, "The expected outcome of the experiment and its reason; with `run`."
    )
    expected_effect: ExpectedEffect | None = option(
        None, "The effect that the hypothesis predicts; with `run`."
    )
    builds_on: tuple[str, ...] = option((), "IDs of the experiments that it builds on.")
    changed_files: tuple[str, ...] = option((), "Files written for it, relative to the project.")


def decision_schema() -> dict[str, Any]:
    """JSON Schema of a decision."""
    return schema_for_config(Decision)


def check_decision(path: Path, root: Path) -> Decision:
    """Read a decision, and compare it with the experiment file that it names.

    Args:
        path: the decision, a JSON document.
        root: the project.

    Raises:
        ConfigError: it isn't a decision, it lacks its hypothesis or expected effect, or its experiment file has problems or
            says something else.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{path} isn't a JSON document: {exc}") from exc
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected a JSON object, got {type(tree).__name__}")
    decision: Decision = structure(Decision, tree)
    problems = [attrs.evolve(each, source=str(path)) for each in _missing(decision)]
    if not problems and decision.experiment is not None:
        from evsys_runtime.config.validate import load_experiment

        plan = load_experiment(root / decision.experiment)
        problems = [attrs.evolve(each, source=str(path)) for each in _differences(decision, plan)]
    if problems:
        raise ConfigError(problems)
    return decision


def _missing(decision: Decision) -> Iterator[Problem]:
    if decision.action == "stop":
        return
    for name in ("experiment", "hypothesis", "expected_effect"):
        if not getattr(decision, name):
            yield Problem(path=f"$.{name}", message=f"a decision to run needs its {name.replace('_', ' ')}")


def _differences(decision: Decision, plan: Plan) -> Iterator[Problem]:
    """The differences between the decision and its experiment file."""
    metadata, effect = plan.experiment.metadata, decision.expected_effect
    said = {
        "$.hypothesis": (decision.hypothesis, metadata.hypothesis, "metadata.hypothesis"),
        "$.expected_effect.metric": (
            effect and effect.metric,
            str(plan.success or None),
            "metadata.success_metric",
        ),
        "$.expected_effect.at_least": (
            effect and effect.at_least,
            metadata.claimed_margin,
            "metadata.minimum_effect",
        ),
    }
    for path, (decided, written, key) in said.items():
        if decided != written:
            yield Problem(
                path=path,
                message=f"is {decided!r}, but {key} of {decision.experiment} is {written!r}",
                hint="make both the same",
            )
