"""Traces of deployed models: read from five formats, written as one kind of row."""
