"""`jsonl_to_tasks`: columns to a task with its verifier."""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys_runtime import RowProblem
from evsys_std.transforms.columns import (
    MISSING,
    Row,
    as_text,
    getter,
    history_messages,
    no_column,
    system_messages,
    with_input,
)
from evsys_std.transforms.template_text import CompiledTemplate, template_or_column

__all__ = ["JsonlToTasks"]

_INSTRUCTION_COLUMNS = ("instruction", "prompt", "question", "messages")
_EXPECTED_COLUMNS = ("expected", "answer", "completion", "output", "response")
_ID_COLUMNS = ("task_id", "id")


class JsonlToTasks:
    """Makes `task_id`, `instruction` and `verifier` of a row; all columns are kept and land in the task's metadata.

    Columns that aren't named are looked for: the instruction in instruction, prompt, question, messages; what is
    expected in expected, answer, completion, output, response; the id in task_id, id, and if there is none it is
    made from a hash of instruction and expectation, so it stays the same wherever the row is. What `jsonl_to_chat`
    puts around an instruction that it finds (`input`, `context`, `history`, `system`) goes around it here as well.
    """

    name: ClassVar[str] = "jsonl_to_tasks"
    streaming: ClassVar[bool] = True

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `jsonl_to_tasks`."""

        instruction_column: str | None = option(None, "column with the instruction, a string or messages")
        instruction_template: str | None = option(None, "instruction as a string with {column} in it")
        expected_column: str | None = option(None, "column with the expected value for the verifier")
        expected_template: str | None = option(None, "expectation as a string with {column} in it")
        id_column: str | None = option(None, "column with the task's id")
        verifier: str = option("exact_match", "name of the verifier", min_len=1)
        verifier_params: dict[str, Any] = option(attrs.Factory(dict), "settings of the verifier")
        system_prompt: str | None = option(None, "system message put before an instruction given as text")
        missing: Literal["error", "drop"] = option(
            "error", "a row without what is needed: fail, or leave it out and count it"
        )

    def __init__(self, **fields: Any) -> None:
        self.config = config = self.Config(**fields)
        self.dropped: Counter[str] = Counter()
        self._instruction = template_or_column(
            "instruction", config.instruction_template, config.instruction_column
        )
        self._expected = template_or_column("expected", config.expected_template, config.expected_column)

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        self.dropped = Counter()
        for row in rows:
            try:
                task = self._task(row)
            except RowProblem as exc:
                if self.config.missing == "error":
                    raise
                self.dropped[exc.kind] += 1
            else:
                yield task

    def _task(self, row: Row) -> dict[str, Any]:
        config = self.config
        instruction = _value(
            row, self._instruction, config.instruction_column, _INSTRUCTION_COLUMNS, "instruction"
        )
        expected = _value(row, self._expected, config.expected_column, _EXPECTED_COLUMNS, "expectation")
        task_id = _task_id(row, config.id_column, instruction, expected)
        if isinstance(instruction, str):
            instruction = self._whole(instruction, row)
        params = copy.deepcopy(config.verifier_params)
        verifier = {"name": config.verifier, "expected": expected, "params": params}
        return {**row, "task_id": task_id, "instruction": instruction, "verifier": verifier}

    def _whole(self, instruction: str, row: Row) -> str | list[Any]:
        """The instruction with what `jsonl_to_chat` puts around the same row in training."""
        config = self.config
        before = [] if config.system_prompt is None else [{"role": "system", "content": config.system_prompt}]
        if self._instruction is None and config.instruction_column is None:
            before = [*(before or system_messages(row)), *history_messages(row)]
            if row.get("instruction") == instruction:
                instruction = with_input(instruction, row)
        return [*before, {"role": "user", "content": instruction}] if before else instruction


def _task_id(row: Row, named: str | None, instruction: Any, expected: Any) -> str:
    for column in _ID_COLUMNS if named is None else (named,):
        found = getter(column)(row)
        if found is not MISSING and found is not None and found != "":
            return as_text(found)
    if named is not None:
        raise no_column(named, row)
    content = as_text([instruction, expected]).encode("utf-8")
    return f"t-{hashlib.sha256(content).hexdigest()[:16]}"


def _value(
    row: Row, template: CompiledTemplate | None, named: str | None, known: tuple[str, ...], what: str
) -> Any:
    if template is not None:
        return template.render(row)
    for column in known if named is None else (named,):
        value = getter(column)(row)
        if value is not MISSING and value is not None and value != "":
            return value
    if named is not None:
        raise (
            no_column(named, row)
            if getter(named)(row) is MISSING
            else RowProblem(f"column {named!r} is empty")
        )
    raise RowProblem(
        f"no {what}", f"no {what} in {', '.join(map(str, row))}; name its column or give a template"
    )
