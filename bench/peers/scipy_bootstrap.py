"""scipy's bootstrap and sign flips on the scores of `bench/verdict.py`: runs in an environment of peers, imports nothing of evsys.

    python peers/scipy_bootstrap.py SCORES.npy DRAWS ROUNDS

prints one JSON line. SCORES is [arms + 1, tasks], the baseline last. Each arm's paired difference is resampled over tasks, by the percentile
method, which gives an interval and no test; then its signs are flipped, which gives a test and no interval. The least of the rounds counts.
"""

import json
import sys
import time

import numpy as np
import scipy
from scipy.stats import bootstrap, permutation_test


def main():
    scores, draws, rounds = np.load(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    differences = scores[:-1] - scores[-1]
    resampled, intervals = timed(interval, differences, draws, rounds)
    flipped, p_values = timed(flips_p, differences, draws, rounds)
    found = {"version": scipy.__version__, "bootstrap": resampled, "permutation_test": flipped}
    print(json.dumps({**found, "intervals": intervals, "p_values": p_values}))


def timed(statistic, differences, draws, rounds):
    figures = []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        found = [statistic(each, draws) for each in differences]
        figures.append((time.perf_counter() - wall, time.process_time() - cpu))
    walls, cpus = zip(*figures, strict=True)
    return {"wall": min(walls), "cpu": min(cpus)}, found


def interval(differences, draws):
    found = bootstrap(
        (differences,),
        np.mean,
        n_resamples=draws,
        method="percentile",
        batch=1000,
        rng=np.random.default_rng(0),
    )
    return [float(end) for end in found.confidence_interval]


def flips_p(differences, draws):
    found = permutation_test(
        (differences,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=draws,
        batch=1000,
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


main()
