"""Callbacks with one fault each."""

import asyncio

from evsys.types import RunResult


class Misspelt:
    def evsys_step_finishd(self, ctx, step):
        pass


class ExpectsAnotherType:
    def evsys_run_finished(self, ctx, result: RunResult):
        pass


class Fails:
    def evsys_step_finished(self, ctx, step, metrics):
        raise KeyError("accuracy")


class CancelsTheRun:
    def evsys_run_finished(self, ctx, result):
        raise asyncio.CancelledError


class ChangesMetrics:
    def evsys_step_finished(self, ctx, step, metrics):
        metrics["mine"] = 1.0


class ListensToNothing:
    def on_step_finished(self, ctx, step, metrics):
        self.step = step
