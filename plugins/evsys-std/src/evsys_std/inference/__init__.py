"""Inference clients: models behind a service."""
