"""Estimates the cost and the power of an experiment before anything is spent, and compares two recorded ones."""
