"""Before anything is spent: what an experiment will take and can tell; and two that are on record side by side."""
