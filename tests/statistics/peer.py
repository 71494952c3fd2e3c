"""The statistics of experiments by scipy and statsmodels; it runs in an environment that has those, and has nothing of evsys.

`peer.py QUESTIONS.csv NUMBERS.csv`: a question a line, whose rewards are in a CSV file; the numbers go out as `id,name,value,error`, where `error` is
five standard deviations of the difference of two honest sets of draws, and 0 where nothing is drawn.
"""

from __future__ import annotations

import csv
import math
import sys
from collections import defaultdict
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

DRAWS = 20_000
EXACT_UP_TO = 12


def per_task(rewards, metric):
    """The metric of a task from its scored samples; None where there are too few."""
    kind, _, k = metric.partition("@")
    if kind == "mean_reward":
        return float(np.mean(rewards)) if rewards else None
    n, passed = len(rewards), sum(r >= 1.0 for r in rewards)
    return None if n < int(k) else 1.0 - float(stats.hypergeom.pmf(0, n, passed, int(k)))


class Sides:
    """The rewards of a file: a table of runs, [S, n], for each side, with NaN where a run has no score of a task.

    `fill` puts samples that are missing at a value, by side; else they are left out.
    """

    def __init__(self, path, metric, fill=None):
        samples, missing, self.units = defaultdict(list), defaultdict(int), {}
        with Path(path).open(encoding="utf-8", newline="") as stream:
            for line in csv.DictReader(stream):
                key = line["side"], line["run"], line["task"]
                self.units[line["task"]] = line["unit"]
                if line["reward"] == "":
                    missing[key] += 1
                    samples[key] += []
                else:
                    samples[key].append(float(line["reward"]))
        scored = {task for (_, _, task), rewards in samples.items() if rewards}
        self.missing = defaultdict(int)
        for (side, _, task), count in missing.items():
            if task in scored:
                self.missing[side] += count
                if fill is not None:
                    samples[side, _, task] += [fill[side]] * count
        self.single = max(len(rewards) for rewards in samples.values()) == 1
        self.tables = defaultdict(lambda: defaultdict(dict))
        for (side, run, task), rewards in samples.items():
            if task in scored and (value := per_task(rewards, metric)) is not None:
                self.tables[side][run][task] = value

    def pair(self, arm, baseline):
        """Scores of both sides on the tasks that both have, and the unit of each task."""
        both = [{t for run in self.tables[side].values() for t in run} for side in (arm, baseline)]
        tasks = sorted(both[0] & both[1])
        matrices = [
            np.array([[run.get(t, math.nan) for t in tasks] for run in self.tables[side].values()])
            for side in (arm, baseline)
        ]
        units = np.unique([self.units[t] for t in tasks], return_inverse=True)[1]
        return *matrices, units

    def value(self, side):
        """The score of a side: the mean over its runs of the mean over tasks."""
        return float(np.mean([np.mean([*run.values()]) for run in self.tables[side].values()]))


def honest(p, draws, tails=1.0):
    """Five standard deviations of the difference of two drawn p-values."""
    rare = max(p, 3.0 / draws)
    return 5 * math.sqrt(max(0.0, rare * (tails - rare)) * (1 / draws + 1 / DRAWS)) + tails / draws


class Binary:
    """One 0/1 outcome a task: McNemar's test, mid-p below 25 discordant pairs; Tango's score test of other differences."""

    def __init__(self, d):
        self.n, self.effect = len(d), float(d.mean())
        self.better, self.worse = int((d > 0).sum()), int((d < 0).sum())
        self.step = 1.0 / self.n

    def at_zero(self):
        b, c = self.better, self.worse
        if b + c == 0:
            return 1.0, 0.0
        p = float(mcnemar([[0, b], [c, self.n - b - c]], exact=True).pvalue)
        twice = float(stats.binomtest(b, b + c).pvalue)
        assert math.isclose(p, twice, rel_tol=1e-9)
        mid = float(stats.binom.pmf(min(b, c), b + c, 0.5)) if b + c < 25 else 0.0
        return 1.0 if b == c else p - mid, 0.0

    def elsewhere(self, mean):
        b, c, n = self.better, self.worse, self.n

        def slope(worse):  # of the log-likelihood
            cells = (b, worse + mean, 1.0), (c, worse, 1.0), (n - b - c, 1.0 - mean - 2.0 * worse, -2.0)
            return sum(count * rate / p for count, p, rate in cells if count)

        low, high = max(0.0, -mean) + 1e-15, (1.0 - mean) / 2.0 - 1e-15
        if high <= low:
            return 0.0, 0.0
        if slope(low) <= 0 or slope(high) >= 0:
            worse = low if slope(low) <= 0 else high
        else:
            worse = optimize.brentq(slope, low, high, xtol=1e-15, rtol=1e-14)
        variance = n * (2.0 * worse + mean * (1.0 - mean))
        return float(2.0 * stats.norm.sf(abs(b - c - n * mean) / math.sqrt(variance))), 0.0

    def p(self, mean):
        return monotone(self, mean)

    def end(self, direction, level, _):
        zero = self.at_zero()[0]
        beyond = direction * (1.0 - 1e-9)
        if (self.effect - beyond) * direction >= 0:
            root = beyond
        else:
            inside = self.effect + direction * 1e-9
            root = optimize.brentq(lambda m: self.elsewhere(m)[0] - level, inside, beyond, xtol=1e-10)
        if self.effect * direction > 0:
            return root
        inner = max if direction < 0 else min  # the side of 0, which McNemar's test decides
        outer = min if direction < 0 else max
        return inner(0.0, root) if zero <= level else outer(0.0, root)


