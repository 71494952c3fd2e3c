"""Sending a record: what of it the other side lacks, in batches, until it has all."""
