"""A small project and the real command line over it: what a person sees, the exit code, and what is left on the disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from evsys_cli.main import main

CONFIG = """\
version: 1
name: trial
metadata:
  benchmark: {name: val, path: tasks.jsonl, max_tokens: 4}
run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.05, steps: 4, batch_size: 4, lora_rank: 4}}
  backend: {kind: mock}
"""
ROWS = [{"prompt": f"say {letter}", "completion": letter} for letter in "abcdefgh"]


def task(number: int = 0, **changes: Any) -> dict[str, Any]:
    verifier = {"name": "exact_match", "expected": "a"}
    return {
        "task_id": f"t{number:02d}",
        "instruction": f"say a, take {number}",
        "verifier": verifier,
    } | changes


def tasks(count: int = 12, **changes: Any) -> list[dict[str, Any]]:
    return [task(number, **changes) for number in range(count)]


def lines(rows: Sequence[Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


class Outcome:
    """What a command printed and how it ended. `said` is both streams, the project's folder cut out of paths."""

    def __init__(self, code: int, out: str, err: str, root: Path) -> None:
        self.code = code
        self.out, self.err = out.replace(f"{root}/", ""), err.replace(f"{root}/", "")
        self.said = self.out + self.err

    @property
    def json(self) -> Any:
        """The document of a command; of `run` and `resume` with `--full` the result in the last line, else that line."""
        last = self.out.rstrip("\n").rpartition("\n")[2]
        document = json.loads(last if last.startswith('{"event":') else self.out)
        return document.get("result", document)

    def refused(self, code: int, *patterns: str) -> None:
        """It ended with `code`, said each of the patterns, and wasn't surprised itself."""
        assert self.code == code, self.said
        for pattern in patterns:
            assert re.search(pattern, self.said), f"{pattern!r} isn't in\n{self.said}"
        assert "Traceback" not in self.err
        assert "fault in evsys" not in self.err

    def passed(self) -> None:
        assert self.code == 0, self.said


class Lab:
    """The project of one test."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.capsys = capsys
        self.write("config.yaml", CONFIG)
        self.write("train.jsonl", lines(ROWS))
        self.write("tasks.jsonl", lines(tasks()))

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    def config(self, *changes: tuple[str, str], text: str | bytes | None = None, also: str = "") -> None:
        """The usual experiment with some of its text replaced, or another text."""
        if text is None:
            text = CONFIG
            for old, new in changes:
                assert old in text, old
                text = text.replace(old, new)
            text += also
        self.write("config.yaml", text)

    def code(self, text: str) -> None:
        """The project's own plugins."""
        self.write("src/plugins.py", text)

    def evsys(self, *arguments: str | Path) -> Outcome:
        """The command line in this process."""
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        captured = self.capsys.readouterr()
        return Outcome(exit_.value.code, captured.out, captured.err, self.root)

    def run(self, *arguments: str) -> Outcome:
        full = ("--full",) if "--json" in arguments else ()
        return self.evsys("run", "config.yaml", "--quiet", *arguments, *full)

    def validate(self, *arguments: str) -> Outcome:
        return self.evsys("validate", "config.yaml", *arguments)

    def process(self, *arguments: str, env: Mapping[str, str] | None = None, **options: Any) -> Outcome:
        """The command line in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "evsys_cli.main", *arguments],
            cwd=self.root,
            capture_output=True,
            check=False,
            env={**os.environ, **(env or {})},
            **options,
        )
        out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        return Outcome(done.returncode, out, err, self.root)

    # --- what is left ------------------------------------------------------------------------------------------------

    def files(self, below: str = ".evsys") -> list[Path]:
        return [path for path in (self.root / below).rglob("*") if path.is_file()]

    def nothing_was_written(self) -> None:
        assert not (self.root / ".evsys").exists()

    def records(self) -> list[Path]:
        return sorted((self.root / ".evsys/experiments").iterdir())

    def record(self) -> Path:
        (found,) = self.records()
        return found

    def facts(self, name: str = "experiment.json") -> Any:
        return json.loads((self.record() / name).read_text(encoding="utf-8"))

    def nothing_is_half_written(self) -> None:
        """Every file of the record is whole: no temporary name, every document and every line parses as UTF-8 JSON."""
        for path in self.files():
            assert not path.name.endswith(".tmp"), path
            if path.suffix == ".json":
                assert isinstance(json.loads(path.read_bytes().decode("utf-8")), dict)
            if path.suffix == ".jsonl":
                for line in path.read_bytes().splitlines():
                    json.loads(line.decode("utf-8"))
