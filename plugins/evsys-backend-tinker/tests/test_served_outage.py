"""A server that dies under an experiment: the runs to come wait for it, and where it stays away they aren't begun at all."""

import json
from functools import partial
from pathlib import Path

import pytest
from small_project import METADATA, RUN, Project

from evsys.errors import BackendError
from evsys_backend_tinker import outage
from evsys_runtime.accounting.breaker import BreakerSettings

CALLBACK = """
from evsys import register_callback

@register_callback("strikes")
class Strikes:
    server = None
    back = None

    def evsys_step_finished(self, ctx, step):
        if step == 3 and ctx.run_id == "run-s0":
            type(self).server.kill()

    def evsys_run_finished(self, ctx, result):
        if type(self).back and ctx.run_id == "run-s0":
            type(self).server.start()
"""


@pytest.fixture
def project(tmp_path):
    made = Project(tmp_path)
    made.code("strikes", CALLBACK)
    return made


@pytest.fixture
def patience(monkeypatch):
    """Has experiments give a server up after so many seconds."""

    def set_to(seconds):
        settings = partial(BreakerSettings, give_up_after=seconds, cool_down=0.3, longest_cool_down=0.3)
        monkeypatch.setattr(outage, "BreakerSettings", settings)

    return set_to


def experiment(project, server, *, back):
    # Long enough for several failures, of which it takes three to call a server down, on a busy machine too.
    params = f"{{provider: evsys, base_url: '{server.base_url}', dead_after: 4}}"
    run = RUN.replace("backend: {kind: mock}", f"backend: {{kind: tinker, params: {params}}}")
    extra = "n_repeats: 3\nmax_concurrent_arms: 1\nbudget: {steps: 100}\ncallbacks: [{kind: strikes}]\n"
    made = project.experiment(
        f"run:{run.replace('steps: 6', 'steps: 6, save_every: 2')}",
        metadata=METADATA,
        extra=extra,
        skip_grader_check=True,
        no_cache=True,
    )
    strikes = made.plan.registry.get("callback", "strikes")
    strikes.server, strikes.back = server, back
    return made


def test_a_server_that_stays_away_ends_the_experiment_with_its_budget_intact(serve, project, patience):
    patience(12.0)
    server = serve()
    made = experiment(project, server, back=False)
    with pytest.raises(BackendError, match=r"the server at http://127.0.0.1:\d+ wasn't asked"):
        made.run()
    result = made.result
    assert (result.status, result.exit_code) == ("failed", 1)
    facts = json.loads(Path(result.directory, "experiment.json").read_text(encoding="utf-8"))
    assert list(facts["budget"]["runs"]) == ["run-s0"]
    assert facts["budget"]["spent"]["steps"] == 3
    [arm] = [arm for arm in result.arms if arm.status == "failed"]
    assert (arm.run_id, arm.run.steps, arm.run.final_checkpoint) == ("run-s0", 3, "checkpoints/2")
    assert "hasn't answered for" in arm.failure.message


def test_runs_to_come_wait_for_a_server_that_comes_back(serve, project, patience):
    patience(60.0)
    result = experiment(project, serve(), back=True).run()
    assert [(arm.run_id, arm.status) for arm in result.arms] == [
        ("run-s0", "failed"),
        ("run-s1", "completed"),
        ("run-s2", "completed"),
    ]
