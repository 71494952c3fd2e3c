"""What an experiment's file keeps secret, and results without it: they are printed and piped into files, too."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import batched

import attrs

from evsys.errors import DataError
from evsys.types import ArmResult, Failure, RunResult
from evsys_runtime.config import placeholders
from evsys_runtime.config.plan import Plan
from evsys_runtime.record.secrets import REDACTED, Redactor, is_secret_name

__all__ = ["redactor_of", "refuse_secret_rows", "said_overrides", "without_secrets"]

_LOOKED_AT = 256
"""Rows that are looked at together."""


def redactor_of(plan: Plan) -> Redactor:
    """Knows the secrets of the environment, the values that the file asks for by `${NAME}`, and those given by `--set`.

    A value that is part of the record's own path is none: hiding it would break what is written.
    """
    folder = str(plan.project_root / plan.experiment.output_dir)
    asked = {name: os.environ.get(name, "") for _, name in placeholders.find(plan.document.tree)}
    given = {path: value for path, value in map(_split, plan.overrides) if is_secret_name(_last(path))}
    hidden = {name: value for name, value in {**asked, **given}.items() if value and value not in folder}
    return Redactor.from_environment(extra=hidden)


def said_overrides(plan: Plan) -> list[str]:
    """The overrides as the record tells them: without the values of secrets."""
    return [
        f"{path}={REDACTED}" if is_secret_name(_last(path)) and not placeholders.names_in(value) else text
        for text, (path, value) in zip(plan.overrides, map(_split, plan.overrides), strict=True)
    ]


def refuse_secret_rows(lines: Iterable[bytes], redactor: Redactor) -> None:
    """Refuse rows in which a secret stands: the record keeps them as they are.

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


def without_secrets(result: ArmResult, redactor: Redactor) -> ArmResult:
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


def _split(override: str) -> tuple[str, str]:
    path, _, value = override.partition("=")
    return path, value


def _last(path: str) -> str:
    return path.rpartition(".")[2]
