"""The public names of the statistics, module by module; taking one away breaks the analyses of others."""

from importlib import import_module
from pathlib import Path

import pytest

import evsys_stats

MODULES = sorted(path.stem for path in Path(evsys_stats.__file__).parent.glob("[!_]*.py"))
PUBLIC = {
    "alpha_spending": "FIRST_SHARE level_of_look parts_of_selection",
    "binary_pairs": "MID_P_BELOW mcnemar paired_proportions_p tango_z",
    "claims": "boundaries claim_outcome claim_p claim_verb least_win name_of_test outcome_p",
    "corrections": "BONFERRONI Corrected WESTFALL_YOUNG bonferroni corrected westfall_young",
    "exchangeability": "Martingale Side",
    "intervals": "Interval bootstrap_interval mean_interval student_t_quantile t_upper_tail wilson_interval",
    "paired": """Flips Pair Paired cluster_sums interval_end paired_difference paired_differences satterthwaite
        standard_error wild_bootstrap""",
    "power": """POWER detectable fewest_runs least_share needed_units runs_to_show smallest_p smallest_p_of tasks_to_place
        tasks_to_show""",
    "ranges": "OF_REWARDS Range declared_range hull range_of seen_range",
    "recipe": "MIN_SEEDS errors_with permutation_floor recipe_claim seed_permutation two_way_errors",
    "shrinkage": "shrunken_effects with_shrunken_effects",
    "signs": "ENUMERATE_UP_TO sign_products",
    "student": "studentized_maximum t_quantile two_sided_p",
    "weighted_means": "UNSEEN_WEIGHT WeightedMeans weighted_means",
}


def test_every_module_is_pinned():
    assert sorted(PUBLIC) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_the_public_names_of_each_module_are_pinned(module):
    names = import_module(f"evsys_stats.{module}")
    assert sorted(names.__all__) == sorted(PUBLIC[module].split())
    assert [name for name in names.__all__ if not hasattr(names, name)] == []
