"""Transforms that keep their contract, each written in another way."""

from dataclasses import dataclass
from typing import ClassVar

import attrs
from pydantic import BaseModel

from evsys import option


def function(rows):
    return ({**row, "text": row["text"].upper()} for row in rows)


def gives_a_list(rows):
    return [row for row in rows if row["number"] % 2]


def with_config(rows, *, column, limit):
    for row in rows:
        yield {**row, column: row[column][:limit]}


@attrs.frozen(kw_only=True)
class _Limits:
    column: str = option("text", "to shorten")
    limit: int = option(3, "letters", ge=1)


with_config.Config = _Limits


@dataclass
class DropsAll:
    keep: bool = False

    def __call__(self, rows):
        return [row for row in rows if self.keep]


class RowsOfItsOwn:
    name = "RowsOfItsOwn"
    conformance: ClassVar = {"adds_rows": True}

    class Config(BaseModel, extra="forbid"):
        count: int = 2

    def __init__(self, count):
        self.count = count

    def __call__(self, rows):
        yield from rows
        yield from ({"text": f"made {i}"} for i in range(self.count))


class KnowsItsColumns:
    conformance: ClassVar = {"rows": [{"question": "a?", "answer": "b"}]}

    def __call__(self, rows):
        for row in rows:
            other = dict(row)
            yield {"prompt": other.pop("question"), "completion": other.pop("answer"), **other}
