"""A transform turns rows into rows: mappings in, mappings out, lazily if possible. It never changes its input rows, and leaves
unknown columns alone.

Transforms are applied between a file and its typed rows, for training data and for benchmarks. Counts in an attribute `dropped`
go into the record. [Transforms](../transforms.md) has the standard ones.

## In an experiment file

```yaml
run:
  data:
    dataset_name: questions/v1
    transforms:
      - kind: shorten
        params: {column: prompt, limit: 40}
      - kind: jsonl_to_chat
```
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from evsys import option, register_transform


@register_transform("shorten")
class Shorten:
    """Cuts the texts of a column."""

    @attrs.frozen(kw_only=True)
    class Config:
        """Params of `shorten`."""

        column: str = option("text", "Column that is shortened.")
        limit: int = option(100, "Longest text that is left, in characters.", ge=1)

    def __init__(self, column: str, limit: int) -> None:
        self.column, self.limit = column, limit

    def __call__(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for row in rows:
            yield {**row, self.column: str(row.get(self.column, ""))[: self.limit]}
