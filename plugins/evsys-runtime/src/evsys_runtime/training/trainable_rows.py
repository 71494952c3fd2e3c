"""The rows that can be trained on, each rendered when its turn comes; which ones can is known of a sample beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload

import attrs
import numpy as np

from evsys.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.protocols import Dataset
    from evsys_runtime.training.order import DataOrder
    from evsys_runtime.training.sequences import DropReport

__all__ = ["Rendered", "TrainableOrder", "TrainableRows"]

SAMPLE_ROWS = 4096
"""Up to so many rows are all rendered before the first step; of more, so many are."""

SAMPLE_TOKENS = 1_000_000
"""A sample of rows ends with the row that reaches so many tokens."""

MAX_TOKENS_KEPT = 2_000_000
"""Rendered tokens kept, 12 bytes each."""


class Rendered(Protocol):
    """A row as tokens."""

    @property
    def token_count(self) -> int:
        """Tokens of all its sequences."""


_UNKNOWN, _TRAINS, _LEFT_OUT = 0, 1, 2


@attrs.define(eq=False)
class _Looks[T: Rendered]:
    """The state of all rows: `found` by number, those kept rendered, and those rendered by the last batch."""

    found: NDArray[np.uint8]
    kept: dict[int, T] = attrs.field(factory=dict)
    recent: dict[int, T] = attrs.field(factory=dict)
    tokens_kept: int = 0

    def add(self, number: int, row: T | None) -> None:
        """Note what became of a row."""
        self.found[number] = _LEFT_OUT if row is None else _TRAINS
        if row is None or number in self.kept:
            return
        self.recent[number] = row
        tokens = row.token_count
        if self.tokens_kept + tokens <= MAX_TOKENS_KEPT:
            self.tokens_kept += tokens
            self.kept[number] = row


class TrainableRows[T: Rendered, R: DropReport](Sequence[T]):
    """Rows that aren't known to be left out, by place, rendered when they are read: memory doesn't grow with their tokens.

    The first `MAX_TOKENS_KEPT` tokens are kept, so that small data are rendered once. Iterating skips what can't be trained.

    Args:
        rows: all rows.
        render: gives those of some rows that can be trained, rendered, and counts the others in a report.
        new_report: makes such a report.
        left_out: is called with the reason where a row turns out not to be trainable after the sample was looked at.
        numbers: which rows; all by default.
        looks: what is known of all rows.
    """

    def __init__(
        self,
        rows: Dataset,
        render: Callable[[Iterable[Any], R], Iterator[T]],
        new_report: Callable[[], R],
        left_out: Callable[[str], None],
        *,
        numbers: NDArray[np.int64] | None = None,
        looks: _Looks[T] | None = None,
    ) -> None:
        self._rows = rows
        self._render = render
        self._new_report = new_report
        self._left_out = left_out
        self._numbers = np.arange(len(rows)) if numbers is None else numbers
        self._looks: _Looks[T] = _Looks(np.zeros(len(rows), np.uint8)) if looks is None else looks

    def look(self, report: R, seed: int) -> Iterator[int]:
        """Render a sample of the rows, or all if there are few; gives the numbers of those that can be trained.

        Args:
            report: counts what was dropped and what is trained.
            seed: of the sample.

        Raises:
            DataError: a row can't be rendered; names the row.
        """
        few = len(self._rows) <= SAMPLE_ROWS
        sample = (
            range(len(self._rows))
            if few
            else np.random.default_rng(seed).choice(len(self._rows), SAMPLE_ROWS, replace=False).tolist()
        )
        tokens = 0
        for number in sample:
            row = self._rendered(number, report)
            self._looks.recent.clear()
            if row is not None:
                tokens += row.token_count
                yield number
            if not few and tokens >= SAMPLE_TOKENS:
                return

    @property
    def numbers(self) -> list[int]:
        """The numbers of these rows among all."""
        numbers: list[int] = self._numbers.tolist()
        return numbers

    @property
    def looked_at(self) -> int:
        """How many rows of the data were rendered so far."""
        return int(np.count_nonzero(self._looks.found))

    @property
    def expected(self) -> int:
        """How many of these rows can be trained, as far as is known: those not looked at like the others."""
        found = self._looks.found
        seen, good = np.count_nonzero(found), np.count_nonzero(found == _TRAINS)
        own = found[self._numbers]
        unknown = np.count_nonzero(own == _UNKNOWN)
        share = good / seen if seen else 1.0
        return int(np.count_nonzero(own == _TRAINS)) + round(unknown * share)

    @property
    def all_known(self) -> bool:
        """True where each of these rows is known to be trainable."""
        return bool((self._looks.found[self._numbers] == _TRAINS).all())

    def possible(self) -> TrainableRows[T, R]:
        """Those that aren't known to be left out."""
        return self._subset(self._numbers[self._looks.found[self._numbers] != _LEFT_OUT])

    def apart(self, chosen: NDArray[np.bool_]) -> tuple[TrainableRows[T, R], TrainableRows[T, R]]:
        """The rows at the places chosen, and the others."""
        return self._subset(self._numbers[chosen]), self._subset(self._numbers[~chosen])

    def _subset(self, numbers: NDArray[np.int64]) -> TrainableRows[T, R]:
        return TrainableRows(
            self._rows, self._render, self._new_report, self._left_out, numbers=numbers, looks=self._looks
        )

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> TrainableRows[T, R]: ...
    def __getitem__(self, place: int | slice) -> T | TrainableRows[T, R]:
        if isinstance(place, slice):
            return self._subset(self._numbers[place])
        found = self.get(place)
        if found is None:
            raise DataError(
                f"row {self._numbers[place]} can't be trained", hint="take the rows of `take_rows`"
            )
        return found

    def __iter__(self) -> Iterator[T]:
        for place in range(len(self)):
            found = self.get(place)
            self._looks.recent.clear()
            if found is not None:
                yield found

    def get(self, place: int) -> T | None:
        """A row, None where it can't be trained.

        Raises:
            DataError: it can't be rendered; names the row.
        """
        number, looks = int(self._numbers[place]), self._looks
        if looks.found[number] == _LEFT_OUT:
            return None
        kept = looks.kept.get(number) or looks.recent.get(number)
        if kept is not None:
            return kept
        known, report = looks.found[number] != _UNKNOWN, self._new_report()
        found = self._rendered(number, report)
        if found is None and not known:
            self._left_out(next(iter(report.dropped)))
        return found

    def forget(self) -> None:
        """Let go of what the batch before had rendered."""
        self._looks.recent.clear()

    def _rendered(self, number: int, report: R) -> T | None:
        row = self._rows[number]
        named = row if row.row_id else attrs.evolve(row, row_id=str(number))
        found = next(iter(self._render([named], report)), None)
        self._looks.add(number, found)
        return found


