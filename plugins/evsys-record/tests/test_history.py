"""Questions to history: each filter, the order, and what is listed of what was found."""

from datetime import UTC, datetime

import attrs
import pytest

from evsys.errors import ConfigError
from evsys_record.history import (
    OUTCOMES,
    SORTS,
    Question,
    ask,
    indexed_now,
    moment_of,
)
from evsys_record.index import Index

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)


@pytest.fixture
def index(past):
    """Four experiments and a dry run, a minute apart."""
    past.whole("alpha", arm="x", hypothesis="Shorter prompts help.", tags=["prompt", "small"], cost=3.0)
    past.whole(
        "beta",
        outcome="loss",
        effect=-0.05,
        verdict="REFUTED",
        tags=["prompt"],
        cost=1.0,
        algorithm="evsys-algo-sft/dpo",
    )
    past.whole(
        "gamma",
        outcome="tie",
        effect=0.0,
        verdict="REFUTED",
        model="org/big-7b",
        cost=2.0,
        parent_experiment_id="20260101-123456-alpha",
    )
    failed = past.begin("delta", arms=("a", "b"))
    past.train(failed, "a", status="failed", failure="CUDA out of memory (rank=3)", cost=None)
    past.end(failed, status="partial", verdict="INCONCLUSIVE", cost=None, settle="more seeds")
    past.end(past.begin("trial", dry=True))
    with Index(past.experiments) as made:
        made.refresh()
        yield made


def names(index, **question):
    return [each.name for each in ask(index, Question(**question)).experiments]


def test_all_are_listed_the_newest_first_and_dry_runs_are_not_part_of_it(index):
    found = ask(index, Question())
    assert [each.name for each in found.experiments] == ["delta", "gamma", "beta", "alpha"]
    assert (found.total, found.runs, found.index) == (4, (), str(index.path))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"statuses": ("partial",)}, ["delta"]),
        ({"statuses": ("partial", "completed")}, ["delta", "gamma", "beta", "alpha"]),
        ({"statuses": ("crashed",)}, []),
        ({"outcomes": ("refuted",)}, ["gamma", "beta"]),
        ({"outcomes": ("WIN", "loss")}, ["beta", "alpha"]),
        ({"tags": ("prompt",)}, ["beta", "alpha"]),
        ({"tags": ("prompt", "small")}, ["alpha"]),
        ({"tags": ("prompt%",)}, []),
        ({"algorithms": ("dpo",)}, ["beta"]),
        ({"algorithms": ("evsys-algo-sft/dpo",)}, ["beta"]),
        ({"algorithms": ("evsys-algo-sft/*",)}, ["delta", "gamma", "beta", "alpha"]),
        ({"algorithms": ("sf",)}, []),
        ({"models": ("big-7b",)}, ["gamma"]),
        ({"models": ("org/big-7b", "tiny")}, ["delta", "gamma", "beta", "alpha"]),
        ({"models": ("*7b",)}, ["gamma"]),
        ({"since": "2026-01-01T12:35:30"}, ["delta", "gamma", "beta"]),
        ({"parent": "20260101-123456-alpha"}, ["gamma"]),
        ({"words": "prompts"}, ["alpha"]),
        ({"words": "SHORT help"}, ["alpha"]),
        ({"words": "shorter longer"}, []),
        ({"words": "memory"}, ["delta"]),
        ({"words": "rank=3)"}, ["delta"]),
        ({"words": 'RuntimeError "backend'}, ["delta"]),
        ({"words": "runtimeerror"}, ["delta"]),
        ({"words": "seeds"}, ["delta"]),
        ({"words": "NEAR OR AND"}, []),
        ({"words": "7b org/big"}, ["gamma"]),
        ({"tags": ("prompt",), "outcomes": ("loss",), "algorithms": ("dpo",), "words": "beta"}, ["beta"]),
    ],
)
def test_a_filter_leaves_what_is_like_that(index, question, expected):
    assert names(index, **question) == expected


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("started", ["delta", "gamma", "beta", "alpha"]),
        ("name", ["alpha", "beta", "delta", "gamma"]),
        ("status", ["gamma", "beta", "alpha", "delta"]),
        ("effect", ["alpha", "gamma", "beta", "delta"]),
        ("score", ["alpha", "gamma", "beta", "delta"]),
        ("cost", ["alpha", "gamma", "beta", "delta"]),
    ],
)
def test_the_order_is_by_what_is_asked_for_and_what_is_unknown_comes_last(index, sort, expected):
    assert names(index, sort=sort) == expected
    known = [name for name in expected if not (name == "delta" and sort in {"effect", "score", "cost"})]
    around = names(index, sort=sort, reverse=True)
    if sort != "status":
        assert around == [*reversed(known), *(name for name in expected if name not in known)]
    else:
        assert around == ["delta", "gamma", "beta", "alpha"]


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("runs", [False, True])
def test_everything_can_be_sorted_by_everything(index, sort, runs):
    found = ask(index, Question(sort=sort, runs=runs))
    assert len(found.runs if runs else found.experiments) == found.total


