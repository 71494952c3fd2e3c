"""Experiment files as users write them, with transforms of their own beside ours."""

import json
from types import SimpleNamespace

import pytest

from evsys import Registry, use_registry
from evsys._plugins.decorators import register_transform
from evsys.errors import DataError
from evsys_runtime.data.load import load_dataset

ROWS = [
    {"question": "What is 2+2?", "answer": "4", "id": 1},
    {"question": "What is 2+2?", "answer": "four", "id": 2},
    {"question": "What is 3+3?", "answer": "6", "id": 3},
    {"question": "What is 4+4?", "answer": "8"},
]

pydantic = pytest.importorskip("pydantic")


class Dedupe:
    """A user's own transform, with a pydantic Config and nothing inherited from us."""

    name = "dedupe"

    class Config(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        column: str = "question"

    def __init__(self, **kw):
        self.column = self.Config(**kw).column

    def __call__(self, rows):
        seen = set()
        for row in rows:
            key = row.get(self.column)
            if key is None or key not in seen:
                seen.add(key)
                yield row


@pytest.fixture
def registry():
    return Registry()


@pytest.fixture
def file(tmp_path):
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    return tmp_path


def load(root, registry, *transforms, shape="chat"):
    config = SimpleNamespace(source_kind="jsonl", path="train.jsonl", transforms=transforms)
    return load_dataset(config, shape=shape, project_root=root, registry=registry)


def test_our_chat_then_a_users_dedupe_by_a_column(file, registry):
    with use_registry(registry):
        register_transform("dedupe")(Dedupe)
    data = load(
        file, registry, {"kind": "jsonl_to_chat"}, {"kind": "dedupe", "params": {"column": "question"}}
    )
    assert [row.metadata.get("id") for row in data] == [1, 3, None]
    assert [row.messages[1].content for row in data] == ["4", "6", "8"]
    assert data.dropped == {"dedupe: no reason given": 1}
    assert [entry["kind"] for entry in data.lineage[1:]] == ["jsonl_to_chat", "dedupe"]
    assert "hides" in registry.warnings[0]


def test_our_own_dedupe_does_the_same_by_the_same_words(file, registry):
    chain = ({"kind": "jsonl_to_chat"}, {"kind": "dedupe", "params": {"column": "question"}})
    data = load(file, registry, *chain)
    assert [row.messages[1].content for row in data] == ["4", "6", "8"]
    assert data.dropped == {"dedupe: same question as an earlier row": 1}


def test_columns_become_tasks(file, registry):
    data = load(file, registry, {"kind": "jsonl_to_tasks", "params": {"id_column": "question"}}, shape="task")
    assert data[0].task_id == "What is 2+2?"
    assert data[0].verifier.expected == "4"


def test_everything_filtered_out_names_the_filter_and_its_reasons(file, registry):
    chain = (
        {"kind": "jsonl_to_chat"},
        {"kind": "filter", "params": {"min_length": {"answer": 3}, "max_length": {"question": 3}}},
    )
    with pytest.raises(DataError) as caught:
        load(file, registry, *chain)
    message = str(caught.value)
    assert "transform 'filter' let none of 4 rows through" in message
    assert "not: answer min_length 3: 3; not: question max_length 3: 1" in message


def test_tool_schemas_come_through_transforms(tmp_path, registry):
    row = {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "search"}]}
    (tmp_path / "train.jsonl").write_text(json.dumps(row), encoding="utf-8")
    data = load(tmp_path, registry, {"kind": "jsonl_to_chat"}, {"kind": "map", "params": {"set": {"a": 1}}})
    assert data[0].tools == ({"name": "search"},)


def test_a_problem_after_our_transforms_still_has_its_line(tmp_path, registry):
    rows = [ROWS[0], {"messages": [{"role": "robot", "content": "x"}]}]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(DataError, match=r"row 1 \(train\.jsonl:2\): messages\[0\]\.role is 'robot'"):
        load(tmp_path, registry, {"kind": "jsonl_to_chat"}, {"kind": "dedupe"})
    with pytest.raises(DataError, match=r"row \d: messages\[0\]\.role is 'robot'"):
        load(tmp_path, registry, {"kind": "jsonl_to_chat"}, {"kind": "shuffle"})


def test_shuffled_arms_share_their_order_and_repeats_do_not(file, registry):
    def order(seed):
        config = {"path": "train.jsonl", "transforms": [{"kind": "jsonl_to_chat"}, {"kind": "shuffle"}]}
        data = load_dataset(config, shape="chat", project_root=file, registry=registry, seed=seed)
        return [row.messages[1].content for row in data]

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(8)}) > 1
