"""Secrets in what an experiment would be recorded by: its file, which is kept byte for byte, and its `--set` options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from evsys.errors import ConfigError, Problem
from evsys_record.leaks import leak, leaks_in
from evsys_record.secrets import (
    Redactor,
    address_credentials,
    could_be_no_word,
    is_secret_name,
    issued_key,
)
from evsys_runtime.config import overrides, paths, placeholders
from evsys_runtime.config.document import Document
from evsys_runtime.config.plan import Plan
from evsys_runtime.experiment.state.secrets import redact_override, redactor_of, secret_key

__all__ = ["refuse_secrets"]

_LOOKS = "this looks like a secret, and the record keeps this text"


def refuse_secrets(plan: Plan) -> None:
    """Refuse a plan whose record would contain a secret.

    Under a key that names a secret (`api_key`) one may come by `--set`, since the record hides its value.

    Raises:
        ConfigError: the place of each secret: line and key of the file, or the option that brought it.
    """
    redactor, document = redactor_of(plan), plan.document
    found = [
        *_secrets_in_file(document, redactor),
        *_secrets_in_tree(document, redactor),
        *_secrets_in_options(plan, redactor),
        *_secret_like_values(document),
    ]
    # What is told with its line needn't be told again by its looks.
    problems = {(problem.source, problem.line, problem.path): problem for problem in reversed(found)}
    if problems:
        raise ConfigError(reversed(problems.values()))


def _secrets_in_file(document: Document, redactor: Redactor) -> Iterator[Problem]:
    """Line by line, so that comments count too."""
    telling = [
        (document.locate(path), path, name)
        for path, text in _texts(document.tree)
        for name in redactor.leaked(text)
    ]
    for name, line, column in leaks_in(document.text, redactor):
        before = [(at, path) for at, path, told in telling if told == name and at <= (line, column)]
        path = max(before)[1] if before else ""
        yield leak(name, path=path, source=document.source, line=line, column=column)


def _secrets_in_tree(document: Document, redactor: Redactor) -> Iterator[Problem]:
    """Secrets that the file spells with escapes, so that its text doesn't show them."""
    shown = {name for name, _, _ in leaks_in(document.text, redactor)}
    for path, text in _texts(document.tree):
        for name in redactor.leaked(text):
            if name not in shown and not _is_set(path, document):
                problem = leak(name)
                yield document.problem(path, problem.message, problem.hint)


def _secrets_in_options(plan: Plan, redactor: Redactor) -> Iterator[Problem]:
    for override in plan.overrides:
        name, value = secret_key(override)
        kept = [redact_override(override), *(text for _, text in _texts(Redactor().tree(value, name)))]
        for secret in dict.fromkeys(secret for text in kept for secret in redactor.leaked(text)):
            yield leak(secret, source=redactor.text(overrides.option(override)))
        if issued_key(redact_override(override)) is not None:
            yield Problem(
                path="", message=_LOOKS, hint="leave it out here", source=overrides.option(override)
            )


def _secret_like_values(document: Document) -> Iterator[Problem]:
    """Values that no variable holds, but that are under the name of a secret or begin like the keys of a service."""
    told = set()
    for path, text in _texts(document.tree):
        keys = [key for key in paths.parse(path) if isinstance(key, str)] if path != "$" else []
        name = next(filter(is_secret_name, keys), None)
        plain = not placeholders.names_in(text) and (
            address_credentials(text) or (name is not None and could_be_no_word(text))
        )
        # Rows are data: a column may be called `token`.
        if (plain or issued_key(text) is not None) and "rows" not in keys and not _is_set(path, document):
            last = keys[-1] if address_credentials(text) else "API_KEY"
            variable = re.sub(r"\W+", "_", name or last).upper()
            problem = document.problem(path, _LOOKS, f"write ${{{variable}}} and export {variable}")
            told.add(problem.line)
            yield problem
    for line, text in enumerate(document.text.split("\n"), 1):
        comment = text.find("#")
        found = issued_key(text[comment:]) if comment >= 0 else None
        if found is not None and line not in told:
            place = {"line": line, "column": comment + found + 1}
            yield Problem(path="", message=_LOOKS, hint="remove it", source=document.source, **place)


def _is_set(path: str, document: Document) -> bool:
    return any(place in document.overrides for place in paths.ancestors(path))


def _texts(tree: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """Every text of a tree with its path; a key counts as a text at its own path."""
    if isinstance(tree, str):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            place = paths.child(path, key)
            yield place, str(key)
            yield from _texts(value, place)
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from _texts(value, paths.child(path, index))
