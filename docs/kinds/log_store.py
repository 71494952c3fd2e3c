"""A log store receives records in addition to the files of the record.

## In an experiment file

The key is `log_store`, once for the experiment. [Log stores](../stores.md#log-stores) lists the records and when they come. A
[callback](callback.md) gets the same events as objects, run by run.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs

from evsys import option, register_log_store


@register_log_store("lines")
class Lines:
    """Appends records to a file, as lines of JSON."""

    conformance: ClassVar[Mapping[str, Any]] = {"file": "records.jsonl"}

    @attrs.frozen(kw_only=True)
    class Config:
        """Params of `lines`."""

        path: Path = option(Path("records.jsonl"), "The file.")

    def __init__(self, path: Path) -> None:
        self.path = path

    async def write(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, ensure_ascii=False) + "\n"
        with self.path.open("ab") as file:  # one append of a whole line
            file.write(line.encode())

    async def close(self) -> None: ...
