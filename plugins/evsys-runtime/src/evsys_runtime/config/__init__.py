"""The experiment file: read with positions, expanded into arms, checked as a whole before anything is spent.

`validate.load_experiment` is the only entrance. Importing this package imports nothing else.
"""
