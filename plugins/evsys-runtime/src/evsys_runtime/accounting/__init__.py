"""What calls cost, in tokens and money, and how many may be made at once."""
