"""The server's disk is full, for real: what can't be saved is said so, and nothing that was acknowledged is lost."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from toy_training import MODEL, backend, logprobs, steps, trained

from evsys.errors import BackendError
from evsys.types import Checkpoint

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prlimit and tmpfs")


class SmallFiles:
    """No file of the server may grow beyond a few bytes: a write fails in its middle."""

    words = "File too large"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = 0

    def fill(self) -> None:
        import resource

        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (256, resource.RLIM_INFINITY))

    def empty(self) -> None:
        import resource

        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def close(self) -> None:
        """Nothing is left."""


class SmallDisk:
    """A file system in memory that has no room any more."""

    words = "No space left"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        mount = shutil.which("mount")
        if mount is None or os.geteuid() != 0:
            pytest.skip("only root mounts")
        done = subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=False, capture_output=True
        )
        if done.returncode != 0:
            pytest.skip("mounting isn't allowed here")
        self.pid = 0

    def fill(self) -> None:
        with (self.folder / "filler").open("wb") as filler:
            free = os.statvfs(self.folder)
            filler.write(b"\0" * free.f_bavail * free.f_frsize)

    def empty(self) -> None:
        (self.folder / "filler").unlink()

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


@pytest.fixture(params=[SmallFiles, SmallDisk])
def disk(request, tmp_path):
    made = request.param(tmp_path / "server")
    yield made
    made.close()


async def fails(call, words):
    with pytest.raises(BackendError) as caught:
        await call
    assert words in str(caught.value)
    assert "/checkpoints/" not in str(caught.value)  # where the server's files lie is nobody's business


def test_what_the_disk_has_no_room_for_is_said_and_all_else_goes_on(serve, disk, tmp_path):
    server = serve()
    disk.pid = server._process.pid
    folder = tmp_path / "checkpoint"
    folder.mkdir()

    async def run() -> tuple[dict, list[float]]:
        made = backend(server.base_url)
        client = await made.prepare(MODEL, tmp_path, 0)
        await steps(client, 0, 2)
        saved = await client.save_state(folder)
        disk.fill()
        await fails(client.save_state(folder), disk.words)
        await fails(client.sampling_client(), disk.words)
        await steps(client, 2, 1)
        disk.empty()
        await client.save_state(folder)
        await steps(client, 3, 1)
        found = await logprobs(client)
        await made.teardown(client)
        return saved, found

    async def restored(saved) -> list[float]:
        made = backend(server.base_url)
        client = await made.prepare(MODEL, tmp_path, 0, Checkpoint(step=2, directory=folder, state=saved))
        await steps(client, 2, 2)
        found = await logprobs(client)
        await made.teardown(client)
        return found

    saved, found = asyncio.run(run())
    assert found == asyncio.run(trained(server.base_url, tmp_path))[1]
    server.kill()
    server.start()
    assert asyncio.run(restored(saved)) == found


def test_a_server_that_is_killed_with_a_full_disk_has_everything_that_it_acknowledged(serve, disk, tmp_path):
    server = serve()
    disk.pid = server._process.pid
    folder = tmp_path / "checkpoint"
    folder.mkdir()

    async def run() -> list[float]:
        made = backend(server.base_url)
        client = await made.prepare(MODEL, tmp_path, 0)
        await steps(client, 0, 2)
        await client.save_state(folder)
        await steps(client, 2, 1)
        disk.fill()
        await fails(client.save_state(folder), disk.words)
        server.kill()
        server.start()
        disk.pid = server._process.pid
        await steps(client, 3, 1)  # the model is made again from the state, and the step since repeated
        if isinstance(disk, SmallDisk):
            disk.empty()
        found = await logprobs(client)
        await made.teardown(client)
        return found

    assert asyncio.run(run()) == asyncio.run(trained(server.base_url, tmp_path))[1]
