"""The state of an experiment under way, and what is known of it from its beginning."""
