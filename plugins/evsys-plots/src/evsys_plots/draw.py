"""Drawing all plots of an experiment into a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from evsys.errors import PLUGIN_FAILURES
from evsys_plots.material import Material, material_of
from evsys_plots.style import Plot, rendered, settings
from evsys_record import Experiment, make_directory, refuse_links, write_atomic

__all__ = ["Drawn", "draw"]


@attrs.frozen(kw_only=True)
class Drawn:
    """The files written, and what couldn't be drawn, with the reason."""

    files: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()


def draw(directory: Path, out: Path | None = None) -> Drawn:
    """Draw what an experiment's record has something to say about; of a dry run that is nothing.

    Args:
        directory: the experiment's folder.
        out: where the files go, by default `plots` in that folder. Files of the same names are replaced.

    Raises:
        StoreError: there is no record, `out` can't be written to, or a link in the record leads out of it.
    """
    material = material_of(directory)
    if out is None:
        refuse_links(directory)
    folder = Experiment(directory).plots if out is None else out
    files: list[Path] = []
    problems: list[str] = []
    if material.dry:
        return Drawn()
    for drawing in _drawings():
        try:
            plots = _rendered(drawing, material)
        except PLUGIN_FAILURES as exc:
            problems.append(f"{drawing.__name__}: {type(exc).__name__}: {exc}")
            continue
        for name, content in plots.items():
            path = make_directory(folder) / name
            write_atomic(path, content)
            files.append(path)
    return Drawn(files=tuple(files), problems=tuple(problems))


def _drawings() -> tuple[Callable[[Material], Iterator[Plot]], ...]:
    """The plots, the answer to the experiment's question first."""
    from evsys_plots.curves import scores, training
    from evsys_plots.effects import differences, effects
    from evsys_plots.forgetting import forgetting
    from evsys_plots.money import cost

    return effects, differences, scores, training, cost, forgetting


def _rendered(drawing: Callable[[Material], Iterator[Plot]], material: Material) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    with settings():
        for plot in drawing(material):
            files |= rendered(plot)
    return files
