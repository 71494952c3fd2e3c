"""Rows to train on: what an author may hand over, and what is said of the rest."""

import pytest

from evsys_conformance import toy


def test_a_list_of_typed_rows_becomes_a_dataset():
    found = toy.as_dataset(list(toy.rows("chat")), "chat")
    assert list(found) == list(toy.rows("chat"))
    assert found.fingerprint == toy.rows("chat").fingerprint


def test_a_dataset_stays_as_it_is():
    rows = toy.rows("task")
    assert toy.as_dataset(rows, "task") is rows


def test_columns_of_its_own_are_in_the_metadata_of_rows():
    (row,) = toy.as_dataset([{"prompt": "a", "completion": "b", "desirable": True}], "chat")
    assert [message.content for message in row.messages] == ["a", "b"]
    assert row.metadata["desirable"] is True


def test_a_row_without_what_the_shape_needs_is_reported():
    with pytest.raises(pytest.fail.Exception, match="row 0 can't be used as 'chat': .*text"):
        toy.as_dataset([{"text": "a"}], "chat")


def test_what_is_no_list_is_reported():
    with pytest.raises(pytest.fail.Exception, match="neither a list of rows nor a dataset"):
        toy.as_dataset(iter([]), "chat")
