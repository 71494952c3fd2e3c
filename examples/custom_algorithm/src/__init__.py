"""This project's own algorithm; `evsys run` imports it."""
