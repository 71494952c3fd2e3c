"""Callbacks that keep their contract, each written in another way; the module itself is an ambient plugin."""

from dataclasses import dataclass
from typing import ClassVar

from evsys import hookimpl


class Plain:
    def evsys_step_finished(self, step, metrics):
        metrics.get("loss")


class Async:
    async def evsys_run_started(self, ctx, total_steps, estimate):
        self.expected = estimate["seconds"] if estimate else None

    async def evsys_evaluation_finished(self, ctx, evaluation):
        return evaluation.status


class Marked:
    @hookimpl(tryfirst=True)
    def evsys_run_finished(self, result):
        self.status = result.status

    @hookimpl(specname="evsys_run_failed")
    def failed(self, ctx, failure):
        self.status = failure.message


class TakesEverything:
    def evsys_experiment_finished(self, **arguments):
        self.said = sorted(arguments)


@dataclass
class Mark:
    """Listens to nothing, and says so: its presence alone says something."""

    conformance: ClassVar = {"mark": True}
    keep: str = "all"


def evsys_experiment_started(experiment_id, directory, arms):
    """Listens for the module."""
    return len(arms)


def evsys_write_conclusion(result, conclusion):
    return None
