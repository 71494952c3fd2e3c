"""Recomputes conclusion.json from the files of a record, with nothing of evsys: `python recomputed.py EXPERIMENT_FOLDER`.

For experiments whose success metric is the mean reward, compared with the untrained model, on at most twelve clusters of tasks, so that every
pattern of signs is looked at and no random number is needed. Prints what it finds as JSON.
"""

import bisect
import itertools
import json
import math
import sys
from pathlib import Path
from statistics import NormalDist

FIRST_LOOK = 0.04  # the level of a first look at a question


def main(folder):
    record = Path(folder)
    facts = read(record / "experiment.json")
    runs = {run["run_id"]: run for run in map(read, record.glob("runs/*/run_result.json"))}
    runs = [runs[planned["run_id"]] for planned in facts["arms"]]
    benchmark, _, metric = facts["success_metric"].rpartition(".")
    assert metric == "mean_reward"
    arms = {}
    for run in runs:
        arms.setdefault((run["purpose"], run["arm"]), []).append(run)
    minimum, noise = facts_minimum(record), noise_floor(arms, benchmark)
    comparisons = {
        name: compared(group, benchmark) for (purpose, name), group in arms.items() if purpose == "candidate"
    }
    correct(comparisons)
    for one in comparisons.values():
        one["outcome"] = outcome(one, minimum, noise)
    winners = [name for name, one in comparisons.items() if one["outcome"] == "win"]
    best = max(comparisons, key=lambda name: comparisons[name]["after"])
    confirmed = None
    for (purpose, name), group in arms.items():
        if purpose == "confirm":
            assert confirmed is None
            confirmed = {**compared(group, benchmark), "arm": name, "runs": [run["run_id"] for run in group]}
            confirmed["p_corrected"] = confirmed["p_value"]
            bound(confirmed, FIRST_LOOK)
            confirmed["outcome"] = outcome(confirmed, minimum, noise)
    return {
        "comparisons": comparisons,
        "best_arm": best,
        "verdict": verdict(winners, confirmed),
        "winners": len(winners),
        "confirmed": confirmed,
        "noise_floor": noise,
        "usage": {
            key: sum(run["usage"][key] for run in runs)
            for key in ("prompt_tokens", "completion_tokens", "trained_tokens", "seconds")
        },
        "test_looks": looks(runs),
        "test_looks_before": looks_before(record, facts),
    }


def correct(comparisons):
    """Westfall & Young, single-step: how often the smallest p-value of all arms is as small by chance."""
    by_pattern = [p_by_pattern(*one["parts"][:2]) for one in comparisons.values()]
    smallest = list(map(min, zip(*by_pattern, strict=True)))
    for one in comparisons.values():
        as_small = sum(1 for p in smallest if p <= one["p_value"] * (1 + 1e-9))
        one["p_corrected"] = as_small / len(smallest)
    allowed = [
        p
        for p in smallest
        if sum(1 for other in smallest if other <= p * (1 + 1e-9)) <= FIRST_LOOK * len(smallest)
    ]
    above = min((p for p in smallest if p > max(allowed, default=0.0) * (1 + 1e-9)), default=1.0)
    for one in comparisons.values():
        bound(one, max(FIRST_LOOK / len(comparisons), min(FIRST_LOOK, above * (1 - 1e-9))))


def bound(one, level):
    """With the interval that agrees with the corrected p-value."""
    sums, sizes, error = one.pop("parts")
    low = end(sums, sizes, one["effect"], error, -1.0, level)
    high = end(sums, sizes, one["effect"], error, 1.0, level)
    one["low"], one["high"] = max(low, -1.0), min(high, 1.0)  # rewards are 0 or 1


def verdict(winners, confirmed):
    """Of several arms, with base_model as the baseline, in which nothing is INVALID."""
    if confirmed is None:
        return "CANDIDATE" if winners else None
    return {"win": "SUPPORTED", "inconclusive": "CANDIDATE"}[confirmed["outcome"]]


def noise_floor(arms, benchmark):
    """The scores of untrained weights, sampled with the seeds of each repeat and of each control run."""
    scores = {}
    for (purpose, _), group in arms.items():
        for run in group if purpose != "confirm" else ():
            value = scoring(run, benchmark, trained=False)["metrics"]["mean_reward"]["value"]
            scores.setdefault(f"base_model-s{run['repeat']}", value)
    if not any(purpose == "control" for purpose, _ in arms):
        return None
    middle = mean(list(scores.values()))
    variance = math.fsum((value - middle) ** 2 for value in scores.values()) / (len(scores) - 1)
    return {
        "runs": scores,
        "largest": max(abs(one - other) for one in scores.values() for other in scores.values()),
        "standard_deviation": math.sqrt(2 * variance),
    }


def looks_before(record, facts):
    """Scorings of the same test tasks by all other experiments beside this one."""
    found = {}
    for name, entry in facts["benchmarks"].items():
        if entry["split"] != "test":
            continue
        seen = set()
        for path in record.parent.glob("*/runs/*/run_result.json"):
            folder, run = path.parents[2].name, read(path)
            for e in run["evaluations"] if folder != record.name else ():
                if e["benchmark_hash"] == entry["hash"] and e["split"] == "test" and e["model"] is None:
                    seen.add((folder, run["run_id"] if e["step"] else "untrained", e["step"]))
        if seen:
            found[name] = len(seen)
    return found


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def facts_minimum(record):
    return read(record / "resolved.json")["metadata"]["minimum_effect"] or 0.0


