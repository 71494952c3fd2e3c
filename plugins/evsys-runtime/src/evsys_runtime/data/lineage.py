"""How rows came to be: the source and each transform with its parameters and the hash of its code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["TransformLineage", "derive_seed"]


@attrs.frozen(kw_only=True)
class TransformLineage:
    """One transform as the record keeps it. `uses` holds the hashes of functions that the parameters name."""

    kind: str
    params: Mapping[str, Any] = attrs.field(factory=dict)
    source_hash: str
    seed: int | None = None
    uses: Mapping[str, str] = attrs.field(factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, without what isn't there."""
        tree = {"kind": self.kind, "params": dict(self.params), "source_hash": self.source_hash}
        return (
            tree
            | ({} if self.seed is None else {"seed": self.seed})
            | ({"uses": dict(self.uses)} if self.uses else {})
        )


def derive_seed(seed: int, purpose: str, index: int = 0) -> int:
    """A seed of its own for each purpose, in [0, 2**63); neighbouring seeds give unrelated ones."""
    digest = hashlib.sha256(f"evsys-data/1:{seed}:{purpose}:{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
