"""The statistics behind evsys conclusions: pure functions of arrays, each with its source."""