class TrainableOrder:
    """The places of rows in their seeded order, without those that can't be trained.

    What is at a position is a function of the position alone. To find it at once, the order remembers how many places it passed for
    how many rows; without that it looks at all rows before.

    Args:
        rows: the rows.
        order: of their places.
    """

    def __init__(self, rows: TrainableRows[Any, Any], order: DataOrder) -> None:
        self._rows = rows
        self._order = order
        self._whole = rows.all_known
        self._taken = self._passed = 0

    def take(self, first: int, count: int) -> list[int]:
        """The places of the rows `first` to `first + count - 1`.

        Raises:
            DataError: none of the rows can be trained, or one can't be rendered.
        """
        if self._whole:
            return self._order.take(first, count)
        self._rows.forget()
        if first < self._taken:
            self._taken = self._passed = 0
        self._advance(first - self._taken)
        return self._advance(count)

    def state(self) -> dict[str, int]:
        """How far it went, as JSON values; empty where nothing has to be looked for."""
        return {} if self._whole else {"rows_taken": self._taken, "places_passed": self._passed}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue there."""
        self._taken, self._passed = state.get("rows_taken", 0), state.get("places_passed", 0)

    def _advance(self, count: int) -> list[int]:
        found: list[int] = []
        before = self._passed
        while len(found) < count:
            places = self._order.take(self._passed, count - len(found))
            found += [place for place in places if self._rows.get(place) is not None]
            self._passed += len(places)
            if not found and self._passed - before > len(self._rows):
                raise DataError(
                    "no row is left to train on", hint="look at the rows with `evsys data preview`"
                )
        self._taken += count
        return found
