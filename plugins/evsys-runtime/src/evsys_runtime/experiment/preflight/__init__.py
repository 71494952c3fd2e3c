"""Checks before anything is trained, and reports on data and caches."""
