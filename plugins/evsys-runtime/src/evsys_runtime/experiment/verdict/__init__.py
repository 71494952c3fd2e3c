"""From scores to what may be said: paired comparison, outcome of each arm, verdict, words."""
