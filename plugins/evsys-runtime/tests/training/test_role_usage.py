"""The account of a second model."""

import pytest

from evsys.errors import BudgetExceeded
from evsys.types import RunResult, Usage
from evsys_runtime.training.role_usage import RoleUsage


class Purse:
    def __init__(self, most=100):
        self.most, self.charged = most, []

    def charge(self, usage, *, steps=0):
        self.charged.append((usage.tokens, steps))
        if sum(tokens for tokens, _ in self.charged) > self.most:
            raise BudgetExceeded("nothing is left")


def test_what_it_takes_is_counted_and_charged_with_what_was_used_beside_it():
    purse = Purse()
    usage = RoleUsage(role="teacher", budget=purse)
    usage.add(Usage(prompt_tokens=10, cost_usd=0.5))
    usage.add(Usage(prompt_tokens=5, cost_usd=0.25), beside=Usage(completion_tokens=7, cost_usd=1.0))
    assert usage.used == Usage(prompt_tokens=15, cost_usd=0.75)
    assert purse.charged == [(10, 0), (12, 0)]


def test_what_exceeds_the_budget_is_counted_all_the_same():
    usage = RoleUsage(role="teacher", budget=Purse(most=9))
    with pytest.raises(BudgetExceeded):
        usage.add(Usage(prompt_tokens=10))
    assert usage.used.tokens == 10


def test_it_is_part_of_the_result_and_told_apart():
    usage = RoleUsage(role="reference", budget=None)
    usage.add(Usage(prompt_tokens=10, cost_usd=0.5))
    result = usage.counted_in(
        RunResult(status="completed", run_id="r", usage=Usage(trained_tokens=3, cost_usd=1.0))
    )
    assert result.usage == Usage(prompt_tokens=10, trained_tokens=3, cost_usd=1.5)
    assert result.roles == {"reference": Usage(prompt_tokens=10, cost_usd=0.5)}


def test_a_run_that_goes_on_goes_on_counting():
    usage, again = (RoleUsage(role="teacher", budget=None) for _ in range(2))
    usage.add(Usage(prompt_tokens=10, unpriced=1))
    again.load(usage.state())
    again.add(Usage(prompt_tokens=1, cost_usd=0.5))
    assert again.used == Usage(prompt_tokens=11, cost_usd=0.5, unpriced=1)
