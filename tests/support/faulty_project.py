"""A small project whose experiments are interrupted, or fail, where a test says so, and are taken up again."""

from __future__ import annotations

from typing import Any

from small_project import Project

from evsys.types import ExperimentResult
from evsys_runtime.experiment import Experiment

FAULTS = '''
from pathlib import Path
from evsys_sdk import SFT, register_algorithm, register_callback

HERE = Path(__file__).parent

def wanted(what):
    return (HERE / what).exists()

@register_callback("faults")
class Faults:
    """Interrupts a run at the places for which there is a file "interrupt-RUN-PLACE"."""

    def strike(self, ctx, place):
        if wanted(f"interrupt-{ctx.run_id}-{place}"):
            raise KeyboardInterrupt

    def evsys_data_prepared(self, ctx):
        self.strike(ctx, "data")

    def evsys_step_finished(self, ctx, step):
        self.strike(ctx, step)

    def evsys_checkpoint_saved(self, ctx, checkpoint):
        self.strike(ctx, f"saved-{checkpoint.step}")

    def evsys_evaluation_finished(self, ctx, evaluation):
        self.strike(ctx, f"scored-{evaluation.step}")
        self.strike(ctx, f"scored-{evaluation.step}-{evaluation.benchmark}")

    def evsys_run_finished(self, ctx):
        self.strike(ctx, "finished")

@register_algorithm("breaks")
class Breaks(SFT):
    """Fails at a step for which there is a file "break-RUN-STEP"."""

    async def build_batch(self, step_idx):
        if wanted(f"break-{self.ctx.run_id}-{step_idx + 1}"):
            raise RuntimeError("as it was told to")
        return await super().build_batch(step_idx)
'''


class FaultyProject:
    """Carries out experiments with the callback `faults` and the algorithm `breaks`, and `more` code beside them."""

    def __init__(self, project: Project, more: str = "") -> None:
        self.project = project
        project.code("faults", FAULTS + more)

    def fault(self, *names: str) -> None:
        """What goes wrong from here on: the files that FAULTS looks for, and no others."""
        for path in (self.project.root / "src").glob("*-*"):
            path.unlink()
        for name in names:
            (self.project.root / "src" / name).touch()

    def resume(self, directory: Any, *names: str, **options: Any) -> ExperimentResult | None:
        self.fault(*names)
        return self.carried_out(Experiment.resume(directory, quiet=True, **options))

    def carried_out(self, experiment: Experiment) -> ExperimentResult | None:
        """What it came to, be it cut off."""
        try:
            return experiment.run()
        except KeyboardInterrupt:
            return experiment.result
