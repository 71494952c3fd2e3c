"""Ways to name an experiment: its folder, its id, the beginning of that, its name, `last`, or the N-th from the
end.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from evsys.errors import ConfigError
from evsys_record.index import Index
from evsys_record.text import list_names

__all__ = ["experiment_called", "folder_called", "run_called"]

_FROM_THE_END = re.compile(r"last(?:-(\d+))?|-(\d+)")


def folder_called(text: str) -> tuple[Path, str | None] | None:
    """The folder of an experiment, and that of a run where `text` is a path in it; None where it is not a path of a record."""
    path = Path(text)
    if os.sep not in text and not (path / "experiment.json").is_file():
        return None
    absolute = path.absolute()
    for folder in (absolute, *absolute.parents):
        if (folder / "experiment.json").is_file():
            below = absolute.relative_to(folder).parts
            return folder, below[1] if len(below) > 1 and below[0] == "runs" else None
    return None


def experiment_called(text: str, index: Index) -> str:
    """The id of the one intended experiment. Dry runs have an id, but aren't counted by `last` and `-N`.

    Raises:
        ConfigError: there is none, or several; the message names those that come close.
    """
    found = index.rows("SELECT folder, name, dry FROM experiment ORDER BY moment DESC, folder DESC")
    counted = _FROM_THE_END.fullmatch(text)
    if counted is not None:
        return _from_the_end(text, counted, [str(folder) for folder, _, dry in found if not dry])
    folders = [str(folder) for folder, *_ in found]
    if text in folders:
        return text
    candidates = [folder for folder in folders if text and folder.startswith(text)]
    for tried in (False, True):  # a name means a dry run only where nothing else has it
        candidates = candidates or [folder for folder, name, dry in found if name == text and dry == tried]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise ConfigError(
            f"{text!r} may be {len(candidates)} experiments: {list_names(candidates)}",
            hint="write more of the id",
        )
    names = [*(str(name) for _, name, _ in found if name), *(["last"] if found else [])]
    hint = _hint(text, folders, [*folders, *names])
    raise ConfigError(f"there is no experiment {text!r} in {index.experiments}", hint=hint)


def run_called(text: str, run_ids: Sequence[str], experiment_id: str) -> str:
    """The one intended run: by its id, or the beginning of it.

    Raises:
        ConfigError: there is none, or several.
    """
    if text in run_ids:
        return text
    candidates = [run_id for run_id in run_ids if text and run_id.startswith(text)]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise ConfigError(
            f"{text!r} may be {len(candidates)} runs of {experiment_id}: {list_names(candidates)}",
            hint="write more of the name",
        )
    raise ConfigError(f"{experiment_id} has no run {text!r}", hint=_hint(text, run_ids, run_ids))


def _from_the_end(text: str, counted: re.Match[str], folders: Sequence[str]) -> str:
    before, number = counted.groups()
    place = int(number) - 1 if number else int(before or 0)
    if 0 <= place < len(folders):
        return folders[place]
    count = len(folders)
    if not count:
        raise ConfigError(
            f"there is no {text!r}: no experiment is on record here",
            hint="`evsys run CONFIG` makes one; `--records` names another project",
        )
    only = f"only {count} {'is' if count == 1 else 'are'} on record"
    raise ConfigError(f"there is no experiment -{place + 1}: {only}")


def _hint(text: str, known: Sequence[str], called: Sequence[str]) -> str:
    """The names in `called` close to the given one; else the first names."""
    close = difflib.get_close_matches(text, called, n=2, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"on record: {list_names(known)}" if known else "nothing is on record yet"
