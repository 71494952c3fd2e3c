"""Arms that the file does not list: what a search proposes, what confirms a winner."""
