"""The files that `init-project` and `new-experiment` write: those next to this module, with `$name` filled in."""
