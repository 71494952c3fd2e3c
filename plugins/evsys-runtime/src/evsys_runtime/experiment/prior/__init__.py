"""Prior knowledge from earlier experiments on record."""
