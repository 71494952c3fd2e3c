"""Arms in processes of their own: the side that launches and follows them, and the process of an arm."""
