"""What authors of commands get: one JSON document on standard output, whatever else is printed, and columns."""

import json
import sys

import click
import pytest

from evsys_runtime.commands import column_lines, json_option, json_text, print_json


@click.command()
@json_option
def command(*, as_json):
    sys.stdout.write("from a plugin\n")
    if as_json:
        print_json({"answer": "é"})


def called(capsys, *arguments):
    command.main(list(arguments), standalone_mode=False)
    return capsys.readouterr()


def test_the_document_is_alone_on_standard_output(capsys):
    captured = called(capsys, "--json")
    assert json.loads(captured.out) == {"format": 1, "answer": "é"}
    assert captured.err == "from a plugin\n"
    assert called(capsys).out == "from a plugin\n"
    print_json({})
    assert json.loads(capsys.readouterr().out) == {"format": 1}


def test_a_process_without_standard_output_prints_nothing(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    called(capsys, "--json")


@pytest.mark.parametrize(("encoding", "text"), [("utf-8", '"é"'), ("latin-1", '"\\u00e9"')])
def test_what_a_streams_encoding_may_lack_is_escaped(tmp_path, encoding, text):
    with (tmp_path / "out").open("w", encoding=encoding) as stream:
        assert text in json_text({"a": "é"}, stream)


def test_numbers_that_json_lacks_are_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"a": float("nan")}, sys.__stdout__)


def test_columns_are_as_wide_as_they_need_to_be_and_end_without_blanks():
    assert column_lines(("name", "size"), [("a", "12"), ("longer name", "")]) == [
        "NAME         SIZE",
        "a            12",
        "longer name",
    ]
    assert column_lines(("name",), []) == ["NAME"]
