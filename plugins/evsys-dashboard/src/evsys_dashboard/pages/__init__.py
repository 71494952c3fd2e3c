"""The pages for browsers, served as they are."""
