"""The contract of a deployer: it says where a checkpoint went, and leaves the checkpoint alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evsys.types import Checkpoint
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import breach, require, require_equal
from evsys_conformance.running import run

__all__ = ["DeployerConformance"]


class DeployerConformance(PluginConformance):
    """Checks of the kind `deployer`. Override `checkpoint` for one that it can deploy, `missing` for one that isn't there."""

    kind: ClassVar[str | None] = "deployer"

    @pytest.fixture
    def checkpoint(self, home: Path) -> Checkpoint:
        """A checkpoint that it can deploy: by default a folder with a file, in the working directory."""
        folder = home / "checkpoints" / "000003"
        folder.mkdir(parents=True)
        (folder / "weights.bin").write_bytes(bytes(range(64)))
        return Checkpoint(step=3, directory=folder, state={"file": "weights.bin"}, loop={"epoch": 0})

    @pytest.fixture
    def missing(self, home: Path) -> Checkpoint:
        """A checkpoint whose weights aren't there."""
        return Checkpoint(step=3, directory=home / "nowhere", state={"file": "weights.bin"})

    @check()
    def test_says_where(self, plugin: Any, checkpoint: Checkpoint) -> None:
        """It returns a JSON mapping that says where the model is now."""
        said = run(plugin.deploy(checkpoint))
        wanted = "a mapping such as {'url': 'https://...'}"
        require(
            isinstance(said, Mapping) and said, "it doesn't say where the model is", seen=said, wanted=wanted
        )
        try:
            json.dumps(dict(said), allow_nan=False)
        except (TypeError, ValueError) as exc:
            breach(f"what it says can't be written as JSON: {exc}", seen=said, wanted=wanted)

    @check()
    def test_checkpoint_is_left_as_it_was(self, plugin: Any, checkpoint: Checkpoint) -> None:
        """The checkpoint's files and what it says are the same afterwards: a run may still resume from it."""
        before = _content(checkpoint)
        run(plugin.deploy(checkpoint))
        require_equal(_content(checkpoint), before, "the checkpoint isn't what it was before it was deployed")

    @check()
    def test_a_checkpoint_that_is_not_there_is_an_error(self, plugin: Any, missing: Checkpoint) -> None:
        """Without weights nothing is deployed, and it says so."""
        try:
            said = run(plugin.deploy(missing))
        except Exception:  # it may fail in its own words
            return
        breach(
            "it deployed a checkpoint that isn't there",
            seen=said,
            wanted="an exception, such as FileNotFoundError",
        )


def _content(checkpoint: Checkpoint) -> dict[str, Any]:
    files = sorted(path for path in checkpoint.directory.rglob("*") if path.is_file())
    return {
        **{path.relative_to(checkpoint.directory).as_posix(): path.read_bytes() for path in files},
        "state": json.dumps(dict(checkpoint.state)),
        "loop": json.dumps(dict(checkpoint.loop)),
    }
