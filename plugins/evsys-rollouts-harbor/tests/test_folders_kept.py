"""What a run of the engine leaves on disk."""

import pytest
from rollout_parts import Asking, chat_tasks, policy, run

from evsys.types import RolloutLimits
from evsys_rollouts_harbor.engine import HarborEngine


class Every(Asking):
    """Crashes on every other task."""

    async def run(self, task, model, tools, ctx):
        if int(task.task_id[1:]) % 2:
            raise RuntimeError("odd")
        return await super().run(task, model, tools, ctx)


def test_training_rollouts_leave_no_file(scratch, tmp_path):
    rollouts = run(HarborEngine(max_retries=0), chat_tasks(6), policy(agent=Every(), num_samples=2))
    assert all("files" not in rollout.metadata for rollout in rollouts)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["scratch"]


@pytest.mark.parametrize(("keep", "good", "failed"), [("all", 2, 2), ("errors", 0, 2)])
def test_an_evaluation_keeps_some_folders_of_each_kind(scratch, tmp_path, keep, good, failed):
    limits = RolloutLimits(directory=tmp_path / "files", keep=keep)
    engine = HarborEngine(kept_folders=2, max_retries=0)
    rollouts = run(engine, chat_tasks(10), policy(agent=Every()), limits)
    kept = [rollout for rollout in rollouts if "files" in rollout.metadata]
    assert sum(rollout.error is None for rollout in kept) == good
    assert sum(rollout.error is not None for rollout in kept) == failed
    assert len(list((tmp_path / "files").iterdir())) == good + failed
    for rollout in kept:
        folder = tmp_path / rollout.metadata["files"]
        assert {"config.json", "result.json", "trial.log"} <= {entry.name for entry in folder.iterdir()}
        assert (folder / "exception.txt").exists() == (rollout.error is not None)


def test_what_is_kept_holds_the_instruction_and_no_expectation(scratch, tmp_path):
    from evsys.types import HarborTask, VerifierSpec

    spec = VerifierSpec(name="exact_match", expected="the expected answer")
    tasks = [HarborTask(task_id="t", instruction="the question", verifier=spec)]
    [rollout] = run(HarborEngine(), tasks, policy(), RolloutLimits(directory=tmp_path / "files"))
    text = "".join(
        f.read_text(encoding="utf-8") for f in (tmp_path / rollout.metadata["files"]).rglob("*.json")
    )
    assert "the question" in text
    assert "the expected answer" not in text
