"""Whether a distribution was made for the evsys installed here, as its own metadata says.

Installers see to that, but not after `--no-deps` or an upgrade of one side alone. Only what is plain is judged:
requirements without a marker on distributions of evsys, and versions that are numbers with dots.
"""

from __future__ import annotations

import re
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path

from evsys._plugins.scan import PluginEntry, normalized, scan
from evsys.errors import PluginIncompatibleError

__all__ = ["check_requirements", "requirements_of"]

type Release = tuple[int, ...]

_REQUIREMENT = re.compile(
    r"^Requires-Dist: *([\w.-]+) *(?:\[.*?\])? *\(?([^;()\n]*)\)? *(?:; *(.*))?$", re.MULTILINE
)
_CLAUSE = re.compile(r"\s*(~=|==|!=|<=|>=|<|>)\s*([0-9]+(?:\.[0-9]+)*)(\.\*)?\s*")

_HOLDS = {"==": eq, "!=": ne, "<=": le, ">=": ge, "<": lt, ">": gt}


def requirements_of(distribution: str) -> list[tuple[str, str, str]]:
    """(name, versions, marker) of each requirement in the metadata of a distribution; none where it has no metadata."""
    known = scan().distributions.get(normalized(distribution))
    try:
        text = Path(known.info, "METADATA").read_text(encoding="utf-8", errors="replace") if known else ""
    except (FileNotFoundError, NotADirectoryError):
        text = ""
    header = text.partition("\n\n")[0]  # the description follows
    return [(normalized(found[0]), found[1].strip(), found[2]) for found in _REQUIREMENT.findall(header)]


def check_requirements(entry: PluginEntry) -> None:
    """See that the versions of evsys that a plugin's distribution asks for are those installed.

    Raises:
        PluginIncompatibleError: they aren't; names both versions and the side to upgrade.
    """
    for name, versions, marker in requirements_of(entry.distribution):
        other = scan().distributions.get(name) if name.startswith("evsys") and not marker else None
        here = _release(other.version) if other else None
        if here is None or other is None:
            continue
        for clause in filter(None, map(_CLAUSE.fullmatch, versions.split(","))):
            wanted = tuple(map(int, clause[2].split(".")))
            if not _holds(here, clause[1], wanted, is_prefix=bool(clause[3])):
                side = name if here < wanted else entry.distribution
                message = f"{entry} was made for {name}{versions}, and {name} {other.version} is installed"
                raise PluginIncompatibleError(message, hint=f"upgrade {side}")


def _holds(here: Release, operator: str, wanted: Release, *, is_prefix: bool) -> bool:
    if operator == "~=":  # `~= 1.4.2` is `>= 1.4.2, == 1.4.*`
        return _holds(here, ">=", wanted, is_prefix=False) and _padded(here, len(wanted) - 1) == wanted[:-1]
    length = len(wanted) if is_prefix else max(len(here), len(wanted))
    return bool(_HOLDS[operator](_padded(here, length), _padded(wanted, length)))


def _padded(release: Release, length: int) -> Release:
    return (release + (0,) * length)[:length]


def _release(version: str) -> Release | None:
    """The numbers of a version, or None for one that is more than these, such as a release candidate."""
    return tuple(map(int, version.split("."))) if re.fullmatch(r"[0-9]+(\.[0-9]+)*", version) else None
