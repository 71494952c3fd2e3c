"""Callbacks with one fault each."""


class Misspelt:
    def evsys_step_finishd(self, ctx, step):
        pass


class Fails:
    def evsys_step_finished(self, ctx, step, metrics):
        raise KeyError("accuracy")


class EndsTheProcess:
    def evsys_run_finished(self, ctx, result):
        raise SystemExit(0)


class ChangesMetrics:
    def evsys_step_finished(self, ctx, step, metrics):
        metrics["mine"] = 1.0
