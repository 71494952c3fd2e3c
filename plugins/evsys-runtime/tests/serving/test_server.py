import asyncio
import socket
from pathlib import Path

import pytest
from served_mock import mock_model

from evsys.errors import ConfigError
from evsys_runtime.serving.models import FixedCatalogue
from evsys_runtime.serving.server import chat_server


def test_a_host_that_others_reach_needs_a_key(served):
    async def main() -> None:
        async with chat_server(FixedCatalogue(served()), host="0.0.0.0"):
            pass

    with pytest.raises(ConfigError, match="can be reached from other machines"):
        asyncio.run(main())


def test_a_port_that_is_taken_is_told(served):
    async def main(port: int) -> None:
        async with chat_server(FixedCatalogue(served()), port=port):
            pass

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="choose another port"):
            asyncio.run(main(taken.getsockname()[1]))


def test_a_backends_own_snapshot_answers(with_server, tmp_path: Path):
    model = mock_model(tmp_path)

    async def work(server):
        asked = {"max_tokens": 8, "seed": 3, "logprobs": True, "return_token_ids": True, "n": 2}
        return [await server.ask(**asked) for _ in range(2)]

    (status, one), (_, other) = with_server(model, work)
    assert status == 200
    assert one["choices"] == other["choices"]
    assert all(1 <= len(choice["token_ids"]) <= 8 for choice in one["choices"])
    assert all(len(choice["token_ids"]) == len(choice["logprobs"]["content"]) for choice in one["choices"])
