"""A dashboard of experiments, and the central store that it reads."""
