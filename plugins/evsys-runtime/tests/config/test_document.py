import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys.errors import ConfigError
from evsys_runtime.config import paths
from evsys_runtime.config.compose import MAX_ALIASED, MAX_DEPTH
from evsys_runtime.config.document import load, loads, parse, parse_value


def refused(text: str) -> list:
    with pytest.raises(ConfigError) as caught:
        loads(text, "exp.yaml")
    return list(caught.value.problems)


def only(text: str) -> str:
    (problem,) = refused(text)
    return str(problem)


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named_with_the_nearest_one(tmp_path: Path):
    (tmp_path / "config.yaml").write_text("a: 1", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"confg\.yaml: no such file; did you mean .*config\.yaml"):
        load(tmp_path / "confg.yaml")


def test_a_missing_folder_is_said(tmp_path: Path):
    with pytest.raises(ConfigError, match="the folder .*nowhere doesn't exist either"):
        load(tmp_path / "nowhere" / "config.yaml")


def test_a_folder_is_not_an_experiment_file(tmp_path: Path):
    with pytest.raises(ConfigError, match="this is a folder; name the experiment file in it"):
        load(tmp_path)


def test_a_file_that_may_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigError, match="can't be read: Permission denied; check its permissions"):
        load(tmp_path / "config.yaml")


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "--- \n...\n", "\ufeff", "~"])
def test_an_empty_file_is_refused(text: str):
    if text == "~":
        assert "expected a mapping of keys to values, got null" in only(text)
    else:
        assert "the file is empty" in only(text)


def test_a_byte_order_mark_is_ignored_and_moves_no_column(tmp_path: Path):
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\n")
    document = load(path)
    assert document.tree == {"name": "x"}
    assert document.keys["$.name"] == (1, 1)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_refused_with_what_to_do(tmp_path: Path, encoding: str):
    path = tmp_path / "config.yaml"
    path.write_bytes(
        "\ufeffname: x\n".encode("utf-16-be") if encoding == "utf-16-be" else "name: x\n".encode(encoding)
    )
    with pytest.raises(ConfigError, match="the file is UTF-16; save it as UTF-8"):
        load(path)


def test_bytes_that_are_not_utf_8_are_refused_with_their_line(tmp_path: Path):
    path = tmp_path / "config.yaml"
    path.write_bytes("name: x\ndescription: café\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"config\.yaml:2: byte 24 isn't UTF-8"):
        load(path)


def test_crlf_and_lone_cr_end_lines_and_reach_no_value(tmp_path: Path):
    path = tmp_path / "config.yaml"
    path.write_bytes(b"a: 1\r\ntext: |\r\n  x\r\n  y\r\nb: [1,\r\n  2]\r\nc: 3\rd: 4\r\n")
    document = load(path)
    assert document.tree == {"a": 1, "text": "x\ny\n", "b": [1, 2], "c": 3, "d": 4}
    assert [document.keys[f"$.{key}"][0] for key in "abcd"] == [1, 5, 7, 8]


def test_unicode_line_separators_are_no_line_breaks():
    document = loads('a: "x\u2028y\u0085z"\nb: 1\n')
    assert document.tree == {"a": "x\u2028y\u0085z", "b": 1}
    assert document.keys["$.b"] == (2, 1)


def test_unquoted_text_keeps_a_next_line_character():
    document = loads("a: x\u0085y\nx\u0085y: !!str x\u0085y\n")
    assert document.tree == {"a": "x\u0085y", "x\u0085y": "x\u0085y"}


# --- syntax --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1\n\tb: 2\n",
            "exp.yaml:2:1: $: not valid YAML: a tab where YAML allows spaces only; indent with spaces",
        ),
        ("a: b: c\n", "exp.yaml:1:5: $: not valid YAML: mapping values are not allowed here"),
        (
            "a: [1,\n  2\n",
            "exp.yaml:3:1: $: not valid YAML: expected ',' or ']', but got '<stream end>' (while parsing a flow sequence that starts on line 1)",
        ),
        (
            "a: 'x\n",
            "exp.yaml:2:1: $: not valid YAML: found unexpected end of stream (while scanning a quoted scalar that starts on line 1); a quote",
        ),
        ("- a\nb: 1\n", "exp.yaml:2:1: $: not valid YAML: expected <block end>"),
        (
            "a: @x\n",
            "exp.yaml:1:4: $: not valid YAML: found character '@' that cannot start any token; quote text",
        ),
        ("a: !e!x 1\n", "exp.yaml:1:4: $: not valid YAML: found undefined tag handle '!e!'"),
        ("a: x\nb: \x01\n", "exp.yaml:2:4: $: the character U+0001 is not accepted"),
        ("a: 1\n---\nb: 2\n", "exp.yaml:2:1: $: a second YAML document starts here"),
        ("%YAML 1.1\n---\na: 1\n", "$: the file asks for YAML 1.1"),
    ],
)
def test_what_cannot_be_parsed_is_refused_with_line_and_column(text: str, message: str):
    assert message in only(text)


