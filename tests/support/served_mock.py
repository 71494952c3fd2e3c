"""The mock backend's model behind a server of completions."""

import asyncio
from pathlib import Path
from typing import Any

from evsys import Registry
from evsys.types import ModelSpec
from evsys_runtime.serving.models import ServedModel


def mock_model(folder: Path, **fields: Any) -> ServedModel:
    """The mock backend's untrained model, which reads bytes, as a served one."""

    async def make() -> ServedModel:
        backend = Registry().build("backend", "mock")
        client = await backend.prepare(ModelSpec(name="evsys/tiny"), folder, 1, None)
        return ServedModel(
            name="m",
            sampling_client=await client.sampling_client(),
            renderer=client.renderer,
            tokenizer=client.tokenizer,
            **fields,
        )

    return asyncio.run(make())