class Flips:
    """Signs of tasks, or of clusters, flipped by `scipy.stats.permutation_test`; the statistic is the mean in its own clustered errors."""

    def __init__(self, d, units, largest, draws):
        self.sums, self.sizes = np.bincount(units, weights=d), np.bincount(units).astype(float)
        self.n, self.groups, self.effect = len(d), len(self.sums), float(d.mean())
        self.draws, self.largest = draws, largest
        self.scale = max(1.0, largest, float(np.abs(d).max()))
        self.step = self.error(self.sums, self.effect)

    def error(self, sums, mean):
        g = self.groups
        return (
            np.sqrt(g / (g - 1) * ((sums - np.multiply.outer(mean, self.sizes)) ** 2).sum(axis=-1)) / self.n
        )

    def statistic(self, residuals, axis=-1):
        centre = residuals.sum(axis=axis) / self.n
        error = self.error(residuals, centre)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.abs(centre) / error
        return np.where(error > 1e-12, np.round(t, 9), np.where(np.abs(centre) > 1e-12, np.inf, 0.0))

    @property
    def exact(self):
        return self.groups <= EXACT_UP_TO

    def at_zero(self):
        found = stats.permutation_test(
            (self.sums,),
            self.statistic,
            permutation_type="samples",
            vectorized=True,
            n_resamples=2**self.groups if self.exact else DRAWS,
            alternative="greater",
            rng=np.random.default_rng(7),
        )
        p = float(found.pvalue)
        return p, 0.0 if self.exact else honest(p, self.draws)

    @cached_property
    def signs(self):
        if self.exact:
            return 1.0 - 2.0 * np.indices((2,) * self.groups).reshape(self.groups, -1).T
        drawn = np.random.default_rng(6).choice([-1.0, 1.0], (DRAWS, self.groups))
        return np.concatenate([drawn, np.ones((1, self.groups))])

    def flipped(self, mean):
        t = self.statistic(self.signs * (self.sums - mean * self.sizes))
        p = float((t >= self.statistic(self.sums - mean * self.sizes)).mean())
        return p, 0.0 if self.exact else honest(p, self.draws)

    def by_weights(self, mean):
        """Weighted means with one more unit at the worst value that there can be (Rubin 1981; Gaffke 2005)."""
        rng = np.random.default_rng(8)
        weights = stats.expon.rvs(size=(DRAWS, self.groups), random_state=rng)
        unseen = stats.gamma.rvs(0.5, size=DRAWS, random_state=rng) * self.sizes.mean()
        side = -1.0 if mean < self.effect else 1.0
        means = (weights @ self.sums + side * unseen * self.scale) / (weights @ self.sizes + unseen)
        tail = float((means <= mean).mean() if side < 0 else (means >= mean).mean())
        p = min(1.0, 2.0 * tail)
        return p, honest(p, self.draws, tails=2.0)

    def elsewhere(self, mean):
        return most(self.flipped(mean), self.by_weights(mean))

    def p(self, mean):
        return monotone(self, mean)

    def end(self, direction, level, loose):
        """Where flipped signs reject at a level, loosened or tightened by the error of drawing."""

        def over(mean):
            p, error = self.flipped(mean)
            return p + loose * error - level

        far = self.effect + direction * 8 * self.step
        place = optimize.bisect(over, self.effect + direction * 1e-3 * self.step, far, xtol=1e-4 * self.step)
        bound = max(self.largest, abs(self.effect))
        return min(max(place, -bound), bound)


