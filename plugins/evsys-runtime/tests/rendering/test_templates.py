import json
from pathlib import Path

import pytest

from evsys.errors import DataError
from evsys_runtime.rendering import template_sandbox
from evsys_runtime.rendering.templates import CHATML, ChatTemplate, load_template

ONE = [{"role": "user", "content": "hi"}]


def test_the_tiny_template_has_no_system_prompt_of_its_own():
    template = load_template("evsys/tiny")
    assert template.render(ONE) == "<|im_start|>user\nhi<|im_end|>\n"
    assert template.render(ONE, add_generation_prompt=True).endswith("<|im_start|>assistant\n")


def test_blocks_leave_no_blank_lines_and_no_indentation():
    template = ChatTemplate(
        "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n"
    )
    assert template.render([*ONE, *ONE]) == "hi\nhi\n"


def test_json_is_written_as_models_know_it():
    template = ChatTemplate(
        "{{ messages[0].content | tojson }} {{ {'b': 1, 'a': '<é>'} | tojson(indent=1) }}"
    )
    assert template.render(ONE) == '"hi" {\n "b": 1,\n "a": "<é>"\n}'


def test_no_tools_are_none_and_variables_reach_the_template():
    template = ChatTemplate("{{ tools is none }} {{ bos_token }}", variables={"bos_token": "<s>"})
    assert template.render(ONE) == "True <s>"
    assert template.render(ONE, tools=[{"name": "f"}]) == "False <s>"


def test_the_date_stays_the_same_within_a_process():
    template = ChatTemplate("{{ strftime_now('%Y-%m-%d %H:%M:%S.%f') }}")
    assert template.render(ONE) == template.render(ONE)


def test_loop_controls_and_generation_marks_are_known():
    source = (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}"
    )
    assert ChatTemplate(source).render([*ONE, *ONE]) == "hi"


def test_a_syntax_error_names_template_and_line():
    with pytest.raises(DataError, match=r"tiny\.jinja:2: chat template has a syntax error"):
        ChatTemplate("{# one #}\n{% for %}", name="tiny.jinja")


