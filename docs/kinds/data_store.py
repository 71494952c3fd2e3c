"""A data store serves datasets and benchmarks by ID or name. Pulled rows are cached by content, so the record identifies them,
and a second run needs no network.

The same reference gives the same rows in the same order. [Stores](../stores.md) has the standard ones.

## In an experiment file

```yaml
data_store: {kind: squares}
run:
  data: {dataset_id: "12", transforms: [{kind: jsonl_to_chat}]}
```
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from evsys import register_data_store
from evsys.errors import StoreError


@register_data_store("squares")
class Squares:
    """Numbers and their squares; the reference says how many."""

    conformance: ClassVar[Mapping[str, Any]] = {"refs": ["3"]}

    async def pull(self, ref: str) -> list[Mapping[str, Any]]:
        if not ref.isdecimal():
            raise StoreError(f"no dataset {ref!r}", hint="a reference is a number, such as 12")
        return [{"prompt": f"{n} squared", "completion": str(n * n)} for n in range(int(ref))]