class Recipe:
    """Training runs as the unit: the least certain of the models' own test, a two-way t, and the permutation of runs."""

    def __init__(self, checkpoint, arm, base, units, trained, level, largest):
        self.checkpoint, self.effect, self.largest = checkpoint, checkpoint.effect, largest
        d = np.nanmean(arm, axis=0) - np.nanmean(base, axis=0)
        n, groups = len(d), int(units.max()) + 1
        by_task = groups / (groups - 1) * float((np.bincount(units, weights=d - d.mean()) ** 2).sum()) / n**2
        sides = [arm, base] if trained else [arm]
        parts, both = [(by_task, groups - 1)], 0.0
        for scores in sides:
            runs = len(scores)
            parts.append((float(stats.sem(scores.mean(axis=1))) ** 2, runs - 1))
            left = scores - scores.mean(axis=0)
            left = left - left.mean(axis=1, keepdims=True)
            sums = np.stack([np.bincount(units, weights=row, minlength=groups) for row in left])
            both += runs / (runs - 1) * groups / (groups - 1) * float((sums**2).sum()) / (runs * n) ** 2
        by_run = sum(part for part, _ in parts[1:])
        if trained:  # Welch's t test of the runs has this very error
            welch = stats.ttest_ind(arm.mean(axis=1), base.mean(axis=1), equal_var=False)
            assert math.isclose(by_run, (self.effect / welch.statistic) ** 2, rel_tol=1e-9)
        total = max(by_run, by_task, by_run + by_task - both)
        self.error, self.freedom = math.sqrt(total), total**2 / sum(p**2 / f for p, f in parts)
        self.step = max(self.error, checkpoint.step)
        self.runs = (arm.mean(axis=1), base.mean(axis=1))
        splits = math.comb(len(arm) + len(base), len(arm))
        self.permutes = trained and (2 if len(arm) == len(base) else 1) / splits <= level
        self.by_run = by_run

    def by_t(self, mean):
        return float(2 * stats.t.sf(abs(self.effect - mean) / self.error, self.freedom)), 0.0

    def permuted(self, mean):
        arm, base = self.runs
        found = stats.permutation_test(
            (arm - mean, base),
            lambda x, y, axis: np.round(np.abs(x.mean(axis=axis) - y.mean(axis=axis)), 12),
            vectorized=True,
            n_resamples=np.inf,
            alternative="greater",
        )
        return float(found.pvalue), 0.0

    def at_zero(self):
        return most(
            self.checkpoint.at_zero(), self.by_t(0.0), *([self.permuted(0.0)] if self.permutes else [])
        )

    def elsewhere(self, mean):
        more = [self.permuted(mean)] if self.permutes else []
        return most(self.checkpoint.p(mean), self.by_t(mean), *more)

    def p(self, mean):
        return monotone(self, mean)

    def end(self, direction, level, loose):
        pick = max if direction > 0 else min
        ends = [self.checkpoint.end(direction, level, loose)]
        ends.append(self.effect + direction * float(stats.t.isf(level / 2, self.freedom)) * self.error)
        if self.permutes and self.by_run > 0:
            inside, outside = self.effect, self.effect + direction * 20 * math.sqrt(self.by_run)
            for _ in range(60):
                middle = (inside + outside) / 2
                inside, outside = (inside, middle) if self.permuted(middle)[0] <= level else (middle, outside)
            ends.append(outside)
        bound = max(self.largest, abs(self.effect))
        return min(max(pick(ends), -bound), bound)


def most(*estimates):
    return max(p for p, _ in estimates), max(e for _, e in estimates)


def monotone(test, mean):
    """0 has a test of its own; p may not rise with the distance from the effect because of that."""
    if mean == 0:
        return test.at_zero()
    found, zero = test.elsewhere(mean), test.at_zero()
    if mean * test.effect < 0:
        return min(found[0], zero[0]), max(found[1], zero[1])
    return most(found, zero) if abs(mean) < abs(test.effect) else found


def claim_p(test, claim, margin):
    """The p-value of a claim: 1 where the effect isn't on its side."""
    effect = test.effect
    if claim == "equal":
        return (1.0, 0.0) if abs(effect) >= margin else most(test.p(margin), test.p(-margin))
    boundary = margin if claim == "better" else -margin
    holds = effect < boundary if claim == "worse" else effect > boundary
    return test.p(boundary) if holds else (1.0, 0.0)


def westfall_young(tests, p_values, draws):
    """The smallest p-value of all arms under shared flips; the error is that of the share and of each other arm's quantile."""
    exact, signs = tests[0].exact, tests[0].signs
    nulls = [stats.rankdata(-test.statistic(signs * test.sums), method="max") / len(signs) for test in tests]
    smallest, found = np.min(nulls, axis=0), []
    for p in p_values:
        made = min(1.0, len(tests) * p, max(float((smallest <= p * (1 + 1e-9)).mean()), p))
        rare, spread = max(p, 3 / draws), max(made, 3 / draws)
        error = math.sqrt(spread * max(0.0, 1 - spread)) + (len(tests) - 1) * math.sqrt(rare * (1 - rare))
        error = 0.0 if exact else 5 * error * math.sqrt(1 / draws + 1 / DRAWS) + len(tests) / draws
        found.append((made, error))
    return found


