"""Rows through transforms: what goes on, what is counted, and who is named when it goes wrong."""

import pickle
from collections import Counter
from typing import ClassVar

import attrs
import pytest

from evsys import Registry
from evsys.errors import DataError, PluginContractError
from evsys_runtime.data import pipeline
from evsys_runtime.data.lineage import derive_seed
from evsys_runtime.data.parse import RowProblem
from evsys_runtime.data.readers import ReadReport, read_rows
from evsys_runtime.data.sources import source_hash

ROWS = [{"n": n, "text": "x" * n} for n in range(5)]


class Keep:
    """A user's own transform, as plain as it can be."""

    name = "keep"

    @attrs.frozen(kw_only=True)
    class Config:
        least: int = 0

    def __init__(self, **kw):
        self.least = kw["least"]

    def __call__(self, rows):
        for row in rows:
            if row.get("n", 0) >= self.least:
                yield row


class Explained(Keep):
    """Says why it leaves rows out, and that it looks at one row at a time."""

    name = "explained"
    streaming: ClassVar[bool] = True

    def __call__(self, rows):
        self.dropped = Counter()
        for row in rows:
            if row["n"] >= self.least:
                yield row
            else:
                self.dropped["too small"] += 1


class Seeded:
    @attrs.frozen(kw_only=True)
    class Config:
        seed: int | None = None

    def __init__(self, **kw):
        self.seed = kw["seed"]

    def __call__(self, rows):
        yield from rows


def double(rows):
    for row in rows:
        yield row
        yield {**row, "again": True}


def failing(rows):
    for row in rows:
        yield {**row, "inverse": 1 / (3 - row["n"])}


@pytest.fixture
def registry():
    found = Registry(entry_points=())
    for plugin in (Keep, Explained):
        found.register("transform", plugin.name, plugin)
    for name, plugin in {
        "seeded": Seeded,
        "double": double,
        "failing": failing,
        "none": lambda rows: None,
        "numbers": lambda rows: (1 for _ in rows),
        "deaf": lambda rows: [],
        "text": lambda rows: "rows",
        "refusing": refusing,
        "rejecting": rejecting,
        "spoiling": spoiling,
        "hoarding": hoarding,
    }.items():
        found.register("transform", name, plugin)
    return found


def refusing(rows):
    for row in rows:
        raise RowProblem("no column 'x'", f"no column 'x'; the row has {', '.join(row)}")
    yield {}


def rejecting(rows):
    for row in rows:
        if row["n"] == 2:
            raise DataError("n is even", hint="keep odd rows", column="n")
        yield row


def spoiling(rows):
    for row in rows:
        row["n"] = -1
        yield row


def hoarding(rows):
    kept = list(rows)
    kept[0]["text"] = "spoilt"
    yield from kept


def stages(registry, *specs, **options):
    entries = [
        {"kind": spec} if isinstance(spec, str) else {"kind": spec[0], "params": spec[1]} for spec in specs
    ]
    return pipeline.build_stages(entries, registry, **options)


def test_rows_go_through_lazily_and_are_counted(registry):
    found = stages(registry, ("keep", {"least": 2}), "double")
    seen = []

    def source():
        for row in ROWS:
            seen.append(row["n"])
            yield row

    stream = pipeline.apply(source(), found)
    assert next(stream) == {"n": 2, "text": "xx"}
    assert seen == [0, 1, 2]
    assert len(list(stream)) == 5
    assert [(stage.rows_in, stage.rows_out) for stage in found] == [(5, 3), (3, 6)]


def test_a_second_reading_counts_anew(registry):
    found = stages(registry, ("keep", {"least": 2}))
    for _ in range(2):
        assert len(list(pipeline.apply(ROWS, found))) == 3
        assert (found[0].rows_in, found[0].rows_out) == (5, 3)


def test_dropped_rows_are_told_by_transform_and_reason(registry):
    found = stages(registry, ("explained", {"least": 2}), ("keep", {"least": 4}), "double")
    assert len(list(pipeline.apply(ROWS, found))) == 2
    assert pipeline.drop_counts(found) == {"explained: too small": 2, "keep: no reason given": 2}


def test_without_transforms_rows_pass(registry):
    assert list(pipeline.apply(ROWS, [])) == ROWS


def test_a_failure_names_the_transform_the_row_and_the_line(registry, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 1}\n\n{"n": 2}\n{"n": 3}\n', encoding="utf-8")
    report = ReadReport()
    found = stages(registry, ("keep", {"least": 0}), "failing")
    with pytest.raises(DataError) as caught:
        list(pipeline.apply(read_rows(path, report=report), found, source=report))
    message = f"transform 'failing' failed after taking row 2 ({path}:4): ZeroDivisionError: division by zero"
    assert str(caught.value) == message
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == message


