"""Ends of an experiment from outside or from within: signals, stalls, a blocked loop."""
