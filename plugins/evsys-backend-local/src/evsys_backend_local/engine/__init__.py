"""The numerical engine: NumPy, worker threads, and nothing else."""
