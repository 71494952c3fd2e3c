"""Clients of models whose calls are counted, and how those who count for themselves get past that."""

from __future__ import annotations

from typing import Any, Protocol

from evsys.types import Usage

__all__ = ["POLICY", "Account", "Metered", "without_meter"]

POLICY = "policy"
"""The account of what an algorithm asks of the trained model beside the training."""


class Account(Protocol):
    """Where usage is counted."""

    @property
    def role(self) -> str:
        """Of which model: a role, or `POLICY`."""

    def add(self, took: Usage, /) -> None:
        """Count usage.

        Raises:
            BudgetExceeded: nothing is left.
        """


class Metered:
    """Forwards everything to a client, and counts the calls that the subclasses know."""

    def __init__(self, client: Any, usage: Account) -> None:
        self._client = client
        self._usage = usage
        self._untold = Usage()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def told_usage(self) -> Usage:
        """Usage of the calls since this was asked last."""
        untold, self._untold = self._untold, Usage()
        return untold

    def _count(self, took: Usage) -> None:
        self._untold += took
        self._usage.add(took)

    @property
    def unmetered(self) -> Any:
        """The client for callers who charge what they ask: of the trained model the client itself, of a role this one."""
        return self._client if self._usage.role == POLICY else self


def without_meter[T](client: T) -> T:
    """The trained model, or a snapshot of it, without its meter, for callers who charge what they ask; others as they are."""
    return client.unmetered if isinstance(client, Metered) else client
