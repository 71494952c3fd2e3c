"""Environments with one fault each."""


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
