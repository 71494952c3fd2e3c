"""Makes verdict_values.json: what scipy and statsmodels say of the data in test_verdict_values.py.

Neither is a dependency. `uv run --no-project --with scipy --with statsmodels python make_verdict_values.py` in this folder.
"""

import json
from pathlib import Path

import numpy as np
import scipy
import statsmodels
import statsmodels.api as sm
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.sandwich_covariance import cov_cluster, cov_cluster_2groups

DIFFERENCES = [0.31, -0.12, 0.5, 0.25, 0.0, -0.4, 0.75, 0.1, 0.33, -0.05]
CLUSTERED = [0.2, 0.5, -0.1, 0.9, 0.4, 0.3, 0.6, -0.2, 0.1, 0.8, 0.05, 0.7, 0.45, -0.3, 0.15, 0.35]
LABELS = [0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4, 4, 5, 6, 7, 7]
SEEDS_A = [0.71, 0.64, 0.69, 0.75, 0.68]
SEEDS_B = [0.62, 0.66, 0.58, 0.61, 0.65]


def wild(sums: np.ndarray, sizes: np.ndarray, mean: float) -> float:
    """Sign flips of the residuals around `mean`: the pairs (residual, 0) permuted within each cluster."""
    groups, n = len(sums), sizes.sum()
    residuals = sums - mean * sizes

    def t(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        flipped = x - y
        effect = flipped.sum(axis=axis) / n
        left = flipped - np.expand_dims(effect, axis) * sizes
        error = np.sqrt(groups / (groups - 1) * np.square(left).sum(axis=axis)) / n
        return np.abs(effect) / error * (1 + 1e-12)

    found = stats.permutation_test(
        (residuals, np.zeros(groups)), t, permutation_type="samples", alternative="greater",
        n_resamples=np.inf, vectorized=True,
    )  # fmt: skip
    return float(found.pvalue)


def interval(p_value, effect: float, step: float) -> list[float]:
    """Where p_value crosses 0.05 on both sides of an effect."""
    ends = []
    for way in (-1.0, 1.0):
        inside, outside = effect, effect + way * step
        while p_value(outside) > 0.05:
            outside += way * step
        for _ in range(40):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if p_value(middle) > 0.05 else (inside, middle)
        ends.append(outside)
    return ends


def permuted(shift: float) -> float:
    found = stats.permutation_test(
        (np.array(SEEDS_A) - shift, np.array(SEEDS_B)), lambda x, y, axis: np.abs(x.mean(axis) - y.mean(axis)),
        permutation_type="independent", alternative="greater", n_resamples=np.inf, vectorized=True,
    )  # fmt: skip
    return float(found.pvalue)


def two_way() -> dict[str, float]:
    """One-way and two-way clustered variances of a mean over runs (rows) and tasks (columns)."""
    scores = np.random.default_rng(7).random((5, 12))
    tasks = np.tile(np.arange(12), 5)
    runs = np.repeat(np.arange(5), 12)
    fit = sm.OLS(scores.ravel(), np.ones(60)).fit()
    both, by_run, by_task = cov_cluster_2groups(fit, runs, tasks, use_correction=False)
    return {"by_run": float(by_run[0, 0]), "by_task": float(by_task[0, 0]), "both": float(both[0, 0])}


def main() -> None:
    sums = np.bincount(LABELS, weights=CLUSTERED)
    sizes = np.bincount(LABELS).astype(float)
    ones = np.ones(len(DIFFERENCES))
    clustered = sm.OLS(CLUSTERED, np.ones(len(CLUSTERED))).fit()
    tables = [(18, 6), (5, 0), (9, 3), (40, 22), (13, 12), (100, 70)]
    values = {
        "made_with": {
            "scipy": scipy.__version__,
            "statsmodels": statsmodels.__version__,
            "numpy": np.__version__,
        },
        "mcnemar_exact": [[b, c, float(mcnemar([[0, b], [c, 0]], exact=True).pvalue)] for b, c in tables],
        "mcnemar_mid": [
            [b, c, float(stats.binomtest(b, b + c).pvalue - stats.binom.pmf(min(b, c), b + c, 0.5))]
            for b, c in tables
        ],
        "bonferroni": multipletests([0.01, 0.04, 0.03, 0.005, 0.2, 0.011], method="bonferroni")[1].tolist(),
        "wild": {str(mean): wild(np.array(DIFFERENCES), ones, mean) for mean in (0.0, 0.05, -0.1, 0.4)},
        "wild_interval": interval(
            lambda mean: wild(np.array(DIFFERENCES), ones, mean), float(np.mean(DIFFERENCES)), 0.1
        ),
        "wild_clustered": {str(mean): wild(sums, sizes, mean) for mean in (0.0, 0.1, 0.5)},
        "clustered_error": float(np.sqrt(cov_cluster(clustered, np.array(LABELS))[0, 0])),
        "permutation": {str(shift): permuted(shift) for shift in (0.0, 0.02, 0.12)},
        "two_way": two_way(),
        "t": [[t, df, float(2 * stats.t.sf(t, df))] for t in (0.3, 2.1, 6.0) for df in (1.0, 3.7, 40.0, 1e4)],
        "t_quantile": [
            [q, df, float(stats.t.ppf(q, df))] for q in (0.8, 0.975, 0.9995) for df in (1.0, 3.7, 40.0)
        ],
        "power_t": float(
            optimize.brentq(
                lambda effect: stats.nct.sf(stats.t.ppf(0.975, 8), 8, effect / np.sqrt(2 / 5)) - 0.8, 0.1, 10
            )
        ),
    }
    text = json.dumps(values, indent=1)
    Path(__file__).with_name("verdict_values.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
