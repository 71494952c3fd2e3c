"""`Sweep`: a matrix written in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from evsys import structure
from evsys_runtime.config.expand import expand_document
from evsys_runtime.config.model import AxisConfig, MatrixConfig, RunConfig
from evsys_runtime.config.python_config import document_of, plain_tree
from evsys_runtime.config.report import Report

__all__ = ["Sweep"]


@attrs.frozen(kw_only=True, init=False)
class Sweep(MatrixConfig):
    """The `matrix` of an experiment file in Python: it expands into the same arms, with the same names.

    Args:
        axes: dotted path inside a run to the list of its values, or to `{values, when}`.
        base_run: the run that the axes vary; may be given as the experiment's `base_run` instead.
        name_template: names of the arms, such as `lr-{algorithm.params.learning_rate}`; by default made of the axes.
        zip: groups of axes that advance together instead of multiplying.

    Raises:
        ConfigError: an argument isn't what a file may have there.
    """

    def __init__(
        self,
        axes: Mapping[str, Sequence[Any] | AxisConfig | Mapping[str, Any]],
        *,
        base_run: Mapping[str, Any] | RunConfig | None = None,
        name_template: str | None = None,
        zip: Sequence[Sequence[str]] = (),
    ) -> None:
        given = {"axes": axes, "base_run": base_run, "name_template": name_template, "zip": zip}
        matrix = structure(MatrixConfig, plain_tree(given, "$.matrix"), path="$.matrix")
        self.__attrs_init__(**attrs.asdict(matrix, recurse=False))

    @property
    def runs(self) -> tuple[RunConfig, ...]:
        """One run for each arm, in order and with the names that the experiment gives them.

        Raises:
            ConfigError: there is no `base_run`, or the axes don't fit it.
        """
        report = Report()
        expansion = expand_document(document_of({"matrix": self}), report)
        report.raise_if_any()
        return tuple(structure(RunConfig, arm.tree, path=arm.origins.base) for arm in expansion.arms)
