"""Conclusions and audits of twelve kinds of experiment beside scipy, statsmodels and R: `nox -s statistics` installs the first two and runs this.

The peers get nothing but rewards by task and sample, as `evsys show --json` prints them, and what is asked. They run in processes of their own,
whose interpreters are named by `EVSYS_STATISTICS_PEER` and found as `Rscript`.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from pathlib import Path

import attrs
import pytest

pytestmark = [pytest.mark.statistics, pytest.mark.timeout(600)]

KINDS = (
    "binary",
    "partial credit",
    "recipe",
    "clusters",
    "few different tasks",
    "missing samples",
    "no_worse",
    "equal",
    "sweep",
    "search",
    "pass at k",
    "continual",
)
BASE_MODEL = "base_model"
HERE = Path(__file__).parent
COMPARISON = (
    *("before", "after", "effect", "p_value", "p_corrected", "low", "high", "missing_samples"),
    *("baseline_missing_samples", "effect_bounds[0]", "effect_bounds[1]"),
)


@attrs.frozen(kw_only=True)
class Asked:
    """A question to the peers, and the numbers on record by the names that the peers give them."""

    line: dict[str, object]
    recorded: dict[str, float]
    recomputed: dict[str, float]


def final(result, benchmark="val"):
    """The scoring of the weights that a run ended with."""
    found = [s for s in result["evaluations"] if s["benchmark"] == benchmark and s["step"] > 0]
    return max(found, key=lambda scoring: scoring["step"])


def untrained(result, benchmark="val"):
    """The scoring of the weights that it began with."""
    return next(s for s in result["evaluations"] if s["benchmark"] == benchmark and s["step"] == 0)


def scorings(made, purpose, arm, baseline):
    """The scorings of an arm and of its baseline by side and run; the same untrained weights count once."""
    results = [run for run in made.runs if run["purpose"] == purpose]
    chains = {}
    for result in results:
        chains.setdefault((result["arm"], result["repeat"]), []).append(result)
    sides = {
        arm: {f"s{repeat}": final(runs[-1]) for (name, repeat), runs in chains.items() if name == arm},
        baseline: {
            f"s{repeat}": final(runs[-1]) for (name, repeat), runs in chains.items() if name == baseline
        },
    }
    if baseline == BASE_MODEL:
        every = {f"s{repeat}": untrained(runs[0]) for (name, repeat), runs in chains.items() if name == arm}
        alike = all(
            s["task_rewards"] == every["s0" if "s0" in every else min(every)]["task_rewards"]
            for s in every.values()
        )
        sides[baseline] = dict([*every.items()][:1]) if alike else every
    return sides


def questions(made, folder):
    """What is asked of an experiment: of its comparisons, of a confirmation, and of what was forgotten."""
    conclusion = made.conclusion
    level = conclusion["procedure"]["level"]
    confirmed = conclusion["confirmed"]
    groups = [("candidate", "comparisons", conclusion["comparisons"], conclusion["claims"], level)]
    if confirmed is not None:
        groups.append(("confirm", "confirmed", [confirmed["comparison"]], [], conclusion["looks"]["level"]))
    for purpose, about, comparisons, claims, level in groups:
        for comparison in comparisons:
            if comparison["effect"] is None:
                continue
            arm = comparison["arm"]
            path = folder / f"{purpose}-{arm}.csv"
            made.write(path, scorings(made, purpose, arm, conclusion["baseline"]))
            recorded = {name: comparison.get(name) for name in COMPARISON[:9]}
            if comparison["effect_bounds"] is not None:
                bounds = comparison["effect_bounds"]
                recorded |= {f"effect_bounds[{place}]": bound for place, bound in enumerate(bounds)}
            made_of = (c for c in claims if c["arm"] == arm and c["subject"] == comparison["claim"])
            if (claim := next(made_of, None)) is not None:
                recorded["claim_p"] = claim["p_value"]
            yield Asked(
                line={
                    "id": f"{about}: {arm}",
                    "of": about,
                    "arm": arm,
                    "baseline": conclusion["baseline"],
                    "trained": int(conclusion["baseline"] != BASE_MODEL),
                    "rewards": path,
                    "metric": made.kind.metric,
                    "claim": conclusion["claim"],
                    "margin": conclusion["margin"],
                    "level": level,
                    "family": len(comparisons),
                    "correction": comparison["correction"] or "",
                    # The level of a single interval follows from shared flips if there are some, and lies between these.
                    "narrow": level
                    if comparison["correction"] == "westfall-young"
                    else level / len(comparisons),
                    "wide": level / len(comparisons),
                    "agrees": 1,
                    "draws": conclusion["procedure"]["draws"],
                    "largest": 1.0,
                },
                recorded=recorded,
                recomputed=recomputed(made, f"{about}: {arm}"),
            )
    for matrix in conclusion["forgetting"]:
        yield from losses(made, matrix, folder, conclusion["procedure"]["draws"])


def losses(made, matrix, folder, draws):
    """What a chain lost after each later stage: a comparison of two stages of one arm."""
    chain = [run for run in made.runs if run["arm"] == matrix["arm"]]
    tests = {test["stage"]: test for test in matrix["tests"]}
    own = matrix["own"][0]
    for column in range(own + 1, len(matrix["stages"])):
        stage = matrix["stages"][column]
        path = folder / f"{matrix['arm']}-{column}.csv"
        made.write(path, {"now": {"s0": final(chain[column - 1])}, "then": {"s0": final(chain[own - 1])}})
        recorded = {
            "effect": matrix["changes"][0][column],
            "low": matrix["change_low"][0][column],
            "high": matrix["change_high"][0][column],
            "before": matrix["values"][0][own],
            "after": matrix["values"][0][column],
        }
        if stage in tests:
            recorded["claim_p"] = tests[stage]["p_value"]
        about = f"forgetting: {matrix['arm']}: {matrix['benchmarks'][0]} after {stage}"
        yield Asked(
            line={
                "id": about,
                "of": about,
                "arm": "now",
                "baseline": "then",
                "trained": 1,
                "rewards": path,
                "metric": made.kind.metric,
                "claim": "worse",
                "margin": matrix["maximum_loss"],
                "level": matrix["level"],
                "family": 1,
                "correction": "",
                "narrow": 0.05,
                "wide": 0.05,
                "agrees": 0,
                "draws": draws,
                "largest": 1.0,
            },
            recorded=recorded,
            recomputed=recomputed(made, about),
        )


def recomputed(made, about):
    """What the audit found for the comparison, by name."""
    checks = (c for c in made.audit["checks"] if c["part"] == "numbers" and c["about"] == about)
    return {check["name"]: check["recomputed"] for check in checks if check["recomputed"] is not None}


@pytest.fixture(scope="session")
def scipy_and_statsmodels():
    """The Python that has them."""
    python = os.environ.get("EVSYS_STATISTICS_PEER")
    assert python, "run `nox -s statistics`: it installs the libraries to compare with"
    return [python, str(HERE / "peer.py")]


@pytest.fixture(scope="session")
def base_r():
    """R without packages."""
    found = shutil.which("Rscript")
    if found is None:
        pytest.skip("there is no Rscript: install R, such as by `apt install r-base-core`")
    return [found, "--vanilla", str(HERE / "peer.R")]


@pytest.fixture(params=["scipy_and_statsmodels", "base_r"])
def peer(request):
    """The command of each peer."""
    return request.getfixturevalue(request.param)


def ask(peer, asked, folder):
    """The numbers of a peer: value and error by question and name."""
    paths = folder / "questions.csv", folder / "numbers.csv"
    with paths[0].open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, asked[0].line)
        writer.writeheader()
        writer.writerows(each.line for each in asked)
    done = subprocess.run([*peer, *map(str, paths)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    with paths[1].open(encoding="utf-8", newline="") as stream:
        return {(r["id"], r["name"]): (float(r["value"]), float(r["error"])) for r in csv.DictReader(stream)}


@pytest.mark.parametrize("kind", KINDS)
def test_an_audit_passes_with_the_verdict_that_the_kind_is_made_for(made, kind):
    found = made(kind)
    assert found.conclusion["verdict"] == found.kind.verdict
    assert [check for check in found.audit["checks"] if check["state"] == "differs"] == []
    assert found.audit["ok"] > 50


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "few different tasks"])
def test_numbers_agree(made, kind, peer, tmp_path):
    asked = [*questions(made(kind), tmp_path)]
    assert asked
    numbers = ask(peer, asked, tmp_path)
    compared = 0
    for each in asked:
        place = each.line["id"]
        assert {"effect", "low", "high"} <= each.recomputed.keys()
        for source, known in (("record", each.recorded), ("audit", each.recomputed)):
            for name, value in known.items():
                if (place, name) not in numbers:
                    continue
                expected, error = numbers[place, name]
                assert value == pytest.approx(expected, rel=1e-9, abs=error + 1e-9), (
                    f"{source}: {place}: {name}"
                )
                compared += 1
    assert compared >= 9 * len(asked)


def test_the_kinds_cover_every_verdict_subject_correction_and_claim(made):
    conclusions = [made(kind).conclusion for kind in KINDS]
    assert {c["verdict"] for c in conclusions} == {
        "SUPPORTED",
        "CANDIDATE",
        "REFUTED",
        "INCONCLUSIVE",
        "INVALID",
    }
    assert {c["subject"] for c in conclusions} == {"checkpoint", "recipe", None}
    assert {c["claim"] for c in conclusions} >= {"better", "no_worse", "equal"}
    comparisons = [each for c in conclusions for each in c["comparisons"]]
    assert {each["correction"] for each in comparisons} >= {"westfall-young", None}
    assert {each["outcome"] for each in comparisons} >= {"win", "tie", "inconclusive", "unscored"}
