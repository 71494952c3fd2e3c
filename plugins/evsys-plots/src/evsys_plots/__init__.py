"""Plots of experiments on record: `draw` writes them, at an experiment's end and for `evsys plot`."""
