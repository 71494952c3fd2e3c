"""Training that goes wrong: no trainable token, no finite loss, algorithms and backends that break their contract."""

from __future__ import annotations

import json

import pytest

SFT = "import asyncio\nimport numpy as np\nfrom evsys_sdk import SFT, register_algorithm\n\n@register_algorithm('odd')\nclass Odd(SFT):\n"
BACKEND = "import asyncio\nfrom evsys_sdk import register_backend\nfrom evsys_backend_mock import MockBackend\n\n@register_backend('odd')\nclass Odd(MockBackend):\n"
BATCH = "    async def build_batch(self, step_idx):\n        batch = await super().build_batch(step_idx)\n"


def failing(lab, code: str, *change: str) -> tuple[dict, dict]:
    """Run project code in place of what `change` names; the result and the failure of its only arm."""
    lab.code(code)
    lab.config(change)
    outcome = lab.run("--json")
    assert outcome.code == outcome.json["exit_code"] != 0
    assert outcome.json["status"] == "failed"
    (arm,) = outcome.json["arms"]
    assert lab.facts()["status"] == "failed"
    lab.nothing_is_half_written()
    return outcome.json, arm["failure"]


# --- batches and losses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (BATCH + "        for d in batch.data: d.loss_inputs['weights'][:] = 0\n        return batch\n", 1, "the batch of step 1 (rows 4, 7, 6, 5) has no trainable token: all"),
        (BATCH + "        for d in batch.data: d.loss_inputs['weights'][:] = np.nan\n        return batch\n", 1, "datum 0 of step 1 has weights that aren't finite"),
        (BATCH + "        batch.data = []\n        return batch\n", 1, "has no data"),
        (BATCH + "        batch.data[0].tokens[0] = 10**9\n        return batch\n", 1, "token 1000000000 is outside the vocabulary"),
        (BATCH + "        batch.loss_fn = 'cross_entrpy'\n        return batch\n", 3, "no loss is called 'cross_entrpy'"),
        (BATCH + "        batch.loss_fn = 5\n        return batch\n", 3, "the batch's loss_fn is a int; it must be the name of a loss or a callable"),
        (BATCH + "        batch.loss_fn = lambda data, logprobs: None\n        return batch\n", 1, "it returned NoneType, which has no gradient"),
        (BATCH + "        batch.loss_fn = lambda data, logprobs: float('nan')\n        return batch\n", 1, "it returned float, which has no gradient"),
        (BATCH + "        batch.loss_fn = lambda data, logprobs: sum(lp.sum() for lp in logprobs) * np.nan\n        return batch\n", 1, "the loss '<lambda>' is nan"),
        ("    async def build_batch(self, step_idx):\n        return None\n", 3, "build_batch returned NoneType, expected a TrainingBatch"),
        ("    def build_batch(self, step_idx):\n        return 5\n", 3, "build_batch isn't async"),
        ("    async def train(self, ctx):\n        return 'done'\n", 3, "algorithm 'odd': train returned str, not a RunResult"),
        ("    def train(self, ctx):\n        return 'done'\n", 3, "algorithm 'odd': train isn't async"),
        ("    shape = 'chatt'\n", 3, "no shape of rows is called 'chatt'"),
    ],
)  # fmt: skip
def test_a_batch_that_can_not_be_trained_on_ends_the_arm_with_the_reason(lab, body, code, said):
    result, failure = failing(lab, SFT + body, "kind: sft", "kind: odd")
    assert said in failure["message"]
    assert result["exit_code"] == code
    assert not list(lab.record().glob("runs/*/checkpoints/*/manifest.json"))


def test_a_loss_that_stops_being_finite_keeps_what_was_saved_before(lab):
    body = BATCH + (
        "        if step_idx == 2:\n"
        "            batch.loss_fn = lambda data, logprobs: sum(lp.sum() for lp in logprobs) * np.inf\n        return batch\n"
    )
    lab.code(SFT + body)
    lab.config(("kind: sft", "kind: odd"), ("steps: 4", "steps: 4, save_every: 1"))
    lab.run().refused(1, r"the loss '<lambda>' is -inf", r"look for log\(0\)")
    assert sorted(path.name for path in lab.record().glob("runs/*/checkpoints/*")) == ["1", "2"]


def test_a_backend_whose_loss_is_no_number_ends_the_arm(lab):
    body = (
        "    async def prepare(self, *args, **kw):\n        import attrs\n        client = await super().prepare(*args, **kw)\n"
        "        forward = client.forward_backward\n        def spoilt(*args, **kw):\n            waiting = forward(*args, **kw)\n"
        "            async def result():\n                return attrs.evolve(await waiting, loss=float('nan'))\n"
        "            return result()\n        client.forward_backward = spoilt\n        return client\n"
    )
    result, failure = failing(lab, BACKEND + body, "kind: mock", "kind: odd")
    assert "the loss of step 1 is nan" in failure["message"]
    assert "lower the learning rate" in failure["hint"]
    assert result["exit_code"] == 1


# --- backends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("    async def prepare(self, *a, **k): raise RuntimeError('no card')\n", 1, "backend 'odd' failed: RuntimeError: no card"),
        ("    async def prepare(self, *a, **k): return None\n", 3, "backend 'odd': prepare returned NoneType, which has no forward_backward"),
        ("    def prepare(self, *a, **k): return None\n", 3, "backend 'odd': prepare isn't async"),
        ("    async def prepare(self, *a, **k): raise SystemExit(0)\n", 1, "backend 'odd' failed: SystemExit: 0"),
        ("    async def prepare(self, *a, **k): raise asyncio.CancelledError\n", 1, "a plugin cancelled its own task"),
        ("    async def prepare(self, *a, **k): raise MemoryError\n", 1, "backend 'odd' failed: MemoryError"),
        ("    async def prepare(self, *a, **k): raise ExceptionGroup('several', [ValueError('one'), OSError('two')])\n", 1, "several (2 sub-exceptions)"),
    ],
)  # fmt: skip
def test_a_backend_that_can_not_be_prepared_is_named_with_its_line(lab, body, code, said):
    result, failure = failing(lab, BACKEND + body, "kind: mock", "kind: odd")
    assert said in failure["message"]
    assert result["exit_code"] == code
    if code == 1:
        assert failure["place"].endswith("src/plugins.py:7")
    assert not list(lab.record().glob("runs/*/training/metrics.jsonl"))


def test_a_backend_that_can_not_be_torn_down_does_not_hide_why_it_failed(lab):
    body = (
        "    async def prepare(self, *a, **k): raise RuntimeError('no card')\n"
        "    async def teardown(self, client): raise RuntimeError('nothing to free')\n"
    )
    _, failure = failing(lab, BACKEND + body, "kind: mock", "kind: odd")
    assert "no card" in failure["message"]


def test_an_interrupt_inside_a_plugin_is_an_interrupt_and_the_record_says_so(lab):
    lab.code(BACKEND + "    async def prepare(self, *a, **k): raise KeyboardInterrupt\n")
    lab.config(("kind: mock", "kind: odd"))
    outcome = lab.run("--json")
    assert outcome.code == outcome.json["exit_code"] == 130
    record = lab.record().relative_to(lab.root)
    assert outcome.err == (f"Interrupted; cancelled, record: {record}\nTo resume: evsys resume {record}\n")
    assert lab.facts()["status"] == outcome.json["status"] == "cancelled"
    (run,) = lab.record().glob("runs/*/run_result.json")
    assert json.loads(run.read_text(encoding="utf-8"))["status"] == "cancelled"
    lab.nothing_is_half_written()
