"""What `init-project` and `new-experiment` write: the files beside this module, with `$name` filled in."""