def test_a_template_that_refuses_says_why_and_where():
    source = "{% for m in messages %}\n{% if m.role == 'system' %}\n{{ raise_exception('no system role') }}\n{% endif %}\n{% endfor %}"
    with pytest.raises(DataError, match=r"mine\.jinja:3: chat template failed: no system role"):
        ChatTemplate(source, name="mine.jinja").render([{"role": "system", "content": ""}])


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages.clear() }}",
        "{{ 'a' * 99999999999 }}",
        "{{ [0] * 99999999999 }}",
        "{{ 9 ** 99999999 }}",
        "{{ 'a'.center(9999999999) }}",
        "{{ 'a'.ljust(9999999999) }}",
        "{{ 'a'.zfill(9999999999) }}",
        "{{ '%9999999999d' % 1 }}",
        "{{ '%*d' % (9999999999, 1) }}",
        "{{ '%9999999999d'|format(1) }}",
        "{{ '{:9999999999}'.format(1) }}",
        "{{ ('a\n' * 1000)|indent(99999999) }}",
        "{{ [[1]]|tojson(indent=9999999999) }}",
        "{{ [1, 2]|tojson(separators=('a' * 100000, 'b')) }}",
        "{{ ('a' * 100000)|replace('a', 'b' * 100000) }}",
        "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
        "{{ ('a' * 100000)|replace(old='a', new='b' * 100000) }}",
        "{{ ('a' * 10000)|list|join('b' * 100000) }}",
        "{{ ('b' * 100000).join(('a' * 10000)|list) }}",
        "{{ ('\t' * 100000).expandtabs(100000) }}",
        "{{ lipsum(n=99999) }}",
        "{{ []|batch(9999999999, 'x')|list }}",
        "{{ [1]|batch(9999999999, 'x')|list }}",
        "{{ [1]|slice(9999999999)|list }}",
        "{% set x = namespace(v='aaaaaaaaaa') %}{% for i in range(99) %}{% set x.v = x.v ~ x.v %}{% endfor %}",
        "{% set x = namespace(v='aaaaaaaaaa') %}{% for i in range(99) %}{% set x.v = x.v + x.v %}{% endfor %}",
        "{% set x = namespace(v=[0]) %}{% for i in range(99) %}{% set x.v = x.v + x.v %}{% endfor %}",
        "{% set x = namespace(v=[0]) %}{% for i in range(99) %}{% set x.v = [x.v, x.v] %}{% endfor %}{{ x.v }}",
        "{% set x = namespace(v=[0]) %}{% for i in range(99) %}{% set x.v = [x.v, x.v] %}{% endfor %}{{ x.v|tojson }}",
        "{% set x = namespace(v=[0]) %}{% for i in range(99) %}{% set x.v = {'a': x.v, 'b': x.v} %}{% endfor %}{{ '%s' % x.v }}",
        "{% set x = namespace(v=9) %}{% for i in range(99) %}{% set x.v = x.v * x.v %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ absent.attribute }}",
    ],
)
def test_the_sandbox_stops_what_is_no_templating(source: str):
    with pytest.raises(DataError, match="chat template failed"):
        ChatTemplate(source).render(ONE)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for i in [[0] * 9] * 9 recursive %}{{ loop([[0] * 9] * 9) if loop.depth < 90 }}{% endfor %}",
        "{% for i in range(100000) %}{% set x = ('a' * 100)|upper|lower|sort|list %}{% endfor %}",
    ],
)
def test_the_time_is_bounded(source: str, monkeypatch: pytest.MonkeyPatch):
    clock = iter(range(10**9))
    monkeypatch.setattr(template_sandbox.time, "monotonic", lambda: next(clock) / 100)
    with pytest.raises(DataError, match="not rendered within 10 seconds"):
        ChatTemplate(source).render(ONE)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'a' ~ 1 ~ none ~ [1, 'b'] }}", "a1None[1, 'b']"),
        ("{{ '%s|%03d'|format('x', 7) }}", "x|007"),
        ("{{ 'a' + messages[0].content }}", "ahi"),
        ("{{ '%s has %d' % ('x', 12345678901) }}", "x has 12345678901"),
        ("{{ 12345678901|string ~ 2 ** 40 }}", "123456789011099511627776"),
        ("{{ ['a', 'b']|join(', ') }}{{ ', '.join(['c']) }}", "a, bc"),
        ("{{ 'a-b'|replace('-', '+') }}{{ 'a-b'.replace('-', '').strip().split('b')|length }}", "a+b2"),
        ("{{ {'b': 1, 'a': 2}|dictsort|tojson }}", '[["a", 2], ["b", 1]]'),
        ("{{ messages|map(attribute='role')|list|first }}", "user"),
        ("{{ messages|selectattr('role', 'equalto', 'user')|list|length }}", "1"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(1) ~ f(2) }}", "[1][2]"),
        ("{% call(x) g() %}{{ x }}{% endcall %}{% macro h() %}{% endmacro %}", None),
        ("{{ {'a': 1}.items()|list }}{{ messages[0].get('absent', 'none') }}", "[('a', 1)]none"),
    ],
)
def test_what_templates_use_works_within_the_bounds(source: str, text: str | None):
    template = ChatTemplate(source)
    if text is None:
        with pytest.raises(DataError, match="'g' is undefined"):
            template.render(ONE)
    else:
        assert template.render(ONE) == text


def test_filters_without_a_bound_are_not_there():
    with pytest.raises(DataError, match=r"No filter named 'center'.*chat templates can use abs, attr"):
        ChatTemplate("{{ 'a'|center(9999999999) }}")


def test_a_template_that_cant_be_compiled_is_named():
    with pytest.raises(DataError, match=r"deep\.jinja: chat template can't be compiled"):
        ChatTemplate("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", name="deep.jinja")


def test_the_output_is_bounded():
    template = ChatTemplate(
        "{% for i in range(1000) %}{{ messages[0].content }}{% endfor %}", max_characters=100
    )
    with pytest.raises(DataError, match="wrote more than 100 characters"):
        template.render(ONE)


def test_output_beyond_the_bound_is_not_even_made():
    """Ten thousand million characters, were they all written."""
    loops = "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}"
    with pytest.raises(DataError, match="wrote more than 1000 characters"):
        ChatTemplate(loops, max_characters=1000).render(ONE)


def test_a_template_lies_beside_the_tokenizer_or_inside_its_config(model_dir: Path):
    assert load_template(model_dir).mentions("You are a small model.")
    (model_dir / "chat_template.jinja").unlink()
    with pytest.raises(DataError, match="no chat template"):
        load_template(model_dir)
    config = model_dir / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": CHATML}), encoding="utf-8")
    assert load_template(model_dir).source == CHATML
    named = [{"name": "other", "template": "x"}, {"name": "default", "template": CHATML}]
    config.write_text(json.dumps({"chat_template": named}), encoding="utf-8")
    assert load_template(model_dir).source == CHATML


def test_the_fingerprint_follows_source_and_variables():
    prints = {
        ChatTemplate("a").fingerprint,
        ChatTemplate("b").fingerprint,
        ChatTemplate("a", variables={"x": 1}).fingerprint,
    }
    assert len(prints) == 3
    assert ChatTemplate("a", name="another name").fingerprint == ChatTemplate("a").fingerprint
