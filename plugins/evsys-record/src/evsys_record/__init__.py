"""The record: what a run knows, in files that are appended to or atomically replaced.

`files` and `jsonl` are the two ways of writing. `experiment_record` and `run_record` are the tree under `.evsys/`,
`cache` and `workspace` the data beside it. Nothing there is a database: the `index`, which `history` and `shown` ask, is built
from the files.
"""
