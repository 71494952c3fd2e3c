"""Why something failed."""

from __future__ import annotations

import attrs

__all__ = ["Failure"]


@attrs.frozen(kw_only=True)
class Failure:
    """Why something failed: the boundary it crossed, the plugin called there, and where the traceback ended."""

    boundary: str
    message: str
    error_type: str
    plugin: str | None = None
    place: str | None = None
    hint: str | None = None
    traceback: str | None = None

    @property
    def placed(self) -> str:
        """The message with the place, once."""
        return (
            self.message if not self.place or self.place in self.message else f"{self.message} ({self.place})"
        )
