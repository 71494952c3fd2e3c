"""Levers that nothing on record has moved: the learning rate, the rows, the algorithm and the prompt of a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from evsys_runtime.experiment.insight.arm_index import positive

__all__ = ["Lever", "levers"]

_RATE = "algorithm.params.learning_rate"
_ALGORITHM = "algorithm.kind"
_FACTOR = 3.0
"""How far a first step in the learning rate goes."""

_SAMPLE = "evsys-std/sample"


@attrs.frozen(kw_only=True)
class Lever:
    """Something to vary, and what that would show.

    `values` are set in the arm, by path, and `arm` is the changed one's name; both are empty where a person has to choose, as `needs` says.
    """

    name: str
    learns: str
    needs: str
    values: Mapping[str, Any] = attrs.field(factory=dict)
    arm: str = ""


def levers(
    run: Mapping[str, Any], own: Mapping[str, str], others: Sequence[Mapping[str, str]], rows: int | None
) -> Iterator[Lever]:
    """The parts of a recipe to vary.

    Args:
        run: its config as resolved.json has it.
        own: its values as JSON texts, by path.
        others: those of the other arms on record judged by the same metric.
        rows: how many it was trained on.
    """
    differing = [
        {path for path in own.keys() | other.keys() if own.get(path) != other.get(path)} for other in others
    ]
    rate = positive(own.get(_RATE))
    if rate is not None and {_RATE} not in differing:
        yield _rate(rate)
    if not any(paths and all(path.startswith("data.") for path in paths) for paths in differing):
        yield from _rows(run, rows)
    if not any(_ALGORITHM in paths for paths in differing):
        yield Lever(
            name="algorithm",
            learns="whether another algorithm beats it: every arm on record with this metric has the same one",
            needs="an algorithm and data for it (`evsys list algorithm`)",
        )
    if not any("prompt" in path for paths in differing for path in paths):
        yield Lever(
            name="prompt",
            learns="whether another system prompt beats it: every arm on record with this metric has the same one",
            needs="a prompt, as a transform of the rows and as `system_prompt` of the benchmark entries",
        )


def _rate(rate: float) -> Lever:
    value = float(f"{rate * _FACTOR:.2g}")
    return Lever(
        name="rate",
        learns=f"whether a learning rate of {value:g} is better than {rate:g}: no other was tried",
        needs=f"a learning rate of {value:g}",
        values={_RATE: value},
        arm=f"learning_rate-{value:g}",
    )


def _rows(run: Mapping[str, Any], rows: int | None) -> Iterator[Lever]:
    """Twice the rows where they are drawn; else half of them, since a loss without these says that more would help."""
    transforms = (run.get("data") or {}).get("transforms")
    if not isinstance(transforms, list):
        return
    for place, each in enumerate(transforms):
        count = (each.get("params") or {}).get("n")
        if str(each.get("kind")) == _SAMPLE and isinstance(count, int):
            yield Lever(
                name="rows",
                learns=f"whether {2 * count} rows are better than {count}: no other number was tried",
                needs=f"{2 * count} rows",
                values={f"data.transforms[{place}].params.n": 2 * count},
                arm=f"rows-{2 * count}",
            )
            return
    half = (rows or 0) // 2
    batch = (run.get("algorithm", {}).get("params") or {}).get("batch_size")
    if half < max(1, batch if isinstance(batch, int) else 1):
        return
    yield Lever(
        name="rows",
        learns=f"whether {half} rows score less than {rows}, so that more of them would help: no other number was tried",
        needs=f"{half} rows",
        values={"data.transforms": [{"kind": _SAMPLE, "params": {"n": half}}, *transforms]},
        arm=f"rows-{half}",
    )
