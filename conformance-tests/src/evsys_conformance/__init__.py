"""The shared conformance suite for evsys plugins."""
