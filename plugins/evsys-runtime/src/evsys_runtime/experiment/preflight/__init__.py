"""What is looked at before anything is trained, and what is told of data and caches."""
