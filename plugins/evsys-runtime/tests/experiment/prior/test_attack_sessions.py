"""An attacker who wants a claim without a mark, where nothing is true: one that knows what the ledger of looks counts.

The verifier tosses a coin by task and answer, so that a run repeated with its seed has the same scores, and runs are as good as each other.
What each attack leaves is tested alongside; the sessions are slow.
"""

import random
import shutil
import sys

import pytest

from evsys_record.history import past_experiment
from evsys_record.index import Index
from evsys_record.marks import labels

TASKS, SCREENED, SESSIONS = 30, 8, 60
COIN = '''
import hashlib

from evsys import register_verifier_fn


@register_verifier_fn("coin")
def coin(output, expected, params):
    """Whether an answer to a task is right, by its hash: the chance belongs to the task."""
    task, chance = expected.split()
    digest = hashlib.sha256(f"{task} {output}".encode()).digest()
    return float(int.from_bytes(digest[:4], "big") / 2**32 < float(chance))
'''
RUN = """run:
  data: {source_kind: jsonl, path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: 1, batch_size: 4, lora_rank: 4, learning_rate: 0.01}}
  backend: {kind: mock}
"""
SEVERAL = f"""
matrix:
  axes:
    algorithm.params.learning_rate: {[round(0.002 * (1 + place), 3) for place in range(SCREENED)]}
base_{RUN}"""


class Attacker:
    """Chooses a run by its scores, in one of several ways, and asks about it as if for the first time."""

    def __init__(self, project, session):
        self.project, self.rng = project, random.Random(f"attacker {session}")
        self.write_tasks()

    def write_tasks(self):
        words = self.rng.sample(range(10_000), TASKS)
        self.project.write(
            "tasks.jsonl",
            [
                {
                    "task_id": f"t{i:02d}",
                    "instruction": f"question {word}: what is {word * 7 % 997}?",
                    "verifier": {"name": "coin", "expected": f"{word} {self.rng.uniform(0.3, 0.7):.2f}"},
                }
                for i, word in enumerate(words)
            ],
        )

    def ask(self, rate=0.01, *, seed=0, text=RUN, success=True, elsewhere=""):
        second = "" if success else "    - {name: same, path: tasks.jsonl, max_tokens: 3, temperature: 1.0}\n"
        metric = "  success_metric: val.mean_reward\n" if success else ""
        metadata = (
            f"metadata:\n  hypothesis: it pays\n{metric}  benchmark:\n"
            f"    - {{name: val, path: tasks.jsonl, max_tokens: 3, temperature: 1.0}}\n{second}"
        )
        experiment = self.project.experiment(
            text.replace("learning_rate: 0.01", f"learning_rate: {rate}"),
            metadata=metadata,
            extra=f"base_seed: {seed}\n{elsewhere}",
            skip_grader_check=True,
        )
        return experiment, experiment.run()

    def screen_without_a_question(self):
        """Train many, delete their record, and repeat the best."""
        experiment, result = self.ask(text=SEVERAL.replace(", learning_rate: 0.01", ""), success=False)
        shutil.rmtree(experiment.record.directory)
        return self.ask(best_rate(result))

    def search_and_repeat(self):
        """Ask about many, and then about the best one alone."""
        experiment, result = self.ask(text=SEVERAL.replace(", learning_rate: 0.01", ""))
        shutil.rmtree(experiment.record.directory)
        return self.ask(best_rate(result))

    def try_other_tasks(self):
        for _ in range(SCREENED):
            self.write_tasks()
            experiment, result = self.ask()
            if result.conclusion.verdict == "SUPPORTED":
                break
        return experiment, result

    def hide_records(self):
        """Repeat with other seeds in folders elsewhere, which are deleted."""
        for seed in range(SCREENED):
            folder = self.project.root / f"elsewhere-{seed}"
            experiment, result = self.ask(seed=seed, elsewhere=f"output_dir: {folder}\n")
            if result.conclusion.verdict == "SUPPORTED":
                break
            shutil.rmtree(folder)
        return experiment, result


def best_rate(result):
    scores = {
        arm.arm: next(each for each in reversed(arm.evaluations) if each.step).metrics["mean_reward"].value
        for arm in result.arms
    }
    return max(scores, key=scores.__getitem__).rpartition("-")[2]


def marks_of(experiment):
    """The marks of an experiment, other than those that follow from the mock backend."""
    with Index(experiment.record.directory.parent) as index:
        index.refresh()
        past = past_experiment(index, experiment.record.experiment_id)
    return [label for label in labels(past.marks) if label != "simulated"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "attack",
    [
        Attacker.screen_without_a_question,
        Attacker.search_and_repeat,
        Attacker.try_other_tasks,
        Attacker.hide_records,
    ],
)
def test_an_attacker_gets_a_supported_claim_without_a_mark_in_at_most_5_of_100_sessions(
    project, monkeypatch, attack
):
    monkeypatch.setenv("EVSYS_PLOTS", "off")
    project.code("coin", COIN)
    supported, unmarked = 0, 0
    for session in range(SESSIONS):
        shutil.rmtree(project.root / ".evsys", ignore_errors=True)
        experiment, result = attack(Attacker(project, session))
        won = result.conclusion.verdict == "SUPPORTED"
        supported += won
        unmarked += won and not marks_of(experiment)
    sys.stdout.write(
        f"{attack.__name__}: {supported} of {SESSIONS} sessions supported, {unmarked} without a mark\n"
    )
    assert unmarked <= max(1, 0.05 * SESSIONS)
