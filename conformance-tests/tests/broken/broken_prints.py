"""A module that prints while it is imported."""

from broken_verifier import Right

print("judges 1.0 is ready")  # noqa: T201 - what is wrong with it


class PrintsAtImport(Right):
    pass
