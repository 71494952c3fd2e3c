"""The conclusion of an experiment, recomputed from its record. Nothing here shares code with the verdict that it checks.

Rewards are read from the rollouts, tests are written down from their sources a second time, random tests draw their own numbers and are
compared within the error of drawing them. A test holds that no module of this room imports `evsys_runtime.experiment` or
`evsys_runtime.evaluation`.
"""
