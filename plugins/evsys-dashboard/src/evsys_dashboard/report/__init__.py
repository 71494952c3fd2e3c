"""Reports: the pages of one experiment, with their data, as one file."""
