"""The evsys command."""
