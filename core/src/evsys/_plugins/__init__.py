"""How a plugin is found, understood and built: one reading of it for everybody who runs or checks plugins."""
