"""What a preview says of rows: those it shows, those that would be left out and why, those that nobody read."""

from __future__ import annotations

from typing import Any

import pytest

from evsys.errors import ConfigError
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.preflight.preview import preview_rows

TERSE = """\
from evsys_sdk import SFT, register_algorithm

@register_algorithm("terse")
class Terse(SFT):
    def preview(self, rows, renderer, dropped):
        shown = super().preview(rows, renderer, {})
        return (row for row in shown if row.row_id != "1")

@register_algorithm("blind")
class Blind:
    def __init__(self, **kw):
        pass
    def train(self, ctx):
        pass
"""


@pytest.fixture
def preview(project, run_text):
    def of(*changes: tuple[str, str], limit: int = 3) -> Any:
        return preview_rows(load_experiment(project.config("run:" + run_text(*changes))), limit=limit)

    return of


def test_rows_that_a_shuffle_has_ready_are_not_read_rather_than_left_out(preview):
    found = preview(("[{kind: jsonl_to_chat}]", "[{kind: shuffle}, {kind: jsonl_to_chat}]"), limit=1)
    assert (len(found.rows), found.dropped, found.not_read) == (1, {}, 7)


def test_a_row_that_the_algorithm_leaves_out_has_its_reason(preview):
    found = preview(("lora_rank: 4", "lora_rank: 4, max_length: 5"), limit=2)
    assert found.dropped == {"sft: longer than max_length (5 tokens)": 2}
    assert (found.rows, found.not_read) == ((), None)


def test_an_algorithm_that_gives_no_reason_is_named(project, preview):
    project.code("plugins", TERSE)
    found = preview(("kind: sft", "kind: terse"), limit=8)
    assert found.dropped == {"terse: no reason given": 1}
    assert (len(found.rows), found.not_read) == (7, 0)


def test_an_algorithm_that_shows_no_rows_says_what_it_lacks(project, preview):
    project.code("plugins", TERSE)
    with pytest.raises(
        ConfigError, match=r"'blind' doesn't show its rows: .*`preview\(rows, renderer, dropped\)`"
    ):
        preview(("kind: sft", "kind: blind"), ("params: {learning_rate: 0.05, steps: 6, batch_size: 4, lora_rank: 4}", "params: {}"))  # fmt: skip
