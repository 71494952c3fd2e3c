"""scipy's bootstrap on the scores of `bench/verdict.py`: runs in an environment of peers, imports nothing of evsys.

    python peers/scipy_bootstrap.py SCORES.npy DRAWS

prints one JSON line. SCORES is [arms + 1, tasks], the baseline last. Each arm's paired difference is resampled over tasks, by the percentile
method, which gives an interval and no test.
"""

import json
import sys
import time

import numpy as np
import scipy
from scipy.stats import bootstrap


def main():
    scores, draws = np.load(sys.argv[1]), int(sys.argv[2])
    wall, cpu = time.perf_counter(), time.process_time()
    intervals = []
    for arm in scores[:-1]:
        found = bootstrap(
            (arm - scores[-1],),
            np.mean,
            n_resamples=draws,
            method="percentile",
            batch=1000,
            rng=np.random.default_rng(0),
        )
        intervals.append([found.confidence_interval.low, found.confidence_interval.high])
    measured = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    print(json.dumps({"version": scipy.__version__, **measured, "intervals": intervals}))


main()
