"""Seeds of rollouts: a pure function of the scoring's seed and the rollout's place, so arms and engines are paired."""

from __future__ import annotations

import hashlib

from evsys_record.encoding import utf8

__all__ = ["rollout_seed", "turn_seed"]


def rollout_seed(base: int, task_index: int, sample_index: int) -> int:
    """The seed of one rollout, in [0, 2**63); `task_index` counts in the list that an engine was given."""
    return _hashed(f"{base}:{task_index}:{sample_index}")


def turn_seed(seed: int, turn: int) -> int:
    """The seed of a rollout's model call number `turn`; call 0 has the rollout's own."""
    return seed if turn == 0 else _hashed(f"{seed}:turn:{turn}")


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(utf8(text), digest_size=8).digest(), "big") >> 1