def scoring(run, benchmark, *, trained):
    found = [e for e in run["evaluations"] if e["benchmark"] == benchmark and e["model"] is None]
    return max((e for e in found if (e["step"] > 0) == trained), key=lambda e: e["step"])


def task_means(scorings):
    """The mean of each task over the repeats, of the means over its samples."""
    tasks = scorings[0]["task_rewards"]
    return {
        task: mean([mean(one["task_rewards"][task]) for one in scorings if task in one["task_rewards"]])
        for task in tasks
    }


def mean(values):
    return math.fsum(values) / len(values)


def compared(group, benchmark):
    trained = [scoring(run, benchmark, trained=True) for run in group]
    untrained = [scoring(run, benchmark, trained=False) for run in group]
    after, before = task_means(trained), task_means(untrained)
    clusters = {}
    for task, cluster in trained[0]["clusters"].items():
        clusters.setdefault(cluster, []).append(after[task] - before[task])
    rewards = [one["task_rewards"] for one in untrained]
    sums = [math.fsum(values) for values in clusters.values()]
    sizes = [len(values) for values in clusters.values()]
    assert len(sums) <= 12
    assert sum(1 for total in sums if abs(total) > 1e-12) >= 6
    effect = math.fsum(sums) / sum(sizes)
    error = spread(sums, sizes, effect)
    normal = NormalDist()
    return {
        "before": mean([e["metrics"]["mean_reward"]["value"] for e in untrained]),
        "after": mean([e["metrics"]["mean_reward"]["value"] for e in trained]),
        "effect": effect,
        "tolerance": 2e-3 * error,
        "p_value": p_value(sums, sizes, effect, error, 0.0),
        "parts": (sums, sizes, error),
        "smallest_detectable_effect": (normal.inv_cdf(1 - FIRST_LOOK / 2) + normal.inv_cdf(0.8)) * error,
        "n_tasks": len(after),
        "n_seeds": len(group),
        "n_baseline_seeds": 1 if all(same == rewards[0] for same in rewards) else len(rewards),
        "n_missing": len(set(after) ^ set(before)),
    }


def spread(sums, sizes, centre):
    """The clustered standard error."""
    groups = len(sums)
    squares = math.fsum((total - centre * size) ** 2 for total, size in zip(sums, sizes, strict=True))
    return math.sqrt(groups / (groups - 1) * squares) / sum(sizes)


def p_value(sums, sizes, effect, error, null):
    """The share of sign patterns whose t is at least as large as the one seen."""
    residuals = [total - null * size for total, size in zip(sums, sizes, strict=True)]
    seen = abs(effect - null) / error
    found = flipped_t(residuals, sizes)
    return sum(1 for t in found if t >= seen * (1 - 1e-9)) / len(found)


def flipped_t(residuals, sizes):
    """|t| under every pattern of signs."""
    found = []
    for signs in itertools.product((-1.0, 1.0), repeat=len(residuals)):
        flipped = [sign * residual for sign, residual in zip(signs, residuals, strict=True)]
        centre = math.fsum(flipped) / sum(sizes)
        error = spread(flipped, sizes, centre)
        found.append(abs(centre) / error if error > 1e-12 else math.inf)
    return found


def p_by_pattern(sums, sizes):
    """The p-value under every pattern of signs, if there is no difference."""
    found = flipped_t(sums, sizes)
    ranked = sorted(found)
    return [1 - bisect.bisect_left(ranked, t * (1 - 1e-9)) / len(found) for t in found]


def end(sums, sizes, effect, error, direction, level):
    inside, outside = 0.0, error
    while p_value(sums, sizes, effect, error, effect + direction * outside) > level:
        inside, outside = outside, 2 * outside
    while outside - inside > 5e-4 * error:
        middle = (inside + outside) / 2
        if p_value(sums, sizes, effect, error, effect + direction * middle) > level:
            inside = middle
        else:
            outside = middle
    return effect + direction * outside


def outcome(one, minimum, noise):
    sides = (1 / one["n_seeds"] + 1 / one["n_baseline_seeds"]) / 2
    floor = 0.0 if noise is None else noise["largest"] * math.sqrt(sides)
    if one["p_corrected"] <= FIRST_LOOK and minimum <= abs(one["effect"]) <= floor:
        return "inconclusive"
    if one["p_corrected"] <= FIRST_LOOK and abs(one["effect"]) >= minimum:
        return "win" if one["effect"] > 0 else "loss"
    return "tie" if -minimum <= one["low"] and one["high"] <= minimum else "inconclusive"


def looks(runs):
    """How often each test entry was scored; untrained weights that runs share once."""
    found = {
        (e["benchmark"], run["run_id"] if e["step"] else "untrained", e["step"])
        for run in runs
        for e in run["evaluations"]
        if e["split"] == "test" and e["model"] is None
    }
    return {name: sum(1 for each in found if each[0] == name) for name in sorted({each[0] for each in found})}


if __name__ == "__main__":
    json.dump(main(sys.argv[1]), sys.stdout)
