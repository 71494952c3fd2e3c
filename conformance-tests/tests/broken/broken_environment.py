"""Environments with one fault each."""

import asyncio


class StopsOnce:
    def __init__(self):
        self.started = False
        self.stopped = False

    async def start(self):
        self.started = True

    async def stop(self):
        if self.stopped:
            raise RuntimeError("stopped already")
        self.stopped = self.started


class NeedsAStart:
    def __init__(self):
        self.started = False

    async def start(self):
        self.started = True

    async def stop(self):
        if not self.started:
            raise RuntimeError("not started")


class HalfStarted:
    def __init__(self):
        self.state = "stopped"

    async def start(self):
        self.state = "starting"
        await asyncio.sleep(0.01)
        self.state = "running"

    async def stop(self):
        if self.state == "starting":
            raise RuntimeError("still starting")
        self.state = "stopped"


class GoesOnStarting:
    async def start(self):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            await asyncio.sleep(60)

    async def stop(self):
        pass


class ReleasesWhatItHasNot:
    async def start(self):
        self.process = object()

    async def stop(self):
        del self.process
