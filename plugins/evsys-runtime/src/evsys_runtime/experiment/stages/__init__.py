"""Arms in several stages, each from the weights of the one before."""
