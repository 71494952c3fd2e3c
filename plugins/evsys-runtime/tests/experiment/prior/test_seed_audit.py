"""Repeats that trained on the same rows in the same order are found out, and their experiment says nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evsys.types import ArmResult, RunResult
from evsys_runtime.experiment.prior.seed_audit import same_orders

SAME_ORDER = """
from evsys_runtime.training.order import DataOrder
from evsys_sdk import SFT, register_algorithm

@register_algorithm("no_seed")
class NoSeed(SFT):
    async def setup(self, ctx):
        await super().setup(ctx)
        self.order = DataOrder(self.rows, lambda epoch: epoch)
"""


@pytest.fixture
def rows(project):
    project.write("train.jsonl", [{"prompt": f"say {n}", "completion": str(n)} for n in range(24)])


@pytest.mark.usefixtures("rows")
def test_repeats_in_the_same_order_make_the_experiment_invalid(project, run_text):
    project.code("algorithms", SAME_ORDER)
    text = "run:" + run_text(("kind: sft", "kind: no_seed"))
    result = project.experiment(text, extra="n_repeats: 3\n").run()
    assert (result.status, result.exit_code, result.conclusion.verdict) == ("invalid", 1, "INVALID")
    assert result.conclusion.reason.startswith(
        "repeats 0, 1 and 2 of 'run' took the same rows in the same order"
    )
    assert result.conclusion.reason in result.warnings
    assert [arm.status for arm in result.arms] == ["completed"] * 3


@pytest.mark.usefixtures("rows")
def test_repeats_in_orders_of_their_own_are_fine(project):
    result = project.experiment(extra="n_repeats: 3\n").run()
    assert result.status == "completed"
    orders = [json.loads(Path(arm.run_dir, "run.json").read_text())["order"] for arm in result.arms]
    assert len({order["digest"] for order in orders}) == 3
    assert {(order["rows"], order["of"]) for order in orders} == {(24, 24)}


def ended(directory, repeat, order, arm="a"):
    folder = directory / f"{arm}-{repeat}"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"format": 1, "order": order}), encoding="utf-8")
    run = RunResult(status="completed", steps=1)
    return ArmResult(
        run_id=f"{arm}-s{repeat}",
        arm=arm,
        repeat=repeat,
        seed=0,
        status="completed",
        identity="x",
        run=run,
        run_dir=str(folder),
    )


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ({"rows": 4, "of": 8, "digest": "d"}, False),
        ({"rows": 24, "of": 9, "digest": "d"}, False),
        ({"rows": 24, "of": 10, "digest": "d"}, True),
        ({"rows": 2, "of": 2000, "digest": "d"}, True),
        (None, False),
    ],
)
def test_few_rows_may_come_in_one_order_by_chance(tmp_path, order, found):
    assert bool(same_orders([ended(tmp_path, repeat, order) for repeat in range(2)])) is found


def test_arms_may_share_their_order(tmp_path):
    order = {"rows": 24, "of": 24, "digest": "d"}
    assert same_orders([ended(tmp_path, 0, order, arm) for arm in "ab"]) == []
