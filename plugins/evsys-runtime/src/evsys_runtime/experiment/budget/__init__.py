"""What an experiment may spend and has spent."""
