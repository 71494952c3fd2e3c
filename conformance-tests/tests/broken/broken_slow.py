"""A module that takes two seconds to import."""

import time

from broken_verifier import Right

time.sleep(2)


class SleepsAtImport(Right):
    pass
