"""The Tinker protocol over any backend that runs in process."""
