"""The command line in process: what it prints where, and the exit code it ends with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evsys_cli.main import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document of a command; of `run` and `resume` with `--full` the result in the last line, else that line."""
        last = self.out.rstrip("\n").rpartition("\n")[2]
        document = json.loads(last if last.startswith('{"event":') else self.out)
        return document.get("result", document)


@pytest.fixture
def evsys(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Outcome]:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Outcome:
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(exit_.value.code, captured.out, captured.err)

    return call


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A valid experiment on the mock backend."""
    rows = [{"prompt": f"say {c}", "completion": c} for c in "abcdefgh"]
    tasks = [
        {
            "task_id": f"t{i:02d}",
            "instruction": f"say a, take {i}",
            "verifier": {"name": "exact_match", "expected": "a"},
        }
        for i in range(12)
    ]
    for name, lines in (("train.jsonl", rows), ("tasks.jsonl", tasks)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    path = tmp_path / "config.yaml"
    path.write_text(
        """version: 1
name: trial
metadata:
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 4}
run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.05, steps: 4, batch_size: 4}}
  backend: {kind: mock}
""",
        encoding="utf-8",
    )
    return path
