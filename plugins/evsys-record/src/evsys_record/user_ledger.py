"""The ledger of looks of a user: it outlives projects, copies of them, and their ledgers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from evsys_record.questions import AskedQuestion

__all__ = ["OFF", "user_ledger"]

OFF = "off"


def user_ledger(question: AskedQuestion, environ: Mapping[str, str] | None = None) -> Path | None:
    """The file that has this user's looks at questions of one key; None if `EVSYS_LOOKS` is `off`.

    It is in the folder that `EVSYS_LOOKS` names, else in `XDG_STATE_HOME/evsys/looks`, else in
    `~/.local/state/evsys/looks`, and need not exist. Variables set but empty count as unset.
    """
    environ = os.environ if environ is None else environ
    own, shared = environ.get("EVSYS_LOOKS"), environ.get("XDG_STATE_HOME")
    if own == OFF:
        return None
    if own:
        folder = Path(own)
    else:
        folder = (Path(shared) if shared else Path.home() / ".local" / "state") / "evsys" / "looks"
    return folder.expanduser() / f"{question.key.rpartition(':')[2][:16]}.jsonl"
