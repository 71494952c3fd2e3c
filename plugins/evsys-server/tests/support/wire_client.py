"""A client of the server in a few lines: the protocol by the server's own codec, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import numpy as np

from evsys.types import Datum, SampleResult
from evsys_server.wire.sampling import read_sample
from evsys_server.wire.training import ForwardBackward, Output, encode_request, read_output

PROTOBUF = "application/x-protobuf"


class WireError(Exception):
    """The server refused at once."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {body.get('error')}")
        self.status = status
        self.body = body


class FailedError(Exception):
    """What was promised failed."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(body["error"])
        self.category = body["category"]


class WireClient:
    """Calls the server; everything that is promised is fetched."""

    def __init__(self, base_url: str, session: aiohttp.ClientSession) -> None:
        self.url = f"{base_url}/api/v1"
        self.session = session

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """A JSON call; raises `WireError` for a status that isn't 200."""
        async with self.session.request(method, f"{self.url}/{path}", json=body, **options) as response:
            found = await response.json()
            if response.status != 200:
                raise WireError(response.status, found)
            return found

    async def post(self, path: str, /, **body: Any) -> Any:
        return await self.call("POST", path, body)

    async def fetch(self, promise: Mapping[str, Any]) -> Any:
        """The answer to a promise, read by what it is."""
        body = {"request_id": promise["request_id"], "allow_metadata_only": True}
        while True:
            async with self.session.post(
                f"{self.url}/retrieve_future", json=body, headers={"Accept": PROTOBUF}
            ) as response:
                if response.content_type == PROTOBUF:
                    return await response.read()
                found = await response.json()
                if response.status == 408:
                    continue
                if response.status != 200:
                    raise WireError(response.status, found)
                if "error" in found:
                    raise FailedError(found)
                return found

    async def promised(self, path: str, /, **body: Any) -> Any:
        return await self.fetch(await self.post(path, **body))

    async def new_session(self) -> str:
        return (await self.post("create_session", tags=[], user_metadata=None, sdk_version="test"))[
            "session_id"
        ]

    async def new_model(self, session: str | None = None, number: int = 0, **fields: Any) -> Model:
        """A model of a session of its own, or of another's."""
        session = session or await self.new_session()
        fields = {"base_model": "evsys/tiny", "lora_config": {"rank": 4, "seed": 1}, **fields}
        made = await self.promised("create_model", session_id=session, model_seq_id=number, **fields)
        return Model(self, session, made["model_id"])


class Model:
    """A model and the number of its next request."""

    def __init__(self, client: WireClient, session: str, model_id: str, next_seq: int = 1) -> None:
        self.client = client
        self.session = session
        self.id = model_id
        self.next_seq = next_seq

    def seq(self) -> int:
        self.next_seq += 1
        return self.next_seq - 1

    def request(self, data: Sequence[Datum], loss_fn: str = "cross_entropy", **fields: Any) -> bytes:
        fields = {"seq_id": self.seq() if "seq_id" not in fields else fields.pop("seq_id"), **fields}
        return encode_request(ForwardBackward(model_id=self.id, data=tuple(data), loss_fn=loss_fn, **fields))

    async def send(self, body: bytes) -> Any:
        async with self.client.session.post(
            f"{self.client.url}/forward_backward", data=body, headers={"Content-Type": PROTOBUF}
        ) as response:
            found = await response.json()
            if response.status != 200:
                raise WireError(response.status, found)
            return found

    async def forward_backward(
        self, data: Sequence[Datum], loss_fn: str = "cross_entropy", **fields: Any
    ) -> Output:
        return read_output(await self.client.fetch(await self.send(self.request(data, loss_fn, **fields))))

    async def optim_step(self, **params: Any) -> Any:
        return await self.call("optim_step", adam_params={"learning_rate": 1e-2, **params})

    async def call(self, path: str, /, **body: Any) -> Any:
        return await self.client.promised(path, model_id=self.id, seq_id=self.seq(), **body)

    async def sampler(self, **body: Any) -> Sampler:
        """A sampler of the weights as they are, for this session alone."""
        found = await self.call(
            "save_weights_for_sampler", sampling_session_seq_id=body.pop("number", 0), **body
        )
        return Sampler(self.client, found["sampling_session_id"])


class Sampler:
    """A sampling session and the number of its next request."""

    def __init__(self, client: WireClient, sampler_id: str) -> None:
        self.client = client
        self.id = sampler_id
        self.next_seq = 0

    def body(self, prompt: Sequence[int], n: int = 1, **fields: Any) -> dict[str, Any]:
        params = {"max_tokens": fields.pop("max_tokens", 4), **fields.pop("params", {})}
        self.next_seq += 1
        return {
            "sampling_session_id": self.id,
            "seq_id": fields.pop("seq_id", self.next_seq - 1),
            "num_samples": n,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": list(prompt)}]},
            "sampling_params": params,
            **fields,
        }

    async def sample(self, prompt: Sequence[int], n: int = 1, **fields: Any) -> SampleResult:
        return read_sample(await self.client.promised("asample", **self.body(prompt, n, **fields)))


async def base_sampler(client: WireClient, number: int = 0, session: str | None = None) -> Sampler:
    """A sampler of the base model, of a session of its own or of another's."""
    session = session or await client.new_session()
    made = await client.post(
        "create_sampling_session",
        session_id=session,
        sampling_session_seq_id=number,
        base_model="evsys/tiny",
    )
    return Sampler(client, made["sampling_session_id"])


def datum(text: str = "hello world", **inputs: Any) -> Datum:
    """A text to learn, all of it unless `weights` say otherwise."""
    tokens = np.frombuffer(text.encode(), np.uint8).astype(np.int64)
    given = {name: np.asarray(values) for name, values in inputs.items()}
    weights = (
        {}
        if "weights" in given or "advantages" in given
        else {"weights": np.ones(len(tokens) - 1, np.float32)}
    )
    return Datum(tokens=tokens[:-1], loss_inputs={"target_tokens": tokens[1:], **weights, **given})
