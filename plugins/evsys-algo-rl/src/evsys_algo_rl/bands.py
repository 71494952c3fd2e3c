"""The bands in which the metrics of a healthy training stay. The conditions that end a run are in `collapse.py`;
leaving a band is only reported.
"""

from __future__ import annotations

from collections.abc import Mapping

from evsys_runtime import Band
from evsys_runtime.training.bands import STEEP

__all__ = ["BANDS"]

BANDS: Mapping[str, Band] = {
    "error_share": Band(
        None, 0.1, "rollouts crash, so what is learnt is learnt from the others: look at their errors"
    ),
    "no_score_share": Band(
        None, 0.05, "verifiers give no score, which may favour one kind of answer: look at their reasons"
    ),
    "timed_out_share": Band(
        None, 0.1, "rollouts run out of time, and long answers are punished for it: raise timeout_seconds"
    ),
    "repetition": Band(None, 0.8, "answers repeat themselves: look at what the verifier rewards"),
    "kl_sampler_trainer": Band(
        None,
        0.1,
        "the trained policy is far from the sampling policy: lower max_staleness, substeps or the learning rate, "
        "or check the weights with which the backend samples",
    ),
    "clipped_share": Band(
        None, 0.5, "most tokens are clipped and teach nothing: lower the learning rate or substeps"
    ),
    "grad_norm": STEEP,
}
"""Kept apart from what learning itself changes: a policy that has learnt its task has an entropy of 0 and flat groups, and answers
may be meant to be cut off.
"""
