"""The trigger file: what to watch, and how often to fire at most."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import attrs

from evsys.errors import ConfigError
from evsys_record import slug
from evsys_runtime.config import document as documents
from evsys_runtime.config.model.fields import key
from evsys_runtime.config.reading import Reader
from evsys_runtime.config.report import Report
from evsys_runtime.config.root import find_project_root

__all__ = ["Trigger", "TriggerConfig", "load_trigger"]


@attrs.frozen(kw_only=True)
class TriggerConfig:
    """The keys of a trigger file."""

    version: Literal[1] = key("Version of this format.", 1)
    name: str = key("Name of the trigger, by which its state is kept.", min_len=1)
    reference: str = key("Traces of the time when all was well; relative to the project root.", min_len=1)
    false_alarm_rate: float = key(
        "The highest probability that it ever fires while nothing changes.", 0.01, gt=0, le=0.5
    )
    good: float = key("Mean score of its feedback from which an answer counts as right.", 0.5)
    slices: tuple[str, ...] = key(
        "Keys of the metadata; the failures of each of their values are watched by themselves.", factory=tuple
    )
    min_examples: int = key("New traces before it fires.", 100, ge=1)
    cooldown_hours: float = key("Hours in which it fires once at most.", 24.0, ge=0)
    max_per_month: int = key("How often it fires in a calendar month (UTC).", 4, ge=1)


@attrs.frozen(kw_only=True)
class Trigger:
    """A trigger file without problems.

    Attributes:
        config: its keys.
        project_root: what its paths start from.
        reference: the file of the reference.
        digests: SHA-256 of the trigger file's values and of the reference.
    """

    config: TriggerConfig
    project_root: Path
    reference: Path
    digests: dict[str, str]

    @property
    def folder(self) -> Path:
        """The folder of its state and its decisions."""
        return self.project_root / ".evsys" / "triggers" / self.config.name


def load_trigger(path: str | Path) -> Trigger:
    """Read and check a trigger file.

    Raises:
        ConfigError: every problem of the file, with its place.
    """
    document = documents.read(path)
    report = Report()
    report.add(*document.problems)
    reader = Reader(document, report)
    values = reader.fields(TriggerConfig, document.tree, "$")
    report.raise_if_any()
    config = TriggerConfig(**values)
    root = find_project_root(path)
    reference = root / config.reference
    if slug(config.name) != config.name:
        reader.add("$.name", f"{config.name!r} is not a name of a folder", f"write {slug(config.name)!r}")
    if not reference.is_file():
        reader.add("$.reference", f"no such file: {config.reference}", f"paths start from {root}")
    report.raise_if_any()
    values_digest = hashlib.sha256(repr(config).encode()).hexdigest()
    return Trigger(
        config=config,
        project_root=root,
        reference=reference,
        digests={"config": f"sha256:{values_digest}", "reference": f"sha256:{digest_of(reference)}"},
    )


def digest_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as exc:
        raise ConfigError(f"{path} can't be read: {exc.strerror or exc}") from exc
