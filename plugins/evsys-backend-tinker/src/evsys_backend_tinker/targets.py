"""Names of layers as the groups that the Tinker protocol knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["any_of_each", "target_flags"]

_MLP = {"gate_proj", "up_proj", "down_proj"}
_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
_UNEMBED = {"lm_head"}


def target_flags(targets: Sequence[str]) -> Mapping[str, bool]:
    """Which groups of layers a server trains, from names of layers; `all-linear` is all but the output layer.

    Raises:
        ValueError: the names aren't whole groups, which is all that the protocol knows.
    """
    names = set(targets)
    if "all-linear" in names:
        names = (names - {"all-linear"}) | _MLP | _ATTENTION
    flags = {}
    for flag, group in (("train_mlp", _MLP), ("train_attn", _ATTENTION), ("train_unembed", _UNEMBED)):
        chosen = names & group
        if chosen and chosen != group:
            lacking = ", ".join(sorted(group - chosen))
            raise ValueError(
                f"the Tinker protocol trains groups of layers, so {', '.join(sorted(chosen))} needs {lacking} too"
            )
        flags[flag] = bool(chosen)
        names -= group
    if names:
        known = ", ".join(("all-linear", *sorted(_MLP | _ATTENTION | _UNEMBED)))
        raise ValueError(f"the Tinker protocol doesn't know {', '.join(sorted(names))}; it has {known}")
    return flags


def any_of_each(targets: Sequence[str]) -> Mapping[str, bool]:
    """The same for a server that also gets the names: a group is on if any of it is trained."""
    names = set(targets)
    whole = "all-linear" in names
    return {
        "train_mlp": whole or bool(names & _MLP),
        "train_attn": whole or bool(names & _ATTENTION) or not names & (_MLP | _UNEMBED),
        "train_unembed": bool(names & _UNEMBED),
    }
