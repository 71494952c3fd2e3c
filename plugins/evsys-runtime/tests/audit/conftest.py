"""Records of all kinds of experiments, made by the mock backend once, and copied for each test that changes one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import pytest

from evsys_runtime.experiment import Experiment

ANSWERS = {"a": "x", "b": "y"}
PLUGINS = """
from evsys import register_verifier


@register_verifier("closeness")
class Closeness:
    '''Partial credit: a later letter is a better one.'''

    reward_range = (0.0, 2.0)

    def __call__(self, model_output, expected, params):
        return 2.0 * (ord(model_output[:1] or "a") % 26) / 26


@register_verifier("fragile")
class Fragile:
    '''Right for one answer, and broken by some.'''

    def __call__(self, model_output, expected, params):
        if model_output in params["breaks_on"]:
            raise RuntimeError("no verdict")
        return float(model_output == expected)
"""

ONE = """
run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: STEPS, lora_rank: 4, batch_size: 4, learning_rate: RATE}}
  backend: {kind: mock}
"""
TWO = """
matrix:
  axes:
    algorithm.params.learning_rate: [0.1, RATE]
base_run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: STEPS, lora_rank: 4, batch_size: 4}}
  backend: {kind: mock}
"""
CHAIN = """
continual:
  maximum_loss: LIMIT
  datasets:
    - {name: val, path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
    - {name: other, benchmark: val, path: other.jsonl, transforms: [{kind: jsonl_to_chat}]}
    - {name: third, benchmark: val, path: third.jsonl, transforms: [{kind: jsonl_to_chat}]}
""" + ONE.replace("  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}\n", "")


def right_or_capital(_number: int, letter: str) -> dict[str, object]:
    return {"name": "regex_match", "expected": f"^({ANSWERS[letter]}|[A-Z])"}


def close(_number: int, _letter: str) -> dict[str, object]:
    return {"name": "closeness", "expected": ""}


def always_broken(_number: int, letter: str) -> dict[str, object]:
    return {"name": "fragile", "expected": letter, "params": {"breaks_on": ["", "x", "y"]}}


def broken_where_it_got_worse(number: int, letter: str) -> dict[str, object]:
    """Six tasks get better; the one that gets worse has no score after training."""
    expected = ANSWERS[letter] if number < 6 else "" if number == 6 else "never"
    breaks_on = [ANSWERS[letter]] if number == 6 else []
    return {"name": "fragile", "expected": expected, "params": {"breaks_on": breaks_on}}


@attrs.frozen(kw_only=True)
class Kind:
    """An experiment: what its file says besides, the benchmark entry, the arms, and how each of the tasks is verified."""

    metadata: str = ""
    rest: str = ""
    entry: str = ""
    metric: str = "mean_reward"
    arms: str = ONE
    steps: int = 20
    rate: float = 0.1
    verifier: Callable[[int, str], Mapping[str, object]] = right_or_capital
    tasks: int = 36

    @property
    def config(self) -> str:
        """The experiment file."""
        arms = self.arms.replace("STEPS", str(self.steps)).replace("RATE", str(self.rate))
        entry = f"{{name: val, path: tasks.jsonl, max_tokens: 2{self.entry}}}"
        return (
            "version: 1\nname: audited\nmetadata:\n"
            f"  success_metric: val.{self.metric}\n  benchmark:\n    - {entry}\n{self.metadata}{self.rest}{arms}"
        )


DRAWN = ", temperature: 1.5, num_samples: 2"
KINDS = {
    "binary": Kind(),
    "a margin": Kind(metadata="  minimum_effect: 0.2\n"),
    "partial credit": Kind(verifier=close, entry=", temperature: 1.0"),
    "several samples": Kind(entry=", num_samples: 3, temperature: 1.5", metric="pass_rate"),
    "pass at k": Kind(
        entry=", num_samples: 3, temperature: 1.5, metrics: [pass@2, {kind: best_of_k, params: {k: 2}}]",
        metric="pass@2",
    ),
    "clusters": Kind(entry=f"{DRAWN}, cluster_key: page"),
    "five runs": Kind(rest="n_repeats: 5\n", entry=DRAWN, steps=4),
    "two recipes": Kind(
        rest="n_repeats: 4\n", entry=DRAWN, arms=TWO, metadata="  baseline: learning_rate-0.1\n", rate=0.001
    ),
    "two arms": Kind(arms=TWO, entry=DRAWN, rate=0.05),
    "contrast": Kind(
        arms=TWO,
        entry=DRAWN,
        metadata="  contrast: {arm: learning_rate-0.001, against: learning_rate-0.1}\n  claim: worse\n",
        rate=0.001,
    ),
    "confirmed": Kind(arms=TWO, rate=0.05, entry=DRAWN, rest="confirm: {seeds: 2}\ncontrol: {repeats: 2}\n"),
    "no_worse": Kind(metadata="  claim: no_worse\n  margin: 0.1\n", entry=DRAWN),
    "equal": Kind(metadata="  claim: equal\n  margin: 0.3\n", entry=DRAWN, steps=1, rate=0.0001),
    "equal, binary": Kind(
        metadata="  claim: equal\n  margin: 0.4\n", entry=", temperature: 1.5", steps=1, rate=0.0001
    ),
    "on the floor": Kind(metadata="  claim: equal\n  margin: 0.3\n", steps=1, rate=0.0001),
    "missing samples": Kind(verifier=broken_where_it_got_worse),
    "invalid": Kind(verifier=always_broken),
    "selected": Kind(entry=f"{DRAWN}, run_every: 10"),
    "continual": Kind(arms=CHAIN.replace("LIMIT", "0.95"), entry=", temperature: 1.5"),
    "continual, several seeds": Kind(
        arms=CHAIN.replace("LIMIT", "0.9"),
        entry=f"{DRAWN}, cluster_key: page",
        rest="n_repeats: 2\n",
        verifier=close,
    ),
    "continual, ended early": Kind(
        arms=CHAIN.replace("maximum_loss: LIMIT", "minimum_retention: 0.9"), entry=DRAWN
    ),
    "search": Kind(
        arms=TWO.replace("[0.1, RATE]", "{low: 0.01, high: 0.2, log: true}"),
        entry=DRAWN,
        rest="search: {kind: random, params: {arms: 3}}\nconfirm: {seeds: 2}\n",
    ),
}


@pytest.fixture(scope="session")
def _records(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def record(name: str) -> Path:
        if name not in made:
            made[name] = _run(KINDS[name], tmp_path_factory.mktemp("kind"))
        return made[name]

    return record


@pytest.fixture
def record_of(_records: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """The folder of an experiment of a kind, to be changed."""

    def copy(name: str) -> Path:
        folder = _records(name)
        project = folder.parents[2]
        shutil.copytree(project, tmp_path / "project")
        return tmp_path / "project" / folder.relative_to(project)

    return copy


def _run(kind: Kind, root: Path) -> Path:
    rows = [{"prompt": f"say {c}", "completion": ANSWERS[c]} for c in "aab" * 4]
    (root / "src").mkdir()
    (root / "pyproject.toml").write_text("[tool.evsys]\n", encoding="utf-8")
    (root / "src" / "own.py").write_text(PLUGINS, encoding="utf-8")
    others = {
        f"{name}.jsonl": [{"prompt": f"say {c}", "completion": answers[c]} for c in "aab" * 4]
        for name, answers in (("other", {"a": "q", "b": "r"}), ("third", {"a": "s", "b": "y"}))
    }
    tasks = [_task(kind, number) for number in range(kind.tasks)]
    for name, lines in {"train.jsonl": rows, "tasks.jsonl": tasks, **others}.items():
        (root / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (root / "config.yaml").write_text(kind.config, encoding="utf-8")
    result = Experiment.from_yaml(root / "config.yaml", quiet=True).run()
    return Path(result.directory)


def _task(kind: Kind, number: int) -> dict[str, object]:
    letter = "ab"[number % 2]
    return {
        "task_id": f"t{number:02d}",
        "instruction": f"case {number}, now {letter}",
        "metadata": {"page": str(number * number % 13)},
        "verifier": dict(kind.verifier(number, letter)),
    }