def interval_end(test, question, direction, least):
    """An end of an interval as a middle and an error: it holds the one of 95 %, and agrees with the tests of 0 and of the margin."""
    pick = max if direction > 0 else min
    narrow, wide = float(question["narrow"]), float(question["wide"])
    ends = [
        pick(test.end(direction, level, loose), test.end(direction, max(level, 0.05), loose))
        for level in (narrow, wide)
        for loose in (-1.0, 1.0)
    ]
    for effect in dict.fromkeys((-least, 0.0, least)) if question["agrees"] == "1" else ():
        p, error = test.p(effect)
        held = [pick(end, effect) for end in ends]
        before = direction * (effect - test.effect) > 0
        left_out = (
            [min(end, effect) if direction > 0 else max(end, effect) for end in ends] if before else ends
        )
        ends = held if p - error > narrow else left_out if p + error <= wide else [*held, *left_out]
    return (min(ends) + max(ends)) / 2, (max(ends) - min(ends)) / 2 + 2e-3 * test.step


def paired_test(question, fill=None):
    """The test of a question, its sides, and the test of the models alone."""
    arm, baseline = question["arm"], question["baseline"]
    sides = Sides(question["rewards"], question["metric"], fill)
    a, b, units = sides.pair(arm, baseline)
    d = np.nanmean(a, axis=0) - np.nanmean(b, axis=0)
    joined = len(set(units)) < len(units)
    binary = sides.single and len(a) == len(b) == 1 and not joined and set(np.unique([a, b])) <= {0.0, 1.0}
    largest = float(question["largest"])
    test = Binary(d) if binary else Flips(d, units, largest, int(question["draws"]))
    trained = question["trained"] == "1"
    if len(a) >= 4 and (not trained or len(b) >= 4):
        level = float(question["level"]) / int(question["family"])
        b = b if trained else np.nanmean(b, axis=0, keepdims=True)
        test = Recipe(test, a, b, units, trained, level, largest)
    return test, sides


def answer(question):
    """The numbers of a question: name, value, error."""
    test, sides = paired_test(question)
    arm, baseline = question["arm"], question["baseline"]
    yield "before", sides.value(baseline), 0.0
    yield "after", sides.value(arm), 0.0
    yield "effect", test.effect, 0.0
    claim, margin = question["claim"], float(question["margin"])
    least = margin if claim in ("better", "worse") else 0.0
    beyond = 1.0, 0.0
    if least == 0 or abs(test.effect) > least:
        beyond = test.p(math.copysign(least, test.effect) if least else 0.0)
    yield "p_value", *beyond
    yield "claim_p", *claim_p(test, claim, margin)
    for name, direction in (("low", -1.0), ("high", 1.0)):
        yield name, *interval_end(test, question, direction, least)
    if sides.missing[arm] or sides.missing[baseline]:
        for place, (of_arm, of_base) in enumerate(((0.0, 1.0), (1.0, 0.0))):
            yield (
                f"effect_bounds[{place}]",
                paired_test(question, {arm: of_arm, baseline: of_base})[0].effect,
                0.0,
            )
    yield "missing_samples", sides.missing[arm], 0.0
    yield "baseline_missing_samples", sides.missing[baseline], 0.0


def main(questions_path, numbers_path):
    with Path(questions_path).open(encoding="utf-8", newline="") as stream:
        questions = list(csv.DictReader(stream))
    rows, families = [], defaultdict(list)
    for question in questions:
        found = {name: (value, error) for name, value, error in answer(question)}
        rows += [(question["id"], name, repr(float(v)), repr(float(e))) for name, (v, e) in found.items()]
        families[question["of"]].append((question, found["p_value"]))
    for members in families.values():
        questions = [question for question, _ in members]
        p_values = [p for _, (p, _) in members]
        tests = [paired_test(question)[0] for question in questions]
        draws = int(questions[0]["draws"])
        if len(tests) > 1 and questions[0]["correction"] == "westfall-young":
            made = westfall_young(tests, p_values, draws)
        else:
            error = len(tests) * max(e for _, (_, e) in members)
            made = [(float(p), error) for p in multipletests(p_values, method="bonferroni")[1]]
        rows += [
            (question["id"], "p_corrected", repr(p), repr(e))
            for question, (p, e) in zip(questions, made, strict=True)
        ]
    with Path(numbers_path).open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("id", "name", "value", "error"), *rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
