"""Checkpoint selection over the wire: the state of the selected step is loaded again once training is over."""

from pathlib import Path

import pytest
from small_project import Project

SPOILS = """
from evsys_sdk import SFT, register_algorithm

@register_algorithm("spoils")
class Spoils(SFT):
    '''Learns the first half of its rows for 8 steps, then the second.'''

    async def build_batch(self, step_idx):
        batch = await super().build_batch(step_idx)
        half = len(self._rendered) // 2
        rows = self._rendered[:half] if step_idx < 8 else self._rendered[half:]
        weight = 1.0 / sum(row.weight for row in rows)
        batch.data = [datum for row in rows for datum in row.data(weight)]
        return batch
"""
METADATA = """
metadata:
  success_metric: val.mean_reward
  benchmark:
    - {name: val, path: tasks.jsonl, max_tokens: 2, run_every: 2}
    - {name: final, path: tasks.jsonl, max_tokens: 2, split: test}
"""
RUN = """
run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm:
    kind: spoils
    params: {learning_rate: 0.1, steps: 16, batch_size: 8, lora_rank: 4, save_every: 0, lr_schedule: constant}
  backend: BACKEND
"""


@pytest.mark.parametrize("keep", ["null", "3"])
def test_a_run_on_a_server_is_tested_on_its_selected_checkpoint(serve, tmp_path, keep):
    project = Project(tmp_path)
    project.write("train.jsonl", [{"prompt": "say a", "completion": answer} for answer in "aaaabbbb"])
    project.tasks([(f"t{i:02d}", "say a", "a") for i in range(24)])
    project.code("plugins", SPOILS)
    params = f"{{provider: evsys, base_url: '{serve().base_url}', keep_states: {keep}}}"
    backend = f"{{kind: tinker, params: {params}}}"
    result = project.experiment(RUN.replace("BACKEND", backend), metadata=METADATA).run()
    (arm,) = result.arms
    assert (result.status, arm.failure) == ("completed", None)
    selected = arm.run.selected_checkpoint
    found = {(e.benchmark, e.step): e.metrics["mean_reward"].value for e in arm.evaluations}
    assert selected.step < 16
    assert found["final", selected.step] == found["val@selected", selected.step] == 1.0
    assert found["val", 16] == 0.0
    assert {path.name for path in (Path(arm.run_dir) / "checkpoints").iterdir()} == {str(selected.step), "16"}
