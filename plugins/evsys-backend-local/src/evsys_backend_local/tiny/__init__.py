"""The base model that ships inside the wheel."""
