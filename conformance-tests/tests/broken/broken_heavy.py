"""A plugin that keeps its contract, and takes an age to import."""

import torch  # the one beside this file, which is empty
from broken_verifier import Right

__all__ = ["Slow", "torch"]


class Slow(Right):
    pass
