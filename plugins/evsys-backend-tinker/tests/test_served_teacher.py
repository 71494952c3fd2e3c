"""`opd` with its teacher on a server: what that says of the student's answers is what the same model says in process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_project import Project

from evsys_record.files import read_json
from evsys_runtime.experiment import Experiment

pytest.importorskip("evsys_algo_distill")

SFT = """
  data: {source_kind: jsonl, path: train.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.02, steps: 6, batch_size: 4, lora_rank: 4}}
  backend: BACKEND
"""

OPD = """
  data: {source_kind: jsonl, path: train.jsonl}
  model: {name: evsys/tiny}
  algorithm:
    kind: opd
    params: {learning_rate: 0.003, steps: 4, save_every: 2, batch_size: 4, lora_rank: 4, max_tokens: 6, group_size: 2}
  backend: {kind: mock}
  teacher: {model: {name: evsys/tiny, init_from_checkpoint: FOLDER}, backend: BACKEND}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def over(base_url: str) -> str:
    return f"{{kind: tinker, params: {{provider: evsys, base_url: '{base_url}'}}}}"


def run(project: Project, text: str, **places: str) -> Any:
    for name, value in places.items():
        text = text.replace(name, value)
    return project.experiment(f"run:{text}", metadata="").run()


def trained(project: Project, backend: str) -> str:
    """The last checkpoint of a short training, as its record has it."""
    result = run(project, SFT, BACKEND=backend)
    assert result.arms[0].status == "completed"
    folder = Path(result.directory) / "runs/run-s0" / result.arms[0].run.final_checkpoint
    return str(folder.relative_to(project.root))


def steps(result: Any) -> list[dict[str, float]]:
    path = Path(result.directory) / "runs/run-s0/training/metrics.jsonl"
    found = [json.loads(line)["values"] for line in path.read_text("utf-8").splitlines()]
    return [
        {name: value for name, value in one.items() if not name.startswith("teacher_cost")} for one in found
    ]


def test_a_checkpoint_on_the_server_teaches_what_it_teaches_in_process(mock_server, project):
    here = run(project, OPD, FOLDER=trained(project, "{kind: mock}"), BACKEND="{kind: mock}")
    on_it = over(mock_server.base_url)
    folder = trained(project, on_it)
    there = run(project, OPD, FOLDER=folder, BACKEND=on_it)
    assert (here.arms[0].status, there.arms[0].status) == ("completed", "completed")
    assert steps(there) == steps(here)
    role = read_json(Path(there.directory) / "runs/run-s0/run.json")["roles"]["teacher"]
    assert (role["backend"], role["weights"]) == ("tinker", folder)


def address_of(project: Project, folder: str) -> str:
    """Where the server keeps the weights of a checkpoint."""
    state = read_json(project.root / folder / "manifest.json")["manifest"]["state"]
    return next(value for value in state.values() if str(value).startswith("tinker://"))


def test_a_teacher_by_the_address_of_its_weights(mock_server, project):
    here = run(project, OPD, FOLDER=trained(project, "{kind: mock}"), BACKEND="{kind: mock}")
    on_it = over(mock_server.base_url)
    there = run(project, OPD, FOLDER=f"'{address_of(project, trained(project, on_it))}'", BACKEND=on_it)
    assert there.arms[0].status == "completed"
    assert steps(there) == steps(here)


def test_the_same_weights_at_the_address_for_other_clients(mock_server, project):
    """What the Tinker protocol and the completions endpoint of one server say of the same tokens."""
    on_it = over(mock_server.base_url)
    folder = trained(project, on_it)
    there = run(project, OPD, FOLDER=folder, BACKEND=on_it)
    params = f"model: '{address_of(project, folder)}', base_url: '{mock_server.base_url}/v1'"
    exact = "extra: {max_tokens: 0, logprobs: 0}"
    service = f"inference: {{kind: openai_compatible, params: {{{params}, {exact}}}}}"
    text = OPD.replace(", init_from_checkpoint: FOLDER", "").replace("backend: BACKEND", service)
    by_api = run(project, text)
    assert by_api.arms[0].status == "completed"
    assert steps(by_api) == steps(there)


def test_student_and_teacher_on_one_server(mock_server, project):
    on_it = over(mock_server.base_url)
    both = OPD.replace("backend: {kind: mock}", f"backend: {on_it}")
    folder = trained(project, on_it)
    there = run(project, both, FOLDER=folder, BACKEND=on_it)
    here = run(project, OPD, FOLDER=folder, BACKEND=on_it)
    assert there.arms[0].status == "completed"
    assert steps(there) == steps(here)


def test_a_run_with_a_teacher_on_a_server_is_resumed(serve, project):
    """The teacher is made ready anew: what became of its session in the meantime doesn't matter."""
    server = serve()
    on_it = over(server.base_url)
    folder = trained(project, on_it)
    whole = run(project, OPD, FOLDER=folder, BACKEND=on_it)
    project.code("stop", STOP)
    text = OPD.replace("FOLDER", folder).replace("BACKEND", on_it)
    experiment = project.experiment(f"run:{text}", metadata="", extra="callbacks: [{kind: stop}]\n")
    with pytest.raises(KeyboardInterrupt):
        experiment.run()
    server.kill()
    server.start()
    result = Experiment.resume(experiment.result.directory, quiet=True).run()
    assert (result.arms[0].status, result.arms[0].attempt) == ("completed", 2)
    assert result.arms[0].run.metrics == whole.arms[0].run.metrics


STOP = """
from evsys import register_callback


@register_callback("stop")
class Stop:
    def evsys_step_finished(self, ctx, step):
        if ctx.attempt == 1 and step == 3:
            raise KeyboardInterrupt
"""


def test_a_batch_in_parts_is_trained_as_in_process(mock_server, project):
    parts = SFT.replace("lora_rank: 4", "lora_rank: 4, micro_batch_tokens: 30")
    here, there = (run(project, parts, BACKEND=at) for at in ("{kind: mock}", over(mock_server.base_url)))
    whole = run(project, SFT, BACKEND=over(mock_server.base_url))
    assert there.arms[0].status == "completed"
    assert there.arms[0].run.metrics == here.arms[0].run.metrics
    assert there.arms[0].run.metrics == pytest.approx(dict(whole.arms[0].run.metrics), rel=1e-6)