def test_a_failed_transform_leaves_no_file_open(registry):
    closed = []

    def source():
        try:
            yield from ROWS
        finally:
            closed.append(True)

    with pytest.raises(DataError) as failure:
        list(pipeline.apply(source(), stages(registry, "refusing")))
    assert closed == [True], failure  # whose traceback still holds the reader


def test_a_problem_with_a_row_is_told_without_its_class(registry):
    with pytest.raises(
        DataError, match=r"'refusing' failed after taking row 0: no column 'x'; the row has n, text$"
    ):
        list(pipeline.apply(ROWS, stages(registry, "refusing")))


def test_a_data_error_of_a_transform_keeps_the_row_and_the_line(registry, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 1}\n\n{"n": 2}\n', encoding="utf-8")
    report = ReadReport()
    found = stages(registry, ("keep", {"least": 0}), "rejecting", ("keep", {"least": 0}))
    with pytest.raises(DataError) as caught:
        list(pipeline.apply(read_rows(path, report=report), found, source=report))
    failed = f"transform 'rejecting' failed after taking row 1 ({path}:3)"
    assert str(caught.value) == f"{failed}: n is even; keep odd rows"
    assert caught.value.facts == {"column": "n", "plugin": "rejecting", "row": 1}


def test_a_data_error_of_a_source_is_not_blamed_on_a_transform(registry):
    def source():
        yield ROWS[0]
        raise DataError("the connection was closed")

    with pytest.raises(DataError, match=r"^the connection was closed$"):
        list(pipeline.apply(source(), stages(registry, ("keep", {"least": 0}), "double")))


def test_a_broken_file_is_not_blamed_on_a_transform(registry, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 1}\n{', encoding="utf-8")
    with pytest.raises(DataError, match=r"rows\.jsonl:2: not valid JSON"):
        list(pipeline.apply(read_rows(path), stages(registry, ("keep", {"least": 0}))))


def test_a_failing_source_is_not_blamed_on_a_transform(registry):
    def source():
        yield ROWS[0]
        raise ConnectionError("gone")

    report = ReadReport(source="hub")
    for found in ([], stages(registry, ("keep", {"least": 0}))):
        with pytest.raises(DataError, match=r"^hub: reading failed: ConnectionError: gone"):
            list(pipeline.apply(source(), found, source=report))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("none", "transform 'none' returned null, not rows"),
        ("text", "transform 'text' returned a string, not rows"),
        ("numbers", "transform 'numbers' gave a number as row 0, not a mapping"),
    ],
)
def test_what_is_no_row_is_refused(registry, kind, message):
    with pytest.raises(PluginContractError, match=message):
        list(pipeline.apply(ROWS, stages(registry, kind)))


def test_an_async_transform_is_told_to_be_a_plain_one(registry):
    class Late(Keep):
        async def __call__(self, rows):
            return rows

    registry.register("transform", "late", Late)
    with pytest.raises(
        PluginContractError, match="returned a coroutine, not rows; define it with a plain `def`"
    ):
        list(pipeline.apply(ROWS, stages(registry, "late")))


@pytest.mark.parametrize("when", ["called", "read"])
def test_a_transform_that_exits_has_failed(registry, when):
    class Exits(Keep):
        def __call__(self, rows):
            if when == "called":
                raise SystemExit(0)
            return (self.leave() for _ in rows)

        def leave(self):
            raise SystemExit(0)

    registry.register("transform", "exits", Exits)
    with pytest.raises(DataError, match="transform 'exits' failed .*: SystemExit: 0"):
        list(pipeline.apply(ROWS, stages(registry, "exits")))


def test_no_row_left_names_the_transform_and_its_reasons(registry):
    found = stages(registry, "double", ("explained", {"least": 9}), ("keep", {"least": 0}))
    with pytest.raises(DataError) as caught:
        list(pipeline.apply(ROWS, found))
    assert "transform 'explained' let none of 10 rows through (too small: 10)" in str(caught.value)
    assert caught.value.facts["reasons"] == {"too small": 10}


def test_a_transform_that_reads_nothing_is_named(registry):
    with pytest.raises(DataError, match="transform 'deaf' took no row and gave none"):
        list(pipeline.apply(ROWS, stages(registry, "deaf")))


@pytest.mark.parametrize(("kind", "column"), [("spoiling", "n"), ("hoarding", "text")])
def test_a_transform_that_changes_its_rows_is_found_when_asked_for(registry, kind, column):
    rows = [dict(row) for row in ROWS]
    with pytest.raises(PluginContractError, match=f"'{kind}' changed row 0 that it was given, in {column}"):
        list(pipeline.apply(rows, stages(registry, kind), check_mutation=True))
    clean = stages(registry, "double", ("keep", {"least": 0}))
    assert len(list(pipeline.apply(ROWS, clean, check_mutation=True))) == 10


