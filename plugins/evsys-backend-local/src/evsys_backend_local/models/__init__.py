"""Reading base models, and bringing them to this machine."""
