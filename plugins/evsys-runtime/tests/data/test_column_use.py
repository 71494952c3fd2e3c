"""Columns whose words never reach the model are named with the number of rows that have them."""

import pytest

from evsys_runtime.data.column_use import ColumnUse, unused_in_tasks
from evsys_runtime.data.parse import parse_row


def use_of(*rows, shape="chat"):
    use = ColumnUse()
    for row in rows:
        use.add(parse_row(row, shape, 0))
    return use


SAID = {"prompt": "Answer: what is tea?\n\nTea is a drink.", "completion": "A drink."}


@pytest.mark.parametrize(
    "columns",
    [
        {"question": "what is tea?"},
        {"context": "TEA  is a\ndrink"},
        {"label": "drink", "id": "17", "score": 0.5, "kind": "short"},
        {"history": [["answer: what", "no such words here"]]},
    ],
)
def test_columns_whose_words_are_in_messages_and_columns_without_words_are_fine(columns):
    assert not use_of({**SAID, **columns}).unused


def test_columns_whose_words_are_nowhere_are_counted():
    rows = [{**SAID, "passages": [{"text": "Tea grows in Assam."}]}] * 3
    rows += [{**SAID, "system": "Be very brief.", "passages": []}]
    use = use_of(*rows)
    assert use.unused == {"passages": 3, "system": 1}
    (warning,) = use.warnings("train.jsonl", 4)
    assert warning == (
        "train.jsonl: columns that reach no message, so the model never sees them: "
        "'passages' (3 of 4 rows), 'system' (1 of 4 rows)"
    )


def test_after_many_rows_a_new_unused_column_is_still_found():
    rows = [{**SAID, "question": "what is tea?"}] * 1_500
    assert use_of(*rows, {**SAID, "notes": "Not for the model."}).unused == {"notes": 1}


def test_of_a_task_only_what_is_asked_or_trained_counts():
    task = {
        "task_id": "t",
        "instruction": "Sort them.",
        "verifier": {"name": "v"},
        "input": "pear fig apple",
        "rubric": "Be strict about it.",
        "passage": "Figs are sweet.",
    }
    tasks = [parse_row(task, "task", 0)]
    assert unused_in_tasks(tasks, frozenset()) == {"input": 1}
    assert unused_in_tasks(tasks, {"passage"}) == {"input": 1, "passage": 1}
