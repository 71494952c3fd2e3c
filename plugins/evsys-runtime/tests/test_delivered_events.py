"""What a listener hasn't heard of."""

from types import SimpleNamespace

import pytest

from evsys.types import EvaluationResult
from evsys_runtime.delivered_events import Heard


def scoring(step: int, model: str | None = None) -> EvaluationResult:
    return EvaluationResult(benchmark="val", step=step, model=model, split="val", status="completed", tasks=1)


@pytest.mark.parametrize(("attempt", "missed"), [(1, [0, 6]), (2, [])])
def test_what_another_run_had_scored_is_missed_by_a_first_attempt_alone(attempt, missed):
    heard = Heard()
    heard.hear(scoring(3))
    known = [scoring(0), scoring(3), scoring(6, "sage")]
    ctx = SimpleNamespace(attempt=attempt)
    assert [each.step for each in heard.missed(ctx, known)] == missed


def test_an_api_model_is_not_the_weights_of_its_step():
    heard = Heard()
    heard.hear(scoring(0, "sage"))
    assert [each.model for each in heard.missed(SimpleNamespace(attempt=1), [scoring(0)])] == [None]