def test_missing_seeds_come_from_the_run_and_stay_when_other_transforms_come(registry):
    alone = stages(registry, "seeded", "seeded", seed=5)
    beside = stages(registry, "double", "seeded", ("seeded", {"seed": 3}), "seeded", seed=5)
    other = stages(registry, "seeded", seed=6)
    assert alone[0].transform.seed == beside[1].transform.seed == alone[0].lineage.seed
    assert alone[0].transform.seed != alone[1].transform.seed
    assert other[0].transform.seed != alone[0].transform.seed
    assert beside[2].transform.seed == 3
    assert beside[2].lineage.seed is None


def test_position_is_kept_only_by_transforms_that_say_so(registry):
    assert pipeline.keeps_position([])
    assert pipeline.keeps_position(stages(registry, ("explained", {"least": 0})))
    assert not pipeline.keeps_position(stages(registry, ("explained", {"least": 0}), ("keep", {"least": 0})))


def test_lineage_has_kind_params_and_the_hash_of_the_code(registry):
    (stage,) = stages(registry, ("keep", {"least": 2}))
    tree = stage.lineage.as_dict()
    assert tree == {"kind": "keep", "params": {"least": 2}, "source_hash": source_hash(Keep)}
    assert tree["source_hash"].startswith("sha256:")
    assert source_hash(Keep(least=0)) == tree["source_hash"] != source_hash(double)


def test_derived_seeds_differ_by_seed_purpose_and_index():
    seeds = {
        derive_seed(seed, purpose, index) for seed in (0, 1) for purpose in ("a", "b") for index in (0, 1)
    }
    assert len(seeds) == 8
    assert all(0 <= seed < 2**63 for seed in seeds)


# --- a reader that stops before the end ----------------------------------------------------------------------------------


def cut(registry, *kinds, rows=ROWS, limit=1, **params):
    """Read `limit` rows, then account for the others."""
    built = pipeline.build_stages(
        [{"kind": kind, "params": params.get(kind, {})} for kind in kinds], registry
    )
    stream = pipeline.apply(rows, built)
    given = [row for _, row in zip(range(limit), stream, strict=False)]
    return given, pipeline.left_unread(built), dict(pipeline.drop_counts(built))


def reversed_rows(rows):
    yield from reversed(list(rows))


class Half:
    """Takes all rows, gives some of them, and says why not the others."""

    def __call__(self, rows):
        kept = list(rows)
        self.dropped = Counter({"too late": len(kept) // 2})
        return kept[: len(kept) - len(kept) // 2]


def in_pairs(rows):
    """Holds one row back until the next one came."""
    held = []
    for row in rows:
        held.append(row)
        if len(held) == 2:
            yield from held
            held.clear()
    yield from held


@pytest.fixture
def more(registry):
    for name, plugin in {"reversed": reversed_rows, "half": Half(), "in_pairs": in_pairs}.items():
        registry.register("transform", name, plugin)
    return registry


def test_rows_that_a_transform_has_ready_are_unread_and_not_left_out(more):
    assert cut(more, "reversed") == ([ROWS[4]], 4, {})
    assert cut(more, "reversed", limit=4)[1:] == (1, {})


def test_rows_left_out_behind_and_before_such_a_transform_keep_their_reasons(more):
    given, unread, dropped = cut(
        more, "explained", "reversed", "half", "explained", explained={"least": 1}, limit=1
    )
    assert given == [ROWS[4]]
    assert unread == 1
    assert dropped == {"explained: too small": 1, "half: too late": 2}


def test_a_transform_without_reasons_that_took_all_rows_is_told_apart_from_rows_it_has_ready(more):
    more.register("transform", "first_two", lambda rows: list(rows)[:2])
    assert cut(more, "first_two")[1:] == (1, {"first_two: no reason given": 3})


def test_where_the_source_goes_on_nobody_knows_how_many_rows_are_unread(more):
    assert cut(more, "explained", explained={"least": 3})[1:] == (None, {"explained: too small": 3})
    assert cut(more)[1:] == (None, {})


def test_rows_that_a_transform_took_and_gives_no_account_of_are_told_as_just_that(more):
    assert cut(more, "keep", keep={"least": 3})[1:] == (
        None,
        {"keep: held back, or left out without a reason": 3},
    )
    assert cut(more, "in_pairs")[1:] == (None, {"in_pairs: held back, or left out without a reason": 1})
