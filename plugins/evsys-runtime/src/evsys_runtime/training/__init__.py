"""Training: parameters, the loop that drives an algorithm's batches, checkpoints and health checks."""
