"""Standard verifiers and metrics of evsys."""
