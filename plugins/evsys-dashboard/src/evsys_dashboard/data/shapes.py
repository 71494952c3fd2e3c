"""Shapes of datasets and benchmarks by ID, for the API and for the commands' `--json`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from evsys.errors import ConfigError

__all__ = [
    "CHUNK",
    "KINDS",
    "MOST_BYTES",
    "ROWS_LISTED",
    "BlobState",
    "Catalogue",
    "Check",
    "Checks",
    "DataName",
    "DataVersion",
    "Kind",
    "Row",
    "Rows",
    "ShownVersion",
    "Split",
    "Uploaded",
    "Use",
    "Versions",
    "is_digest",
    "is_id",
    "name_of",
    "noun",
    "refuse_odd_name",
    "version_id",
]

type Kind = Literal["datasets", "benchmarks"]
type Split = Literal["val", "test"]

KINDS: tuple[Kind, ...] = ("datasets", "benchmarks")

CHUNK = 4 << 20
"""Bytes of a chunk; the last one of a version may have fewer."""

MOST_BYTES = 1 << 30
"""Bytes of a version."""

ROWS_LISTED = 200
"""The most rows of an answer."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_ID = re.compile(r"(.+)-[0-9a-f]{12}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def refuse_odd_name(name: str) -> None:
    """Refuse a name that could be a path, or be taken for an ID.

    Raises:
        ConfigError: it can't be a name.
    """
    if not _NAME.fullmatch(name) or is_id(name):
        raise ConfigError(
            f"invalid name {name!r}",
            hint="at most 80 letters, digits, `.`, `_` and `-`, beginning with a letter or a digit, "
            "and not ending like an ID, with `-` and 12 hexadecimal digits",
        )


def is_id(ref: str) -> bool:
    """True for a text that looks like the ID of a version; False for a name."""
    found = _ID.fullmatch(ref)
    return found is not None and _NAME.fullmatch(found[1]) is not None


def name_of(version: str) -> str:
    """The name in an ID."""
    return version[:-13]


def version_id(name: str, digest: str) -> str:
    """The ID of the version of a name that has these bytes: the same wherever it is made."""
    return f"{name}-{digest[:12]}"


def is_digest(text: str) -> bool:
    """True for a SHA-256 in hexadecimal digits."""
    return _DIGEST.fullmatch(text) is not None


def noun(kind: Kind) -> str:
    """`dataset` or `benchmark`."""
    return kind.removesuffix("s")


@attrs.frozen(kw_only=True)
class DataVersion:
    """A version of a dataset or benchmark; its bytes never change.

    `id` names it in experiment files, `number` counts the versions of its name from 1, `size` is in bytes. `split` is `test` for
    tasks and rows that only keys with the scope `test` may read, then `val` for other benchmarks, and null for datasets.
    `made_from` has the IDs of the versions that it was made from.
    """

    id: str
    kind: Kind
    name: str
    number: int
    split: Split | None
    content_hash: str
    size: int
    rows: int
    created: str
    key: str | None
    note: str | None
    file: str | None
    made_from: tuple[str, ...]


@attrs.frozen(kw_only=True)
class DataName:
    """A name with its latest version, and how many there are."""

    name: str
    versions: int
    latest: DataVersion


@attrs.frozen(kw_only=True)
class Catalogue:
    """The datasets or benchmarks of a project, by name; `total` counts them."""

    kind: Kind
    total: int
    names: tuple[DataName, ...]


@attrs.frozen(kw_only=True)
class Versions:
    """The versions of a name, the newest first."""

    kind: Kind
    name: str
    versions: tuple[DataVersion, ...]


@attrs.frozen(kw_only=True)
class Use:
    """An experiment on record that used a version, with its verdict, and when it began."""

    experiment: str
    verdict: str | None
    moment: str


@attrs.frozen(kw_only=True)
class ShownVersion:
    """A version with its lineage.

    `latest` is the ID of the newest version of its name, `made_into` has the versions made from it. `reads` counts how often
    the rows of a test set were read, by page, API or pull; null for others. `readable` is whether the key may read its rows.
    `chunks` has the SHA-256 of each chunk.
    """

    version: DataVersion
    latest: str
    made_into: tuple[str, ...]
    used_by: tuple[Use, ...]
    reads: int | None
    readable: bool
    chunk_bytes: int
    chunks: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Row:
    """A row. One too long to list has a null `row`, and the beginning of its `text`."""

    number: int
    row: Mapping[str, Any] | None
    text: str | None


@attrs.frozen(kw_only=True)
class Rows:
    """A page of rows of a version, numbered from 0; the next page begins at `next`."""

    id: str
    total: int
    rows: tuple[Row, ...]
    next: int | None


@attrs.frozen(kw_only=True)
class Check:
    """Tasks of a benchmark version found in a dataset version.

    `matches` counts flagged tasks by how close they are: `equal`, `normalized`, `near`. `tasks` has their IDs; it is empty for a
    test set that the key may not read. `problem` says why the two can't be compared.
    """

    dataset: str
    benchmark: str
    split: Split | None
    checked: int
    flagged: int
    matches: Mapping[str, int]
    tasks: tuple[str, ...]
    problem: str | None


@attrs.frozen(kw_only=True)
class Checks:
    """A dataset version against the latest version of each benchmark, or a benchmark version against that of each dataset."""

    id: str
    checks: tuple[Check, ...]


@attrs.frozen(kw_only=True)
class BlobState:
    """The part of some bytes that the server has: the numbers of the chunks, and whether it is everything, checked."""

    digest: str
    chunk_bytes: int
    received: tuple[int, ...]
    complete: bool


@attrs.frozen(kw_only=True)
class Uploaded:
    """An uploaded version. `existed` if the name had one with these bytes; `latest` is the ID of its newest one."""

    version: DataVersion
    latest: str
    existed: bool
