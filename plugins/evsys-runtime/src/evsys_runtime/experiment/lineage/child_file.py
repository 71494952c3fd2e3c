"""The file of an experiment on record as that of its child."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from evsys.errors import ConfigError
from evsys_record.experiment_record import ExperimentRecord
from evsys_runtime.config.document import read
from evsys_runtime.config.overrides import option
from evsys_runtime.config.rewriting import rewrite

__all__ = ["child_file"]


def child_file(directory: Path, name: str, overrides: Sequence[str] = ()) -> str:
    """The experiment file that a record was launched with, as the file of a new experiment that follows it.

    Args:
        directory: the folder of the experiment on record; its `--set` options are written into the file.
        name: of the new experiment.
        overrides: `path=value` texts, set after all else.

    Raises:
        StoreError: there is no record, or it is of another format.
        ConfigError: an override can't be set, or one of the launch was a secret, which isn't on record.
    """
    record = ExperimentRecord.open(directory)
    launch = record.facts.get("launch") or {}
    given = {option(each) for each in overrides}
    hidden = [each for each in launch.get("hidden", ()) if each not in given]
    if hidden:
        raise ConfigError(
            f"{record.experiment_id} was launched with {hidden[0]}=..., a secret that isn't on record",
            hint="give it again, as ${NAME} for a variable of the environment",
        )
    launched = [each for each in record.facts.get("overrides") or () if option(each) not in given]
    own = [f"name={json.dumps(name)}", f"metadata.parent_experiment_id={json.dumps(record.experiment_id)}"]
    return rewrite(read(record.directory / "config.yaml"), [*launched, *own, *overrides])
