"""The server over HTTP: who may use it."""

from __future__ import annotations

import httpx2
import pytest

from evsys_mcp.http import PATH, http_app
from evsys_mcp.server import server_of
from evsys_runtime import Toolbox

KEY = "a-key-of-more-than-16-characters"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
ACCEPT = {"accept": "application/json, text/event-stream"}


async def answer(project, headers, *, url=f"http://127.0.0.1:8411{PATH}", host="127.0.0.1"):
    server = server_of(Toolbox(project))
    app = http_app(server, host=host, key=KEY)
    transport = httpx2.ASGITransport(app=app)
    async with server.session_manager.run(), httpx2.AsyncClient(transport=transport) as client:
        return await client.post(url, json=HELLO, headers={**ACCEPT, **headers})


async def test_the_key_opens_it(project):
    done = await answer(project, {"authorization": f"Bearer {KEY}"})
    assert done.status_code == 200
    assert '"name":"evsys"' in done.text.replace(" ", "")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {KEY}"},
        {"authorization": KEY},
        {"x-api-key": KEY},
        {"authorization": "Bearer \xff"},
    ],
)
async def test_without_the_key_nothing_is_answered(project, headers):
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    done = await answer(project, encoded, url=f"http://127.0.0.1:8411{PATH}?key={KEY}&token={KEY}")
    assert (done.status_code, done.headers["www-authenticate"]) == (401, "Bearer")
    assert "evsys" not in done.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost:3000"}, 200),
    ],
)
async def test_pages_of_others_are_refused(project, headers, status):
    done = await answer(project, {"authorization": f"Bearer {KEY}", **headers})
    assert done.status_code == status


async def test_another_address_answers_to_its_own_name_only(project):
    own = {"authorization": f"Bearer {KEY}"}
    done = await answer(project, own, url=f"http://lab.example:8411{PATH}", host="lab.example")
    assert done.status_code == 200
    done = await answer(project, own, host="lab.example")
    assert done.status_code == 421
