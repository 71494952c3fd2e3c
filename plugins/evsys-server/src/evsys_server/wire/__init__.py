"""The wire of the Tinker protocol: its binary messages by field number, and the numpy arrays in them."""
