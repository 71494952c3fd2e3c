"""Transforms: mappings in, mappings out. They never change a row they are given, and say why rows were left out.

Their common interface is by shape, and optional for a transform of your own: `dropped` counts rows by reason and
starts again with each call, `streaming` says that rows are handled one at a time and in order, `seed` is filled in
from the run's seed if none is given, and `uses` names the functions that the parameters ask for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evsys._lazy import lazy_names

if TYPE_CHECKING:
    from evsys_std.transforms.chat import JsonlToChat
    from evsys_std.transforms.dedupe import Dedupe
    from evsys_std.transforms.filter import Filter
    from evsys_std.transforms.mapping import Map
    from evsys_std.transforms.mix import Mix
    from evsys_std.transforms.rename import Identity, Rename
    from evsys_std.transforms.sample import Sample
    from evsys_std.transforms.shuffle import Shuffle
    from evsys_std.transforms.split import Split
    from evsys_std.transforms.tasks import JsonlToTasks
    from evsys_std.transforms.template import Template

__all__ = [
    "Dedupe",
    "Filter",
    "Identity",
    "JsonlToChat",
    "JsonlToTasks",
    "Map",
    "Mix",
    "Rename",
    "Sample",
    "Shuffle",
    "Split",
    "Template",
]

# Resolved when asked for: an experiment names one or two, and checking its file shouldn't pay for all.
_HOME = {
    "Dedupe": ".dedupe",
    "Filter": ".filter",
    "Identity": ".rename",
    "JsonlToChat": ".chat",
    "JsonlToTasks": ".tasks",
    "Map": ".mapping",
    "Mix": ".mix",
    "Rename": ".rename",
    "Sample": ".sample",
    "Shuffle": ".shuffle",
    "Split": ".split",
    "Template": ".template",
}


if not TYPE_CHECKING:  # a type checker would take it as saying that every name is there, and is Any
    __getattr__ = lazy_names(__name__, _HOME)
