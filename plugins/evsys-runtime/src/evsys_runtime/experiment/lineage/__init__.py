"""What earlier experiments and earlier attempts at this one left: their questions, runs and restart points."""