def test_a_yaml_1_2_directive_is_accepted():
    assert loads("%YAML 1.2\n---\na: on\n...\n").tree == {"a": "on"}


@pytest.mark.parametrize(
    ("text", "kind"), [("- a\n- b\n", "a list"), ("just text", "text"), ("42", "the number 42")]
)
def test_a_top_level_that_is_no_mapping_is_refused(text: str, kind: str):
    assert f"exp.yaml:1:1: $: expected a mapping of keys to values, got {kind}" in only(text)


# --- scalars -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("1e-4", 1e-4), ("2e-5", 2e-5), ("+1e5", 1e5), ("1E3", 1e3), ("-1.5e-3", -1.5e-3), (".5", 0.5), ("1.", 1.0),
        ("3", 3), ("-3", -3), ("+3", 3), ("010", 10), ("0o17", 15), ("0x1F", 31),
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        ("on", "on"), ("off", "off"), ("yes", "yes"), ("No", "No"), ("y", "y"), ("n", "n"),
        ("12:30:00", "12:30:00"), ("1:30", "1:30"), ("2026-01-01", "2026-01-01"),
        ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00Z"),
        ("1_000", "1_000"), ("0b11", "0b11"), ("1e", "1e"), ("e5", "e5"), ("--", "--"), ("1.2.3", "1.2.3"),
        ("'1e-4'", "1e-4"), ('"true"', "true"), ("!!str 1e-4", "1e-4"), ("!!float 1", 1.0), ("!!int '7'", 7), ("! 12", "12"),
        ("١٢", "١٢"), ("tRue", "tRue"),
    ],
)  # fmt: skip
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(literal: str, value: object):
    for text in (f"a: {literal}\n", f"a: {{b: [{literal}]}}\n" if literal else f"a: {literal}\n"):
        found = loads(text).tree["a"]
        found = found["b"][0] if isinstance(found, dict) else found
        assert found == value
        assert type(found) is type(value)


@pytest.mark.parametrize("literal", [".nan", ".NaN", ".inf", "-.inf", "+.Inf", "1e999", "-1e999"])
def test_numbers_that_are_not_finite_are_refused_where_they_stand(literal: str):
    assert f"exp.yaml:2:6: $.a.b: {literal} is not a finite number" in only(f"a:\n  b: {literal}\n")


def test_a_number_that_goes_on_for_ever_is_refused():
    assert "$.a: a number of 5000 digits is too long; quote it" in only(f"a: {'9' * 5000}\n")
    assert "$: a number of 500 digits is too long; quote it" in only(f"{'9' * 500}: a\n")


def test_the_spelling_of_numbers_is_kept():
    assert loads("a: 010\nb: '010'\nc: [0x1F, x]\n").literals == {"$.a": "010", "$.c[0]": "0x1F"}


def test_escaped_surrogate_pairs_are_joined_and_halves_refused():
    assert loads('a: "\\ud83d\\ude00"').tree == {"a": "😀"}
    assert "exp.yaml:1:4: $.a: the text holds half of a surrogate pair" in only('a: "\\ud83d"')


# --- keys and tags -------------------------------------------------------------------------------------------------


def test_a_key_given_twice_is_refused_with_both_lines():
    text = "a:\n  max_length: 1024\n  other: 1\n  max_length: 262144\n"
    assert only(text) == (
        "exp.yaml:4:3: $.a.max_length: the key 'max_length' is given twice, on lines 2 and 4; keep one of them"
    )


def test_every_repeated_key_is_reported_at_once():
    assert [problem.line for problem in refused("a: 1\nb: {c: 1, c: 2}\na: 2\n'a': 3\n")] == [3, 4, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1: x\n", '1:1: $: a key must be text, and 1 is the number 1; quote it: "1"'),
        ("true: x\n", '$: a key must be text, and true is true; quote it: "true"'),
        ("null: x\n", "a key must be text, and null is null"),
        ("a: {: x}\n", "1:6: $.a: a key must be text, and an empty key is null; give the key a name"),
        ("? [a, b]\n: x\n", "a key must be text, not a list or a mapping"),
        ("!k a: x\n", "the tag !k is not accepted on a key"),
    ],
)
def test_keys_that_are_not_text_are_refused(text: str, message: str):
    assert message in only(text)


