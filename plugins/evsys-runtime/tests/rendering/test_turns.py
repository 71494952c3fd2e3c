"""Conversations are rendered and encoded in one pass, with the tokens and weights of rendering each prefix on its own."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evsys.errors import DataError
from evsys.types import Message
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_runtime.rendering.growth import grow
from evsys_runtime.rendering.messages import template_messages
from evsys_runtime.rendering.templates import CHATML, ChatTemplate
from evsys_runtime.rendering.tokenizers import ByteTokenizer, TokenizersTokenizer

FOLDER = Path(__file__).parent / "templates"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
LOOP = "{% for m in messages %}" + TURN + "{% endfor %}" + PROMPT

APPENDING = {
    "chatml": CHATML,
    "tools": (FOLDER / "tools.jinja").read_text(encoding="utf-8"),
    "system apart": "{% if messages[0].role == 'system' %}{{ messages[0].content }}\n{% set rest = messages[1:] %}"
    "{% else %}{% set rest = messages %}{% endif %}{% for m in rest %}" + TURN + "{% endfor %}" + PROMPT,
    "looks behind": "{% for m in messages %}{% if loop.first %}begin\n{% elif messages[loop.index0 - 1].role == m.role %}"
    "again\n{% endif %}" + TURN + "{% endfor %}" + PROMPT,
    "trims": LOOP.replace("m.content", "m.content | trim"),
    "a default system prompt": "{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nHelp.<|im_end|>\n' }}{% endif %}" + TURN + "{% endfor %}" + PROMPT,
    "ends without a prompt": LOOP + "{% if not add_generation_prompt %}{% endif %}",
}
LOOKING = {
    "thinking": (FOLDER / "thinking.jinja").read_text(encoding="utf-8"),
    "last": LOOP.replace("{{ m.content }}", "{{ m.content }}{{ '!' if loop.last }}"),
    "next": LOOP.replace("{{ m.content }}", "{{ m.content }}{{ (loop.nextitem or {'role': ''}).role }}"),
    "ahead": LOOP.replace("{{ m.content }}", "{{ m.content }}{{ messages[loop.index0 + 1] is defined }}"),
    "tool results together": "{% for m in messages %}{% if m.role != 'tool' %}" + TURN + "{% else %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}\n({{ m.content }})"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}{% endif %}{% endfor %}"
    + PROMPT,
    "system apart, last": "{% if messages[0].role == 'system' %}{{ messages[0].content }}\n{% set rest = messages[1:] %}"
    "{% else %}{% set rest = messages %}{% endif %}{% for m in rest %}"
    + TURN.replace("m.content", "m.content ~ loop.last")
    + "{% endfor %}"
    + PROMPT,
}
OTHERS = {
    "two ahead": LOOP.replace("{{ m.content }}", "{{ m.content }}{{ messages[loop.index0 + 2] is defined }}"),
    "changes": LOOP.replace("{{ m.content }}", "{{ m.content }}{{ 'new' if loop.changed(m.role, loop.last) }}"),
    "from the end": LOOP.replace("{{ m.content }}", "{{ m.content }}{{ loop.revindex }}"),
    "counts": "{% set n = messages | length %}" + LOOP.replace("{{ m.role }}", "{{ m.role }}{{ n }}"),
    "the end": LOOP.replace("{{ m.content }}", "{{ m.content }}{{ '!' if m is sameas messages[-1] }}"),
    "afterwards": LOOP + "{{ messages[-1].content if not add_generation_prompt }}",
    "buffered": "{% set text %}" + LOOP + "{% endset %}{{ text }}",
    "filtered text": "{% filter trim %}" + LOOP + "{% endfilter %}\n",
    "macro": "{% macro show(all) %}" + LOOP.replace("in messages", "in all") + "{% endmacro %}{{ show(messages) }}",
    "joined": "{{ messages | map(attribute='content') | join('<|im_end|>\n') }}<|im_end|>\n" + PROMPT,
    "only some": LOOP.replace("in messages", "in messages if m.role != 'tool'"),
    "two loops": "{% for m in messages %}{% if m.role == 'system' %}" + TURN + "{% endif %}{% endfor %}" + LOOP,
    "twice": "{% for i in [1, 2] %}{% for m in messages %}" + TURN + "{% endfor %}{% endfor %}" + PROMPT,
    "state": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}" + TURN + "{% endfor %}{{ ns.n }}\n" + PROMPT,
    "stops": LOOP.replace("{{ m.role }}", "{% if loop.index > 2 %}{% break %}{% endif %}{{ m.role }}"),
    "listed": LOOP.replace("in messages", "in messages | list"),
    "shown whole": LOOP.replace("{{ m.content }}", "{{ m.content }}{{ messages | string | length }}"),
    "compared": LOOP.replace("{{ m.content }}", "{{ m.content }}{{ {'role': 'user', 'content': 'x'} in messages }}"),
    "else": "{% for m in messages %}" + TURN + "{% else %}nothing{% endfor %}" + PROMPT,
    "backwards": "{% for m in messages[::-1] %}{{ m.role }} {% endfor %}" + LOOP,
}  # fmt: skip
TEMPLATES = {**APPENDING, **LOOKING, **OTHERS}

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["\n\n", "\n\n\n", " ", "the answer", "é\n", "x", "<|im_end|>", "a <|im_end|>\n<|im_start|>assistant\nb"]
)
MESSAGES = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["user", "assistant", "assistant", "system", "tool"]),
        content=TEXTS,
        weight=st.sampled_from([None, None, 0.0, 0.5]),
    ),
    max_size=9,
)


def by_definition(renderer, messages, train_on):
    try:
        return each_prefix_alone(renderer, messages, train_on)
    except DataError:
        return "unstable"


def each_prefix_alone(renderer, messages, train_on):
    """`render_training` by definition: two renderings and two encodings for each turn, all of them whole."""
    encode, render = renderer.tokenizer.encode, renderer.template.render
    turns = [i for i, m in enumerate(messages) if m.role == "assistant"]
    background = 1.0 if train_on == "all" else 0.0
    sequences = []
    for i in turns[-1:] if train_on == "last_assistant" else turns:
        weight = 1.0 if messages[i].weight is None else messages[i].weight
        if not weight and not background:
            continue
        prompt = render(template_messages(messages[:i]), add_generation_prompt=True)
        whole = render(template_messages(messages[: i + 1]))
        if not prompt or not whole.startswith(prompt):
            return "unstable"
        before, ids = encode(prompt), encode(whole)
        answer = ids[len(before) :] if ids[: len(before)] == before else encode(whole[len(prompt) :])
        ends = [place for place, token in enumerate(answer) if token in renderer.stop_token_ids]
        if not ends or renderer.tokenizer.decode(answer[ends[0] + 1 :]).strip():
            return "unstable"
        answer = answer[: ends[0] + 1]
        if not sequences or before[: len(sequences[-1][0])] != sequences[-1][0]:
            sequences.append(([], []))
        tokens, weights = sequences[-1]
        weights += [background] * (len(before) - len(tokens)) + [weight] * len(answer)
        tokens += [*before[len(tokens) :], *answer]
    if train_on == "all" and messages and (messages[-1].role != "assistant" or len(sequences) != 1):
        whole = encode(render(template_messages(messages)))
        tokens, weights = sequences[0] if sequences else ([], [])
        if len(sequences) > 1 or whole[: len(tokens)] != tokens:
            return "unstable"
        sequences = [(whole, weights + [1.0] * (len(whole) - len(weights)))]
    return [(tokens, weights) for tokens, weights in sequences if any(weights)]


def tokenizer_of(kind, bpe):
    return ByteTokenizer() if kind == "bytes" else TokenizersTokenizer(bpe, eos_token_ids=[2])


@given(
    messages=MESSAGES.filter(lambda messages: not any("<|" in message.content for message in messages)),
    template=st.sampled_from(sorted(TEMPLATES)),
    kind=st.sampled_from(["bytes", "bpe"]),
    train_on=st.sampled_from(["all_assistant", "last_assistant", "all"]),
)
def test_tokens_and_weights_are_those_of_each_prefix_alone(bpe, messages, template, kind, train_on):
    renderer = ChatTemplateRenderer(tokenizer_of(kind, bpe), TEMPLATES[template])
    wanted = by_definition(renderer, messages, train_on)
    if wanted == "unstable":
        with pytest.raises(DataError):
            renderer.render_training(messages, train_on=train_on)
        return
    try:
        found = renderer.render_training(messages, train_on=train_on)
    except DataError as error:
        if "leaves out" not in error.message:
            raise
        assume(False)
    assert found == wanted


@given(messages=MESSAGES, template=st.sampled_from(sorted(TEMPLATES)))
def test_every_prefix_is_known_exactly_or_not_at_all(messages, template):
    template = ChatTemplate(TEMPLATES[template])
    shown = template_messages(messages)
    growth = grow(template, shown, ())
    if growth is None:
        return
    for end in range(1, len(shown) + 1):
        assert growth.prefix(end).text() == template.render(shown[:end])
        prompt = template.render(shown[:end], add_generation_prompt=True)
        assert end == len(shown) or growth.prefix(end, prompt=True).text() == prompt


TALK = template_messages(
    [
        Message(role="assistant" if i % 2 else "user", content=text)
        for i, text in enumerate(("one", "two", "three", "four"))
    ]
)


@pytest.mark.parametrize("name", sorted(APPENDING | LOOKING))
def test_a_template_that_reads_in_turn_is_rendered_a_few_times_for_all_turns(name, monkeypatch):
    renders = []
    render = ChatTemplate.render
    monkeypatch.setattr(ChatTemplate, "render", lambda *args, **kw: renders.append(1) or render(*args, **kw))
    messages = [*TALK, *[{"role": "tool", "content": "x"}] * (name in LOOKING), *TALK]
    assert grow(ChatTemplate((APPENDING | LOOKING)[name]), messages, ()) is not None
    assert len(renders) == (4 if name in LOOKING else 2)


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_a_template_that_does_more_is_rendered_for_each_turn(name):
    assert grow(ChatTemplate(OTHERS[name]), TALK, ()) is None


class Counting(ByteTokenizer):
    """Counts the characters that it encodes."""

    encoded = 0

    def encode(self, text, plain=()):
        self.encoded += len(text)
        return super().encode(text, plain)


@pytest.mark.parametrize("name", ["chatml", "tools", "system apart", "tool results together"])
def test_work_grows_with_the_conversation_not_with_its_square(name, monkeypatch):
    tokenizer = Counting()
    renderer = ChatTemplateRenderer(tokenizer, TEMPLATES[name])
    renders = []
    render = ChatTemplate.render
    monkeypatch.setattr(ChatTemplate, "render", lambda *args, **kw: renders.append(1) or render(*args, **kw))
    messages = [Message(role="assistant" if i % 2 else "user", content=f"text {i} " * 5) for i in range(200)]
    tokenizer.encoded = 0
    [(tokens, _)] = renderer.render_training(messages)
    assert len(renders) == 2
    assert tokenizer.encoded < 2 * len(tokenizer.decode(tokens))
