"""An experiment taken up again from its record, and one that branches off from another."""
