"""Names of proofs: entries scored again on the selected checkpoint alone."""

from __future__ import annotations

__all__ = ["is_proof", "proof_name", "proven_name"]

_SUFFIX = "@selected"


def proof_name(benchmark: str) -> str:
    """The name of an entry's proof in results."""
    return benchmark + _SUFFIX


def is_proof(benchmark: str) -> bool:
    """True for the name of a proof."""
    return benchmark.endswith(_SUFFIX)


def proven_name(benchmark: str) -> str:
    """The entry that a proof is of; of any other entry its own name."""
    return benchmark.removesuffix(_SUFFIX)
