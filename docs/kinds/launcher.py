"""A launcher runs arms in other processes, here or on other machines, and returns their result records.

## In an experiment file

The key is `launcher`; without it, arms run in the process of `evsys run`.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from evsys import register_launcher

CHILD = "import json, sys; print(json.dumps({'arm': json.load(sys.stdin), 'status': 'skipped'}))"


@register_launcher("processes")
class Processes:
    """A process for each arm; these only say what they were asked to run."""

    conformance: ClassVar[Mapping[str, Any]] = {"arms": [{"name": "a"}, {"name": "b"}]}

    async def launch(self, arms: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return await asyncio.gather(*map(self._one, arms))

    async def _one(self, arm: Mapping[str, Any]) -> Mapping[str, Any]:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, stdin=pipe, stdout=pipe)
        try:
            out, _ = await child.communicate(json.dumps(dict(arm)).encode())
        finally:
            if child.returncode is None:  # cancelled: the arm ends with its launcher
                child.kill()
        if child.returncode != 0:
            return {"status": "failed", "exit_code": child.returncode}
        result: Mapping[str, Any] = json.loads(out)
        return result
