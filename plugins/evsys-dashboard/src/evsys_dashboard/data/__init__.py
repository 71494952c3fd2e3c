"""Datasets and benchmarks by ID: versions that never change, on a team's server and in the projects that use them."""
