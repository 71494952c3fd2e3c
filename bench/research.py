"""How fast researchers find a better recipe in simulated worlds, next to random search; prints one JSON document.

A world has a learning rate, a rank and a warm-up as levers, a start at a true score of 0.4, and an optimum drawn by its seed. A score is
the true score and normal noise with a standard deviation of 0.015, as 1,000 tasks have it. In a planted world the optimum is at 0.6; a
null world is flat. Researchers only see scores. The gain is the true one of the arm with the best score: 0 is the start, 1 the optimum.
"""

import argparse
import asyncio
import copy
import json
import math
import random
import sys
from statistics import fmean, median, stdev

from evsys import Registry, use_registry
from evsys.types import Proposal, ResearchState, Round, SearchAxis
from evsys_autoresearch.levers import changes_of

RESEARCHERS = ("random", "greedy", "bayesian", "next")
START, GAIN, NOISE = 0.4, 0.2, 0.015
PARAMS = "run.algorithm.params"
FILE = {"run": {"algorithm": {"kind": "sft", "params": {"learning_rate": 3e-4, "rank": 8, "warmup": 0.01}}}}
SPACE = (
    SearchAxis(path=f"{PARAMS}.learning_rate", low=1e-5, high=1e-1, log=True),
    SearchAxis(path=f"{PARAMS}.rank", choices=(4, 8, 16, 32)),
    SearchAxis(path=f"{PARAMS}.warmup", low=0.0, high=0.5),
)


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--worlds", type=int, default=40, help="planted worlds, and as many null worlds")
    parser.add_argument("--experiments", type=int, default=30, help="budget of a researcher in a world")
    parser.add_argument("--no-peers", action="store_true", help="accepted for all scripts; there is no peer")
    parser.add_argument("--check", action="store_true", help="end with 1 if bayesian gains less than random")
    arguments = parser.parse_args()
    found = {"worlds": arguments.worlds, "experiments": arguments.experiments}
    with use_registry(Registry()) as registry:
        for name in RESEARCHERS:
            found[name] = measure(registry, name, arguments.worlds, arguments.experiments)
    print(json.dumps(found, indent=2))
    sys.exit(arguments.check and found["bayesian"]["gain"] < found["random"]["gain"])


def measure(registry, name: str, worlds: int, experiments: int) -> dict[str, object]:
    """The figures of a researcher over all worlds; intervals are two standard errors."""
    curves = [search(registry, name, seed, experiments, GAIN) for seed in range(worlds)]
    ends = [curve[-1] for curve in curves]
    areas = [fmean(curve) for curve in curves]
    needed = [
        next((n + 1 for n, gain in enumerate(curve) if gain >= 0.9), experiments + 1) for curve in curves
    ]
    leads = [search(registry, name, seed, experiments, 0.0, lead=True)[-1] for seed in range(worlds)]
    return {
        "gain": round(fmean(ends), 3),
        "gain_error": round(2 * stdev(ends) / math.sqrt(worlds), 3),
        "mean_gain_on_the_way": round(fmean(areas), 3),
        "experiments_to_90_percent": median(needed) if median(needed) <= experiments else None,
        "worlds_at_90_percent": sum(n <= experiments for n in needed),
        "lead_in_null_worlds": round(fmean(leads), 3),
    }


def search(
    registry, name: str, seed: int, experiments: int, gain: float, *, lead: bool = False
) -> list[float]:
    """After each experiment, the true gain of the best arm so far; with `lead` its score less the start's."""
    world, noise = draw_optimum(seed), random.Random(f"noise/{seed}/{name}")
    start = START + noise.gauss(0, NOISE)
    researcher = registry.build("researcher", name)
    rounds, curve, best = [], [], (start, 0.0)
    floor = height(FILE, world)
    while len(rounds) < experiments:
        state = ResearchState(
            goal="the optimum",
            metric="val.mean_reward",
            start=copy.deepcopy(FILE),
            start_score=start,
            levers=tuple(axis.path for axis in SPACE),
            space=SPACE,
            rounds=tuple(rounds),
            seed=seed,
        )
        proposal = asyncio.run(researcher.propose(state))
        if not isinstance(proposal, Proposal):
            break
        share = (height(proposal.config, world) - floor) / (1 - floor)
        score = START + gain * share + noise.gauss(0, NOISE)
        best = max(best, (score, share))
        curve.append(best[0] - start if lead else best[1])
        changes = changes_of(FILE, proposal.config)
        number = len(rounds) + 1
        rounds.append(
            Round(
                number=number,
                status="scored",
                changes=changes,
                score=score,
                low=score - 0.03,
                high=score + 0.03,
            )
        )
    return curve + curve[-1:] * (experiments - len(curve))


def draw_optimum(seed: int) -> dict[str, float]:
    """Where a world is best."""
    rng = random.Random(f"world/{seed}")
    return {
        "rate": rng.uniform(-4.5, -1.5),
        "rank": rng.choice((4, 8, 16, 32)),
        "warmup": rng.uniform(0, 0.5),
    }


def height(config, world) -> float:
    """The true score of an arm between 0 and 1, the optimum's."""
    params = config["run"]["algorithm"]["params"]
    rate = math.exp(-(((math.log10(params["learning_rate"]) - world["rate"]) / 0.8) ** 2))
    rank = 1 - 0.1 * abs(math.log2(params["rank"] / world["rank"]))
    warmup = 1 - 0.4 * abs(params["warmup"] - world["warmup"])
    return rate * rank * warmup


if __name__ == "__main__":
    main()
