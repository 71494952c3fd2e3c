import json
from pathlib import Path

import pytest

from evsys.errors import DataError
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
        "{{ absent.attribute }}",
    ],
)
def test_the_sandbox_stops_what_is_no_templating(source: str):
    with pytest.raises(DataError, match="chat template failed"):
        ChatTemplate(source).render(ONE)


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