def test_a_limit_lists_fewer_than_were_found(index):
    found = ask(index, Question(limit=3))
    assert (len(found.experiments), found.total) == (3, 4)
    assert ask(index, Question(limit=0)).total == 4


def test_an_experiment_is_told_with_its_numbers(index):
    alpha = ask(index, Question(words="alpha")).experiments[0]
    assert attrs.asdict(
        alpha, filter=lambda field, _: field.name in {"before", "after", "effect", "low", "high"}
    ) == {
        "before": 0.1,
        "after": 0.5,
        "effect": 0.4,
        "low": 0.0,
        "high": 0.9,
    }
    assert (alpha.verdict, alpha.best_arm, alpha.metric, alpha.status) == (
        "SUPPORTED",
        "x",
        "faq.pass@1",
        "completed",
    )
    assert (alpha.runs, alpha.runs_completed, alpha.tags, alpha.seconds) == (1, 1, ("prompt", "small"), 3.5)
    assert (alpha.hypothesis, alpha.usage.cost_usd, alpha.comparisons[0].outcome) == (
        "Shorter prompts help.",
        3.0,
        "win",
    )
    assert (alpha.algorithms, alpha.models) == (("evsys-algo-sft/sft",), ("evsys/tiny",))


def test_runs_are_told_with_their_scores_and_failures(index):
    found = ask(index, Question(runs=True))
    assert found.total == 5
    by_name = {f"{run.experiment_id[16:]}/{run.run_id}": run for run in found.runs}
    x = by_name["alpha/x-s0"]
    assert (x.score, x.low, x.high, x.status, x.steps) == (0.5, 0.4, 0.6, "completed", 9)
    assert (x.identity, x.data_hash, x.algorithm, x.attempts) == (
        "sha256:x",
        "sha256:d",
        "evsys-algo-sft/sft",
        1,
    )
    assert (x.usage.trained_tokens, x.seconds, x.arm, x.repeat, x.seed) == (100, 2.5, "x", 0, 7)
    failed = by_name["delta/a-s0"]
    assert (failed.status, failed.score, failed.failure) == ("failed", None, "CUDA out of memory (rank=3)")
    assert (by_name["delta/b-s0"].status, by_name["delta/b-s0"].folder) == ("skipped", None)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"statuses": ("failed", "skipped")}, ["a-s0", "b-s0"]),
        ({"models": ("big-7b",)}, ["a-s0"]),
        ({"models": ("org/*",)}, ["a-s0"]),
        ({"algorithms": ("dpo",)}, ["a-s0"]),
        ({"outcomes": ("win",)}, ["x-s0"]),
        ({"words": "alpha"}, ["x-s0"]),
    ],
)
def test_runs_are_found_by_what_they_are(index, question, expected):
    assert sorted(run.run_id for run in ask(index, Question(runs=True, **question)).runs) == expected


def test_a_score_of_an_entry_with_a_dot_in_its_name_is_found(past):
    record = past.begin(success_metric="faq.pass@1.x")
    past.train(record)
    with Index(past.experiments) as index:
        index.refresh()
        assert ask(index, Question(runs=True)).runs[0].score is None


def test_words_without_a_letter_are_refused(index):
    with pytest.raises(ConfigError, match=r"'\? \*' contains no word to search for"):
        ask(index, Question(words="? *"))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-20", "2026-11-20T00:00:00"),
        ("2026-11-20T10:30", "2026-11-20T10:30:00"),
        ("2026-11-20T10:30+02:00", "2026-11-20T08:30:00"),
        ("30m", "2026-11-28T11:30:00"),
        ("1.5h", "2026-11-28T10:30:00"),
        ("7d", "2026-11-21T12:00:00"),
        ("2w", "2026-11-14T12:00:00"),
    ],
)
def test_a_moment_is_a_date_or_some_time_ago(text, moment):
    assert moment_of(text, now=NOW) == moment


@pytest.mark.parametrize("text", ["yesterday", "7", "2026-13-01", "9999999999w"])
def test_what_is_no_moment_is_refused(text):
    with pytest.raises(ConfigError, match="is not a valid time; write 30m"):
        moment_of(text, now=NOW)


def test_outcomes_are_those_of_the_contract():
    assert set(OUTCOMES) == {
        *("supported", "candidate", "refuted", "inconclusive", "invalid"),
        *("win", "tie", "loss", "unscored"),
    }


def test_what_an_index_holds_is_counted(index, past):
    (past.experiments / "20260101-123456-alpha" / "runs" / "x-s0" / "run.json").write_text(
        "", encoding="utf-8"
    )
    index.refresh(anew=True)
    made = indexed_now(index, seconds=1.5)
    assert (made.experiments, made.runs, made.dry, made.seconds) == (4, 5, 1, 1.5)
    (bad,) = made.unreadable
    assert (bad.experiment_id, bad.run_id) == ("20260101-123456-alpha", "x-s0")
    assert "isn't JSON" in bad.problem
