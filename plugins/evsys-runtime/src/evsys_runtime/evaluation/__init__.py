"""Scoring: benchmarks bound to verifiers and metrics, rollouts of a snapshot, rewards, metrics with intervals."""
