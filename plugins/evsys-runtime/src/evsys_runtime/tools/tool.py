"""A tool: its name, its arguments and its answer as JSON Schemas, and what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import attrs

from evsys import option, schema_for_config, structure
from evsys_record import result_tree
from evsys_runtime.experiment.result_schemas import result_schema
from evsys_runtime.tools.caps import FEWEST_TOKENS, cap
from evsys_runtime.tools.lab import Lab

__all__ = ["Answer", "Arguments", "Tool"]

MOST_TOKENS = 2000
"""The length of an answer, unless its caller asks for another."""


@attrs.frozen(kw_only=True)
class Arguments:
    """Arguments of every tool."""

    max_tokens: int = option(
        MOST_TOKENS,
        "Longest answer, in tokens of 4 bytes; longer ones lose the ends of lists and texts.",
        ge=FEWEST_TOKENS,
    )


@attrs.frozen(kw_only=True, eq=False)
class Answer:
    """The answer of a tool.

    Attributes:
        tree: JSON values that fit the tool's schema.
        cuts: what is missing from it, to keep within `max_tokens`.
        whole: the same without cuts.
    """

    tree: Mapping[str, Any]
    cuts: tuple[str, ...]
    whole: Mapping[str, Any]


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Tool:
    """One thing that an agent can ask for or do.

    Attributes:
        name: what it is called by.
        title: the same for people.
        description: when to use it, and what it answers.
        arguments: the attrs class of its arguments.
        result: the name of its answer in `RESULTS`.
        act: carries it out.
        read_only: it changes nothing.
        destructive: what it does can't be undone.
    """

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    result: str
    act: Callable[[Lab, Any], Any]
    read_only: bool = True
    destructive: bool = False

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments: closed."""
        return schema_for_config(self.arguments)

    @cached_property
    def output_schema(self) -> dict[str, Any]:
        """JSON Schema of the answer, that of the command's `--json`."""
        return result_schema(self.result)

    def call(self, lab: Lab, arguments: Mapping[str, Any]) -> Answer:
        """Carry it out. Blocking.

        Args:
            lab: where.
            arguments: JSON values.

        Raises:
            ConfigError: an argument is unknown (names the nearest), missing or of another type.
            EvsysError: it can't be done; says why.
        """
        given = structure(self.arguments, arguments, path="$")
        whole = result_tree(self.act(lab, given))
        tree, cuts = cap(whole, self.output_schema, given.max_tokens)
        return Answer(tree=tree, cuts=tuple(cuts), whole=whole)
