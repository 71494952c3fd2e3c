"""An agent that reruns, renames, edits and searches until it may claim something, where nothing is true: real experiments on the mock backend.

The verifier tosses a coin whose chance belongs to the task, so that every model is as good as every other. Few sessions here, 200 with `-m slow`;
`EVSYS_NULL_SESSIONS=50:100` chooses some of them, so that several processes can share the work.
"""

import os
import random
import shutil
import sys
from pathlib import Path

import pytest

from evsys_record.marks import disqualifying, marks_of
from evsys_record.past_files import read_experiment

TASKS, MOVES = 24, 6
COIN = '''
import random

from evsys import register_verifier_fn

_tosses = {}


@register_verifier_fn("coin")
def coin(output, expected, params):
    """Chances a task by `expected`: SESSION TASK CHANCE PARTS. The n-th toss of a task is the same whoever asks."""
    session, task, chance, parts = expected.split()
    number = _tosses[session, task] = _tosses.get((session, task), 0) + 1
    rng = random.Random(f"{session} {task} {number}")
    return sum(rng.random() < float(chance) for _ in range(int(parts))) / int(parts)
'''
RUN = """
  data: {source_kind: jsonl, path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: 1, batch_size: 4, lora_rank: 4RATE}}
  backend: {kind: mock}
"""
SEARCH = """
search: {kind: random, params: {arms: 3}}
max_concurrent_arms: 1
matrix:
  axes:
    algorithm.params.learning_rate: {low: 1e-3, high: 0.2, log: true}
base_run:"""


class Agent:
    """Asks whether training pays, in one way after the other, until an experiment says so."""

    def __init__(self, project, session, parts):
        self.project, self.session, self.parts = project, session, parts
        self.rng = random.Random(f"agent {session}")
        self.entry, self.arm, self.rate, self.seed = "val", "tried", 0.01, 0
        self.claim, self.more, self.limit, self.searching = "better", "", "", False
        words = self.rng.sample(range(10_000), TASKS)
        self.rows = [
            {
                "task_id": f"t{i:02d}",
                "instruction": f"question {word}: what is {word * 7 % 997}?",
                "verifier": {
                    "name": "coin",
                    "expected": f"{session} {i} {self.rng.uniform(0.2, 0.8):.2f} {parts}",
                },
            }
            for i, word in enumerate(words)
        ]

    def supported(self):
        """Whether any of its experiments says SUPPORTED without a mark that takes it back."""
        for move in [
            self.rerun,
            *self.rng.choices([self.rerun, self.rename, self.edit, self.search], k=MOVES - 1),
        ]:
            move()
            result = self.experiment().run()
            if result.conclusion.verdict == "SUPPORTED" and not taken_back(result):
                return True
        return False

    def experiment(self):
        self.project.write(f"{self.entry}.jsonl", self.rows)
        metadata = (
            f"metadata:\n  hypothesis: {self.arm} pays\n  success_metric: {self.entry}.mean_reward\n"
            f"  claim: {self.claim}\n{self.more}"
            f"  benchmark:\n    - {{name: {self.entry}, path: {self.entry}.jsonl, max_tokens: 2{self.limit}}}\n"
        )
        run = RUN.replace("RATE", "" if self.searching else f", learning_rate: {self.rate}")
        text = (
            f"{SEARCH}{run}"
            if self.searching
            else f"runs:\n  - name: {self.arm}{run.replace(chr(10), chr(10) + '  ')}\n"
        )
        return self.project.experiment(
            text, metadata=metadata, extra=f"base_seed: {self.seed}\n", skip_grader_check=True
        )

    def rerun(self):
        self.seed += 1

    def rename(self):
        """Entry, arm, file, ids, order and spelling of the tasks."""
        self.seed += 1
        number = self.rng.randrange(1000)
        self.entry, self.arm = f"e{number}", f"a{number}"
        self.rng.shuffle(self.rows)
        self.rows = [
            {**row, "task_id": f"{number}-{i}", "instruction": f" {row['instruction'].upper()} "}
            for i, row in enumerate(self.rows)
        ]

    def edit(self):
        """The rate, the claim, its margin, or the tasks that are asked."""
        self.seed += 1
        self.searching = False
        what = self.rng.choice(["rate", "claim", "margin", "limit"])
        if what == "rate":
            self.rate = round(self.rng.uniform(0.001, 0.1), 5)
        elif what == "claim":
            self.claim = "worse" if self.claim == "better" else "better"
        elif what == "margin":
            self.more = self.rng.choice(["", "  margin: 0.01\n", "  margin: 0.05\n"])
        else:
            self.limit = self.rng.choice(["", ", limit: 16", ", num_samples: 2"])

    def search(self):
        self.seed += 1
        self.searching, self.claim, self.more = True, "better", ""


def taken_back(result):
    """Whether a mark disqualifies an experiment, other than that of the mock backend, which all have."""
    past = read_experiment(Path(result.directory)).past
    return bool(disqualifying(marks_of(past)) - {"simulated"})


@pytest.mark.parametrize(
    "sessions",
    [
        pytest.param("0:2", id="few"),
        pytest.param(
            os.environ.get("EVSYS_NULL_SESSIONS", "0:200"),
            id="many",
            marks=(pytest.mark.slow, pytest.mark.timeout(7200)),
        ),
    ],
)
def test_an_agent_that_insists_ends_with_a_supported_claim_in_at_most_5_of_100_sessions(
    project, monkeypatch, sessions
):
    monkeypatch.setenv("EVSYS_PLOTS", "off")
    project.code("coin", COIN)
    first, end = map(int, sessions.split(":"))
    wrong = list[int]()
    for session in range(first, end):
        shutil.rmtree(project.root / ".evsys", ignore_errors=True)
        if Agent(project, session, parts=1 + 3 * (session % 2)).supported():
            wrong.append(session)
        sys.stdout.write(
            f"{len(wrong)} of {session + 1 - first} sessions end with a supported claim: {wrong}\n"
        )
        sys.stdout.flush()
    assert len(wrong) <= max(1, 0.05 * (end - first))
