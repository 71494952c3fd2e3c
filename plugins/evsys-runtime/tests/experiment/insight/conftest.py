"""Tests of the memory: records are written for real, but nobody waits for the disk."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Syncing protects from power cuts, which no test makes."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
