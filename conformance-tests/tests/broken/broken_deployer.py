"""Deployers with one fault each."""

import shutil


class Right:
    """Keeps the contract; the base of all that follow."""

    async def deploy(self, checkpoint):
        weights = checkpoint.directory / checkpoint.state["file"]
        copied = checkpoint.directory.parent.parent / "deployed.bin"
        shutil.copyfile(weights, copied)
        return {"path": str(copied)}


class SaysNothing(Right):
    async def deploy(self, checkpoint):
        await super().deploy(checkpoint)


class MovesWeights(Right):
    async def deploy(self, checkpoint):
        said = await super().deploy(checkpoint)
        (checkpoint.directory / checkpoint.state["file"]).unlink()
        return said


class DoesNotLook(Right):
    async def deploy(self, checkpoint):
        return {"path": str(checkpoint.directory)}
