"""One arm from its data to its scores, and what it shares with the others."""
