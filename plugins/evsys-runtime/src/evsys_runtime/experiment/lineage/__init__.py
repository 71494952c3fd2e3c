"""The traces of earlier experiments and of earlier attempts at this one: their questions, runs and restart points."""
