from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, Field

from evsys_sdk import register_transform


@register_transform("short_words")
class ShortWords:
    """Keeps the rows whose column has at most `letters` letters."""

    name = "short_words"

    class Config(BaseModel, extra="forbid"):
        column: str = "answer"
        letters: int = Field(ge=1, description="most letters of a row that is kept")

    def __init__(self, **kw: Any) -> None:
        self.config = self.Config(**kw)
        self.dropped: Counter[str] = Counter()  # evsys puts these counts into the record

    def __call__(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        longest = self.config.letters
        for row in rows:
            if len(row.get(self.config.column, "")) <= longest:
                yield row
            else:
                self.dropped[f"more than {longest} letters"] += 1
