"""`rl` that stays near its starting weights, on a server: those are there again after a resume, whatever the server has become."""

import json
from pathlib import Path

import pytest
from small_project import Project

from evsys_backend_tinker.http_json import JsonApi
from evsys_runtime.experiment import Experiment

pytest.importorskip("evsys_algo_rl")

RUN = """
run:
  data: {{source_kind: jsonl, path: tasks.jsonl}}
  model: {{name: evsys/tiny}}
  algorithm:
    kind: rl
    params: {{learning_rate: 0.05, steps: 6, save_every: 2, batch_size: 4, group_size: 4, lora_rank: 4, max_tokens: 4,
      kl_coef: 0.1, kl_estimator: {estimator}}}
  backend: {{kind: tinker, params: {{provider: evsys, base_url: "{base_url}"}}}}
callbacks: [{{kind: faults}}]
"""

CODE = """
from pathlib import Path

from evsys import register_callback, register_verifier


@register_verifier("vowels")
def vowels(model_output, expected, params):
    return sum(letter in "aeioustrnlmdhcp" for letter in model_output[:4]) / 4


@register_callback("faults")
class Faults:
    def evsys_step_finished(self, ctx, step):
        if (Path(__file__).parent / f"interrupt-{ctx.attempt}-{step}").exists():
            raise KeyboardInterrupt
"""

METADATA = "metadata: {hypothesis: it stays near}\n"


@pytest.fixture
def lab(tmp_path):
    def make(name):
        (tmp_path / name).mkdir()
        project = Project(tmp_path / name)
        project.code("faults", CODE)
        project.tasks([(f"t{i:02d}", f"say {c}", c) for i, c in enumerate("abcdefghijkl")], "vowels")
        return project

    return make


def run(project, base_url, estimator="k3"):
    text = RUN.format(base_url=base_url, estimator=estimator)
    experiment = project.experiment(text, metadata=METADATA, skip_grader_check=True, no_cache=True)
    try:
        return experiment.run()
    except KeyboardInterrupt:
        return experiment.result


def metrics(result):
    """The numbers of each step that counts, without those of a clock."""
    lines = [
        json.loads(line)
        for path in Path(result.directory).glob("runs/*/training/metrics.jsonl")
        for line in path.read_text("utf-8").splitlines()
    ]
    found = {line["step"]: line["values"] for line in lines}  # the later attempt's last
    return [
        {name: value for name, value in found[step].items() if not name.endswith("/seconds")}
        for step in sorted(found)
    ]


@pytest.mark.parametrize("estimator", ["k1", "k3"])
@pytest.mark.parametrize("restarted", [False, True], ids=["the server goes on", "the server was restarted"])
def test_a_run_that_is_resumed_stays_near_the_weights_that_it_began_with(serve, lab, estimator, restarted):
    server = serve()
    whole = run(lab("whole"), server.base_url, estimator)
    assert whole.arms[0].status == "completed"

    halved = lab("halved")
    (halved.root / "src/interrupt-1-3").touch()
    first = run(halved, server.base_url, estimator)
    assert (first.arms[0].status, first.arms[0].run.steps) == ("cancelled", 3)
    if restarted:
        server.kill()
        server.start()
    [arm] = (second := Experiment.resume(first.directory, quiet=True).run()).arms
    assert (arm.status, arm.attempt, arm.run.steps) == ("completed", 2, 6)
    assert metrics(second) == metrics(whole)
    if estimator == "k3":
        divergence = [step["kl_reference"] for step in metrics(second)]
        assert divergence[0] == pytest.approx(0.0, abs=1e-9)
        assert min(divergence[1:]) > 0


def test_both_sessions_of_a_resumed_run_are_ended(serve, lab):
    """The starting weights are a model of their own on the server; neither is left behind."""
    server, project = serve(), lab("run")
    (project.root / "src/interrupt-1-3").touch()
    first = run(project, server.base_url)
    assert Experiment.resume(first.directory, quiet=True).run().status == "completed"
    api = JsonApi(base_url=server.base_url)
    found = api.post("/api/v1/sessions/search", {}, seconds=10).json()["sessions"]
    assert len(found) == 3
    assert [session["status"]["type"] for session in found].count("active") == 0
