"""Which states of a run stay on the server, also where the run was cut off and resumed."""

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
    params: {{learning_rate: 0.05, steps: 8, save_every: 2, batch_size: 4, group_size: 4, lora_rank: 4, max_tokens: 4}}
  backend: {{kind: tinker, params: {{provider: evsys, base_url: "{base_url}", ttl: 7200}}}}
callbacks: [{{kind: faults}}]
"""

CODE = """
from pathlib import Path

from evsys import register_callback, register_verifier

HERE = Path(__file__).parent


@register_verifier("steps")
def steps(model_output, expected, params):
    # The reward of each sampling is what the test has said, so that it is known which state is the best when.
    return float((HERE / "reward").read_text()) + (ord(model_output[:1] or "a") % 2) * 0.01


@register_callback("faults")
class Faults:
    def evsys_step_finished(self, ctx, step):
        (HERE / "reward").write_text(str((HERE / "rewards").read_text().split()[step]))
        if (HERE / f"interrupt-{ctx.attempt}-{step}").exists():
            raise KeyboardInterrupt
"""


def kept(base_url: str) -> dict[int, bool]:
    """By step, whether the state of it stays for good."""
    answer = JsonApi(base_url=base_url).get("/api/v1/checkpoints?limit=100", seconds=10)
    found = answer.json()["checkpoints"]
    paths = {
        one["tinker_path"]: one["expires_at"] is None
        for one in found
        if "/weights/step-" in one["tinker_path"]
    }
    return {int(path.rpartition("/")[2].split("-")[1]): forever for path, forever in sorted(paths.items())}


@pytest.mark.parametrize(
    ("rewards", "cut_off", "whole"),
    [
        pytest.param(
            "5 5 4 4 9 9 9 9 9 9",
            {2: True, 4: True},
            {2: False, 4: False, 6: False, 8: True},
            id="the best is beaten",
        ),
        pytest.param(
            "9 9 5 5 0 0 0 0 0 0",
            {2: True, 4: True},
            {2: True, 4: False, 6: False, 8: True},
            id="the best stays",
        ),
    ],
)
def test_a_resumed_run_keeps_for_good_its_last_state_and_its_best(
    serve, tmp_path: Path, rewards: str, cut_off: dict[int, bool], whole: dict[int, bool]
):
    server, project = serve(), Project(tmp_path)
    project.code("faults", CODE)
    project.tasks([(f"t{i:02d}", f"say {c}", c) for i, c in enumerate("abcdefghijkl")], "steps")
    source = project.root / "src"
    (source / "rewards").write_text(rewards)
    (source / "reward").write_text(rewards.split()[0])
    (source / "interrupt-1-5").touch()
    experiment = project.experiment(
        RUN.format(base_url=server.base_url),
        metadata="metadata: {hypothesis: states are kept}\n",
        skip_grader_check=True,
        no_cache=True,
    )
    try:
        first = experiment.run()
    except KeyboardInterrupt:
        first = experiment.result
    assert kept(server.base_url) == cut_off
    second = Experiment.resume(first.directory, quiet=True).run()
    assert second.arms[0].status == "completed"
    assert kept(server.base_url) == whole
