"""How a plugin is found, understood and built: the one implementation that runs and checks share."""