def test_keys_of_yaml_1_1_booleans_are_text():
    assert loads("on: 1\nno: 2\n2026-01-01: 3\n").tree == {"on": 1, "no": 2, "2026-01-01": 3}


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['touch /tmp/never']\n",
        "a: !foo {b: 1}\n",
        "a: !!binary aGk=\n",
        "a: !!timestamp 2026-01-01\n",
        "a: !!set {x, y}\n",
        "a: !include other.yaml\n",
        "a: !!omap [{x: 1}]\n",
        "a: !!map [1]\n",
        "a: !!seq x\n",
    ],
)
def test_tags_are_refused_and_never_constructed(text: str):
    message = only(text)
    assert "exp.yaml:1:4: $.a: the tag !" in message
    assert "is not accepted" in message


def test_a_core_tag_with_a_value_that_it_cannot_have_is_refused():
    assert "1:4: $.a: 'x' is not a !!int" in only("a: !!int x\n")


# --- anchors -------------------------------------------------------------------------------------------------------


def test_anchors_aliases_and_merge_keys_reuse_plain_values():
    text = """\
base: &base {lr: 1e-4, data: &data [a, b]}
other: &other {lr: 5, size: 3}
one: {<<: *base, lr: 2}
two:
  <<: [*other, *base]
three: *data
four: {"<<": 1}
"""
    tree = loads(text).tree
    assert tree["one"] == {"lr": 2, "data": ["a", "b"]}
    assert tree["two"] == {"lr": 5, "size": 3, "data": ["a", "b"]}
    assert tree["three"] == ["a", "b"]
    assert tree["four"] == {"<<": 1}


def test_a_reused_value_stands_where_it_was_written_and_its_alias_where_it_is_used():
    document = loads("a: &a\n  x: 1\nb: *a\nc:\n  <<: *a\n")
    assert document.positions["$.b"] == (3, 4)
    assert document.positions["$.b.x"] == (2, 6)
    assert document.locate("$.c.x") == (2, 3)


def test_a_problem_inside_a_reused_value_is_reported_for_each_place_it_is_used_in():
    assert [problem.path for problem in refused("a: &a {x: .nan}\nb: *a\n")] == ["$.a.x", "$.b.x"]


def test_merging_something_else_than_a_mapping_is_refused():
    assert "exp.yaml:1:7: $.b: `<<` merges mappings only" in only("a: &a [1]\nb:\n  <<: [*a]\n").replace(
        "1:4", "1:7"
    )
    assert "exp.yaml:2:7: $.b: `<<` merges mappings only" in only("b:\n  <<: 1\n")


def test_an_unknown_alias_is_refused():
    assert "exp.yaml:1:4: $: *nope refers to no anchor" in only("a: *nope\n")


def test_a_value_inside_itself_is_refused():
    assert "exp.yaml:1:8: $: *a is inside the value that it refers to" in only("a: &a [*a]\n")


def test_a_billion_laughs_are_refused_before_they_unfold():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert f"the file's aliases unfold to more than {MAX_ALIASED:,} values" in only("\n".join(lines))


def test_a_billion_merges_are_refused_too():
    lines = ["a0: &a0 {x0: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], x{n}: 1}}" for n in range(1, 40)]
    assert "aliases unfold to more than" in only("\n".join(lines))


def test_nesting_beyond_the_bound_is_refused_and_up_to_it_accepted():
    deep = MAX_DEPTH - 1
    assert loads("a: " + "[" * deep + "]" * deep)
    assert f"nested more than {MAX_DEPTH} levels deep" in only("a: " + "[" * 1000 + "]" * 1000)
    assert f"nested more than {MAX_DEPTH} levels deep" in only("a: " + "{x: " * 1000)


# --- placeholders and positions --------------------------------------------------------------------------------------


