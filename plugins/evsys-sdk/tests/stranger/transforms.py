"""Transforms: a generator function, and a class that counts what it drops."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, assert_type

from pydantic import BaseModel, Field

from evsys_sdk import register_transform


@register_transform("shout")
def shout(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {**row, "prompt": str(row["prompt"]).upper()}


@register_transform("short_only")
class ShortOnly:
    """Keeps rows with short prompts."""

    class Config(BaseModel, extra="forbid"):
        """Params."""

        limit: int = Field(20, ge=1, description="Longest prompt that is kept, in characters.")

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        self.dropped: Counter[str] = Counter()

    def __call__(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for row in rows:
            if len(row["prompt"]) <= self.config.limit:
                yield row
            else:
                self.dropped["too long"] += 1


assert_type(next(shout([{"prompt": "a"}])), dict[str, Any])
