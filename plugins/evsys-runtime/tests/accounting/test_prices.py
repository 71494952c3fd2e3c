import datetime as dt
from pathlib import Path

import pytest

from evsys.errors import ConfigError
from evsys_runtime.accounting.prices import PACKAGED, STALE_DAYS, Price, PriceList, load_prices


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("EVSYS_CACHE", str(tmp_path / "cache"))


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_call_costs_its_prompt_its_cached_prompt_and_its_completion():
    price = Price(prompt=2.0, completion=8.0, cached=0.5)
    assert price.cost(1_000_000, 500_000, cached_tokens=400_000) == pytest.approx(
        0.6 * 2 + 0.4 * 0.5 + 0.5 * 8
    )


def test_cached_tokens_cost_like_others_where_no_price_of_theirs_is_known():
    assert Price(prompt=2.0, completion=8.0).cost(1000, 0, cached_tokens=900) == pytest.approx(0.002)


def test_a_model_without_a_price_costs_none_and_a_free_one_zero():
    prices = PriceList(models={"free": Price(prompt=0.0, completion=0.0)})
    assert prices.cost("unheard-of", 10, 10) is None
    assert prices.cost("free", 10, 10) == 0.0


def test_no_price_comes_with_evsys_that_was_not_looked_up():
    assert load_prices().models == {}
    assert "as_of = 2" in PACKAGED.read_text(encoding="utf-8")


def test_a_project_overrules_the_user_model_by_model(tmp_path: Path):
    users = written(
        tmp_path / "cache",
        "[models.theirs]\nprompt = 1\ncompletion = 2\n[models.own]\nprompt = 3\ncompletion = 4\n",
    )
    path = written(
        tmp_path / "project",
        "[models.own]\nprompt = 5\ncompletion = 6\nas_of = 2026-01-31\nsource = 'our contract'\n",
    )
    assert load_prices(tmp_path / "project").models == {
        "theirs": Price(prompt=1, completion=2, file=str(users)),
        "own": Price(
            prompt=5, completion=6, as_of=dt.date(2026, 1, 31), source="our contract", file=str(path)
        ),
    }


def test_a_file_may_be_dated_as_a_whole(tmp_path: Path):
    written(
        tmp_path,
        "as_of = 2026-01-31\n[models.a]\nprompt = 1\ncompletion = 1\n"
        "[models.b]\nprompt = 1\ncompletion = 1\nas_of = 2026-02-01\n",
    )
    prices = load_prices(tmp_path).models
    assert (prices["a"].as_of, prices["b"].as_of) == (dt.date(2026, 1, 31), dt.date(2026, 2, 1))


def test_a_price_that_is_old_is_told_of_with_its_day():
    price = Price(prompt=1, completion=1, as_of=dt.date(2026, 1, 31), source="a page", file="prices.toml")
    prices = PriceList(models={"m": price})
    assert prices.doubts("m", today=dt.date(2026, 1, 31) + dt.timedelta(STALE_DAYS)) == ()
    [said] = prices.doubts("m", today=dt.date(2026, 1, 31) + dt.timedelta(STALE_DAYS + 1))
    assert said.startswith("the price of 'm' in prices.toml is of 2026-01-31, 181 days ago")


def test_a_price_without_a_day_or_a_source_is_called_unverified():
    today = dt.date(2026, 2, 1)
    prices = PriceList(
        models={
            "a": Price(prompt=1, completion=1, file="p"),
            "b": Price(prompt=1, completion=1, as_of=today, file="p"),
            "given by hand": Price(prompt=1, completion=1),
        }
    )
    assert prices.doubts("a", today=today) == (
        "the price of 'a' in p is unverified: it has no `as_of` and no `source`",
    )
    assert prices.doubts("b", today=today) == ("the price of 'b' in p is unverified: it has no `source`",)
    assert prices.doubts("given by hand", today=today) == prices.doubts("unknown", today=today) == ()


def test_everything_wrong_with_a_price_file_is_told_at_once(tmp_path: Path):
    path = written(
        tmp_path,
        'currency = "EUR"\n[models.a]\nprompt = -1\n[models.b]\nprompt = 1\ncompletion = inf\ncache = 2\n'
        '[models.c]\nprompt = 1\ncompletion = true\nas_of = "today"\n'
        '[models.d]\nprompt = 1\ncompletion = 1\nsource = " "\n',
    )
    with pytest.raises(ConfigError) as caught:
        load_prices(tmp_path)
    assert {problem.source for problem in caught.value.problems} == {str(path)}
    assert {problem.path for problem in caught.value.problems} == {
        "$.currency",
        "$.models['a'].prompt",
        "$.models['a'].completion",
        "$.models['b'].completion",
        "$.models['b'].cache",
        "$.models['c'].completion",
        "$.models['c'].as_of",
        "$.models['d'].source",
    }


@pytest.mark.parametrize("text", ["models = 3\n", "models = {a = 3}\n", "[models\n"])
def test_a_price_file_of_another_shape_is_refused_with_its_name(tmp_path: Path, text: str):
    written(tmp_path, text)
    with pytest.raises(ConfigError, match=r"prices\.toml"):
        load_prices(tmp_path)
