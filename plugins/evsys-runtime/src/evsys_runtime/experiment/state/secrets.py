"""The secrets of an experiment's file, and results without them, since they are printed and piped into files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import batched
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import DataError
from evsys_record.secrets import Redactor, is_secret_name
from evsys_runtime.config import overrides, placeholders
from evsys_runtime.config.plan import Plan

if TYPE_CHECKING:
    from evsys.types import ArmResult, Failure, RunResult

__all__ = ["redact_override", "redact_result", "redactor_of", "refuse_secret_rows", "secret_key"]

_LOOKED_AT = 256
"""Rows looked at together."""


def redactor_of(plan: Plan) -> Redactor:
    """Knows the secrets of the environment, the values that the file asks for by `${NAME}`, and those given by `--set`.

    A value that is part of the record's own path is none: hiding it would break what is written.
    """
    folder = str(plan.project_root / plan.experiment.output_dir)
    asked = {name: os.environ.get(name, "") for _, name in placeholders.find(plan.document.tree)}
    given = {}
    for override in plan.overrides:
        name, value = secret_key(override)
        for number, secret in enumerate(_secrets(value, name)):
            given[f"{overrides.option(override)}{f' ({number + 1})' if number else ''}"] = secret
    hidden = {name: value for name, value in {**asked, **given}.items() if value and value not in folder}
    return Redactor.from_environment(extra=hidden)


def redact_override(override: str) -> str:
    """A `path=value` as recorded: without the values of secrets."""
    name, value = secret_key(override)
    if not any(True for _ in _secrets(value, name)):
        return override
    masked = Redactor().tree(value, name)
    text = masked if isinstance(masked, str) else json.dumps(masked, ensure_ascii=False)
    return f"{override.partition('=')[0]}={text}"


def secret_key(override: str) -> tuple[str, Any]:
    """The key that an override sets, or the secret one that it is set below, and its value."""
    segments, value = overrides.split(override)
    keys = [segment for segment in segments if isinstance(segment, str)]
    return next(filter(is_secret_name, keys), keys[-1]), value


def _secrets(value: Any, name: str) -> Iterator[str]:
    """Texts below a key that names a secret, as `Redactor.tree` hides them; `${NAME}` doesn't contain one."""
    if isinstance(value, str):
        if value and is_secret_name(name) and not placeholders.names_in(value):
            yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, name if is_secret_name(name) else str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _secrets(item, name)


def refuse_secret_rows(lines: Iterable[bytes], redactor: Redactor) -> None:
    """Refuse rows with a secret: the record keeps them unchanged.

    Raises:
        DataError: names the row and the secret, not its value.
    """
    for number, batch in enumerate(batched(lines, _LOOKED_AT)):
        if not redactor.leaked(b"".join(batch).decode("utf-8")):
            continue
        for index, line in enumerate(batch, number * _LOOKED_AT):
            for name in redactor.leaked(line.decode("utf-8")):
                raise DataError(
                    f"row {index} holds the value of {name}, and the record keeps the rows",
                    hint="let the transform that made the row leave it out",
                )


def redact_result(result: ArmResult, redactor: Redactor) -> ArmResult:
    """The result with every text that a plugin may have written free of secrets."""
    evaluations = tuple(
        attrs.evolve(
            evaluation,
            failure=_failure(evaluation.failure, redactor),
            warnings=tuple(map(redactor.text, evaluation.warnings)),
        )
        for evaluation in result.evaluations
    )
    run = result.run
    if run is not None:
        run = _run(attrs.evolve(run, evaluations=evaluations), redactor)
    return attrs.evolve(
        result,
        run=run,
        evaluations=evaluations,
        failure=_failure(result.failure, redactor),
        warnings=tuple(map(redactor.text, result.warnings)),
    )


def _run(run: RunResult, redactor: Redactor) -> RunResult:
    return attrs.evolve(
        run,
        failure=_failure(run.failure, redactor),
        warnings=tuple(map(redactor.text, run.warnings)),
        stop_reason=run.stop_reason and redactor.text(run.stop_reason),
    )


def _failure(failure: Failure | None, redactor: Redactor) -> Failure | None:
    if failure is None:
        return None
    texts = {
        name: text and redactor.text(text)
        for name in ("message", "hint", "traceback")
        for text in [getattr(failure, name)]
    }
    return attrs.evolve(failure, **texts)