def test_placeholders_stay_unresolved(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVSYS_TEST_KEY", "secret")
    assert loads("a: ${EVSYS_TEST_KEY}\nb: x${EVSYS_TEST_KEY}\n").tree == {
        "a": "${EVSYS_TEST_KEY}",
        "b": "x${EVSYS_TEST_KEY}",
    }


def test_each_key_value_and_item_has_its_position():
    document = loads(
        "run:\n  data:\n    path: x.jsonl\n  tags: [a,\n    b]\naxes:\n  run.seed:\n    - 1\n    - 2\n"
    )
    assert document.positions["$.run.data.path"] == (3, 11)
    assert document.keys["$.run.data.path"] == (3, 5)
    assert document.positions["$.run.tags[1]"] == (5, 5)
    assert document.positions["$.axes['run.seed'][1]"] == (9, 7)
    assert document.positions["$.run"] == (2, 3)
    assert document.keys["$.run"] == (1, 1)


def test_what_is_missing_is_located_at_the_mapping_it_belongs_in():
    document = loads("a: 1\nrun:\n  data: {}\n")
    assert document.locate("$.run.model.name") == (2, 1)
    assert document.locate("$.nothing") == (1, 1)


def test_values_of_overrides_are_parsed_like_those_of_files():
    assert parse_value("1e-4", "x") == 1e-4
    assert parse_value("[a, {b: on}]", "x") == ["a", {"b": "on"}]
    assert parse_value("", "x") is None
    for text in ("[1, 2", "!foo x", ".nan", "{a: 1, a: 2}"):
        with pytest.raises(ConfigError) as caught:
            parse_value(text, "x")
        assert {(problem.line, problem.path) for problem in caught.value.problems} == {(None, "")}


# --- properties ------------------------------------------------------------------------------------------------------

TEXT = st.text(
    st.characters(
        min_codepoint=32,
        max_codepoint=0x1FFFF,
        exclude_categories=["Cc", "Cs", "Cn"],
        exclude_characters="\ufeff",
    ),
    max_size=12,
)
SCALARS = st.one_of(
    TEXT,
    st.sampled_from(
        ["on", "010", "1e-4", "12:30:00", "null", "~", "<<", "*x", "&x", "!t", "- x", "# x", "a: b"]
    ),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
)
TREES = st.dictionaries(
    TEXT,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
        max_leaves=12,
    ),
    min_size=1,
    max_size=5,
)


def written(value: object, indent: int, styles: st.DataObject) -> str:
    """Block or flow style, as drawn; text quoted, numbers as JSON writes them."""
    if not value or not isinstance(value, dict | list) or styles.draw(st.booleans()):
        return " " + json.dumps(value, ensure_ascii=styles.draw(st.booleans()))
    pad = "\n" + " " * indent
    if isinstance(value, list):
        return "".join(f"{pad}-{written(item, indent + 2, styles)}" for item in value)
    return "".join(
        f"{pad}{json.dumps(key)}:{written(item, indent + 2, styles)}" for key, item in value.items()
    )


@settings(max_examples=60, deadline=None)
@given(tree=TREES, data=st.data())
def test_a_tree_is_read_back_whichever_style_it_is_written_in(tree: dict, data: st.DataObject):
    text = "".join(f"{json.dumps(key)}:{written(value, 2, data)}\n" for key, value in tree.items())
    document = loads(text)
    assert document.tree == tree
    assert json.dumps(document.tree) == json.dumps(tree)


def walk(value: object, path: str = "$"):
    yield path, value
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, item in children:
        yield from walk(item, paths.child(path, key))


@settings(max_examples=60, deadline=None)
@given(tree=TREES, indent=st.sampled_from([None, 0, 2]))
def test_the_value_of_each_path_is_found_at_its_position(tree: dict, indent: int | None):
    text = json.dumps(tree, indent=indent, ensure_ascii=False)
    document = loads(text)
    lines = text.split("\n")
    decoder = json.JSONDecoder()
    found = dict(walk(tree))
    assert document.positions.keys() == found.keys()
    for path, value in found.items():
        for table, expected in (
            (document.positions, value),
            (document.keys, paths.parse(path)[-1] if path != "$" else None),
        ):
            if path in table:
                line, column = table[path]
                at = sum(len(above) + 1 for above in lines[: line - 1]) + column - 1
                assert decoder.raw_decode(text, at)[0] == expected


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("a1:-? \n\t{}[],&*!|>'\"#%@`<.~e+"), max_size=40))
def test_any_text_is_read_or_refused_with_a_place(text: str):
    try:
        document = parse(text)
    except ConfigError as exc:
        places = [(problem.source, problem.message) for problem in exc.problems]
    else:
        places = [(problem.source, problem.message) for problem in document.problems] or [("<text>", "read")]
        assert isinstance(document.tree, dict)
        assert all(1 <= problem.line <= text.count("\n") + 1 for problem in document.problems)
        assert not any(
            isinstance(value, float) and not math.isfinite(value) for _, value in walk(document.tree)
        )
    assert places
    assert all(source == "<text>" and message for source, message in places)
