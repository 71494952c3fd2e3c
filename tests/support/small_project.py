"""A small project on the mock backend: an arm takes some milliseconds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from evsys.types import ExperimentResult
from evsys_record.look_ledger import ledger_path
from evsys_runtime.experiment import Experiment

RUN = """
  data:
    source_kind: jsonl
    path: train.jsonl
    transforms: [{kind: jsonl_to_chat}]
  model: {name: evsys/tiny}
  algorithm:
    kind: sft
    params: {learning_rate: 0.05, steps: 6, batch_size: 4, lora_rank: 4}
  backend: {kind: mock}
"""

METADATA = """
metadata:
  hypothesis: it learns
  success_metric: val.mean_reward
  benchmark:
    name: val
    path: tasks.jsonl
    max_tokens: 4
"""


def forgotten(result: ExperimentResult) -> ExperimentResult:
    """The result, without its record and all looks: what is run next is the first look at its question."""
    shutil.rmtree(result.directory)
    ledger_path(Path(result.directory).parent).unlink(missing_ok=True)
    return result


class Project:
    """A folder with data, tasks and a config."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("train.jsonl", [{"prompt": f"say {c}", "completion": c} for c in "abcdefgh"])
        self.tasks([(f"t{i:02d}", "say a", "a") for i in range(12)])

    def write(self, name: str, rows: list[dict[str, Any]]) -> None:
        (self.root / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def tasks(
        self, tasks: list[tuple[str, str, str]], verifier: str = "exact_match", *, verbatim: bool = False
    ) -> None:
        """Tasks of (id, instruction, answer).

        Each instruction gets a number, so that no two tasks are equal and none is a training row; `verbatim` leaves them as given.
        """
        texts = [text for _, text, _ in tasks]
        again = [texts[:place].count(text) for place, text in enumerate(texts)]
        self.write(
            "tasks.jsonl",
            [
                {
                    "task_id": task_id,
                    "instruction": text if verbatim else f"{text} {number}",
                    "verifier": {"name": verifier, "expected": expected},
                }
                for (task_id, text, expected), number in zip(tasks, again, strict=True)
            ],
        )

    def code(self, name: str, text: str) -> None:
        (self.root / "src").mkdir(exist_ok=True)
        (self.root / "src" / f"{name}.py").write_text(text, encoding="utf-8")

    def config(self, text: str | None = None, *, metadata: str = METADATA, extra: str = "") -> Path:
        path = self.root / "config.yaml"
        body = f"run:{RUN}" if text is None else text
        path.write_text(f"version: 1\nname: trial\n{metadata}{body}{extra}", encoding="utf-8")
        return path

    def experiment(
        self, text: str | None = None, *, metadata: str = METADATA, extra: str = "", **options: Any
    ) -> Experiment:
        return Experiment.from_yaml(self.config(text, metadata=metadata, extra=extra), quiet=True, **options)
