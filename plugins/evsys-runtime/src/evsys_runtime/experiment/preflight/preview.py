"""Training rows as the model will see them, before anything is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from evsys.errors import ConfigError, Problem, boundary
from evsys.optional import declared
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.data.load import load_dataset
from evsys_runtime.data.pipeline import NO_REASON
from evsys_runtime.data.workspace import Workspace
from evsys_runtime.experiment.state.seeds import seeds_of
from evsys_runtime.rendering.resolve import load_renderer

__all__ = ["Preview", "PreviewedRow", "Span", "preview_rows"]


@attrs.frozen(kw_only=True)
class Span:
    """Text of neighbouring tokens that are all trained, or all not."""

    text: str
    trained: bool
    tokens: int


@attrs.frozen(kw_only=True)
class PreviewedRow:
    """One training sequence: its spans in order; a row gives several where the template rewrites history."""

    row_id: str
    spans: tuple[Span, ...]

    @property
    def tokens(self) -> int:
        """Length in tokens."""
        return sum(span.tokens for span in self.spans)

    @property
    def trained_tokens(self) -> int:
        """Tokens that have a loss."""
        return sum(span.tokens for span in self.spans if span.trained)


@attrs.frozen(kw_only=True)
class Preview:
    """The first rows of an arm.

    `dropped` counts those among the rows looked at that would be left out, by who leaves them out and why. `not_read` is
    how many rows follow; None where that isn't known, since no one read so far. `warnings` name columns that reach no message.
    """

    rows: tuple[PreviewedRow, ...]
    dropped: Mapping[str, int]
    not_read: int | None
    warnings: tuple[str, ...] = ()


def preview_rows(plan: Plan, *, arm: str | None = None, limit: int = 3) -> Preview:
    """Render the first rows of an arm. Nothing is written, the cache included.

    Args:
        plan: a valid plan.
        arm: its name, of a stage `<arm>.<index>-<stage>`; the first one by default.
        limit: how many rows are read after the transforms.

    Raises:
        ConfigError: no such arm, or its algorithm shows no rows.
        DataError: rows can't be read or rendered.
    """
    chosen = _arm(plan, arm)
    kind = chosen.run.algorithm.kind
    algorithm = plan.registry.build("algorithm", kind, resolve(chosen.run.algorithm.params))
    show = declared(algorithm, "preview")
    if show is None:
        message = f"algorithm {kind!r} doesn't show its rows: it has no `preview(rows, renderer, dropped)`"
        raise ConfigError([Problem(path="$.run.algorithm.kind", message=message)])
    data = load_dataset(
        chosen.run.data,
        shape=declared(algorithm, "shape", "chat"),
        project_root=plan.project_root,
        registry=plan.registry,
        pull=Workspace(plan.project_root).find_dataset,
        seed=seeds_of(plan, chosen)("data"),
        limit=limit,
        resolve=resolve,
    )
    renderer = load_renderer(
        chosen.run.model.name, renderer=chosen.run.model.renderer, registry=plan.registry
    )
    left_out: Counter[str] = Counter()
    with boundary("algorithm", kind):
        rendered = list(show(iter(data), renderer, left_out))
    unexplained = len(data) - len(rendered) - left_out.total()
    if unexplained > 0:
        left_out[NO_REASON] += unexplained
    return Preview(
        rows=tuple(
            PreviewedRow(row_id=row.row_id, spans=tuple(_spans(tokens, weights, renderer)))
            for row in rendered
            for tokens, weights in row.sequences
        ),
        dropped={**data.dropped, **{f"{kind}: {reason}": count for reason, count in left_out.items()}},
        not_read=data.not_read,
        warnings=data.warnings,
    )


def _arm(plan: Plan, name: str | None) -> ArmConfig:
    if name is None:
        return plan.looked_at[0]
    for arm in plan.looked_at:
        if name in (arm.name, arm.label):
            return arm
    names = ", ".join(dict.fromkeys(arm.label for arm in plan.looked_at))
    raise ConfigError(f"no arm is called {name!r}", hint=f"arms: {names}")


def _spans(tokens: Sequence[int], weights: Sequence[float], renderer: Any) -> Iterator[Span]:
    """Cut where training starts or ends. The ids are decoded span by span, so a character is never cut in two."""
    start = 0
    for end in range(1, len(tokens) + 1):
        if end == len(tokens) or (weights[end] != 0) != (weights[start] != 0):
            ids = [int(token) for token in tokens[start:end]]
            yield Span(
                text=renderer.tokenizer.decode(ids), trained=bool(weights[start] != 0), tokens=len(ids)
            )
            start = end
