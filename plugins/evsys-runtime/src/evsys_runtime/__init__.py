"""The toolkit behind evsys runs: configuration, training loop, losses, evaluation, record."""
