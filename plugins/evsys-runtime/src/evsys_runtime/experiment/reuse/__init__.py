"""Runs of earlier experiments that are taken from the record instead of being made again."""
