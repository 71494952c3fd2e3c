"""The budget of an experiment, and its spending."""
