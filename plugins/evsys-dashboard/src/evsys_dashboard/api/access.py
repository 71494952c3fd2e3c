"""Who may do what."""

from __future__ import annotations

import attrs

__all__ = ["EVERYTHING", "Access"]


@attrs.frozen(kw_only=True)
class Access:
    """The rights of the sender of a request.

    Attributes:
        name: printable part of the key; None in a project, where no key is needed.
        scopes: of the key.
        project: the one that the key is for; None for all.
    """

    name: str | None
    scopes: frozenset[str]
    project: str | None

    def may(self, scope: str | None, project: str | None) -> bool:
        """Whether this scope is granted for this project. `admin` grants all but `test`."""
        granted = scope is None or scope in self.scopes or (scope != "test" and "admin" in self.scopes)
        return granted and (project is None or self.project in {None, project})


EVERYTHING = Access(name=None, scopes=frozenset({"read", "write", "test", "admin"}), project=None)
"""Access of the person at this machine to the project that they are in."""
