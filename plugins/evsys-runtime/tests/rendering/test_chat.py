from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.errors import DataError
from evsys.types import Message, ToolCall
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_runtime.rendering.templates import CHATML, ChatTemplate
from evsys_runtime.rendering.tokenizers import ByteTokenizer, TokenizersTokenizer

TEMPLATES = Path(__file__).parent / "templates"
IM_START, IM_END = 256, 257
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


def talk(*pairs: tuple[str, str]) -> list[Message]:
    return [Message(role=role, content=content) for role, content in pairs]


def named(name: str, tokenizer=None) -> ChatTemplateRenderer:
    source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    return ChatTemplateRenderer(tokenizer, ChatTemplate(source, name=f"{name}.jinja"))


def trained(renderer: ChatTemplateRenderer, sequence: tuple[list[int], list[float]]) -> list[str]:
    """The trained stretches of a sequence, as text."""
    tokens, weights = sequence
    assert len(tokens) == len(weights)
    runs: list[list[int]] = []
    inside = False
    for token, weight in zip(tokens, weights, strict=True):
        if weight and not inside:
            runs.append([])
        inside = bool(weight)
        if inside:
            runs[-1].append(token)
    return [renderer.tokenizer.decode(run) for run in runs]


@pytest.fixture(params=["bytes", "bpe"])
def chatml(request: pytest.FixtureRequest, bpe) -> ChatTemplateRenderer:
    tokenizer = ByteTokenizer() if request.param == "bytes" else TokenizersTokenizer(bpe, eos_token_ids=[2])
    return ChatTemplateRenderer(tokenizer, CHATML)


TWO_TURNS = talk(
    ("system", "be kind"), ("user", "one?"), ("assistant", "1"), ("user", "two?"), ("assistant", "2")
)


def test_only_the_answer_and_its_end_token_are_trained(chatml):
    [sequence] = chatml.render_training(talk(("user", "hello"), ("assistant", "the answer")))
    assert trained(chatml, sequence) == ["the answer<|im_end|>"]
    assert chatml.tokenizer.decode(sequence[0]).endswith("the answer<|im_end|>")
    assert set(sequence[1]) == {0.0, 1.0}


def test_a_template_that_keeps_history_makes_one_sequence_of_all_turns(chatml):
    [sequence] = chatml.render_training(TWO_TURNS)
    assert trained(chatml, sequence) == ["1<|im_end|>", "2<|im_end|>"]


def test_the_last_turn_alone_is_trained_when_asked(chatml):
    [sequence] = chatml.render_training(TWO_TURNS, train_on="last_assistant")
    assert trained(chatml, sequence) == ["2<|im_end|>"]
    [every] = chatml.render_training(TWO_TURNS)
    assert sequence[0] == every[0]


def test_all_trains_every_token_and_what_follows_the_last_turn(chatml):
    messages = [*TWO_TURNS, Message(role="user", content="three?")]
    [(tokens, weights)] = chatml.render_training(messages, train_on="all")
    assert set(weights) == {1.0}
    assert tokens == chatml.tokenizer.encode(
        chatml.template.render([{"role": m.role, "content": m.content} for m in messages])
    )
    [(tokens, weights)] = chatml.render_training(talk(("user", "text alone")), train_on="all")
    assert set(weights) == {1.0}
    assert chatml.tokenizer.decode(tokens) == "<|im_start|>user\ntext alone<|im_end|>\n"


def test_what_follows_the_last_trained_turn_is_left_out(chatml):
    [longer] = chatml.render_training([*TWO_TURNS, Message(role="user", content="three?")])
    assert [longer] == chatml.render_training(TWO_TURNS)


def test_a_messages_own_weight_scales_its_turn_and_zero_leaves_it_out(chatml):
    messages = [
        Message(role="user", content="one?"),
        Message(role="assistant", content="1", weight=0.0),
        Message(role="user", content="two?"),
        Message(role="assistant", content="2", weight=0.25),
    ]
    [sequence] = chatml.render_training(messages)
    assert trained(chatml, sequence) == ["2<|im_end|>"]
    assert set(sequence[1]) == {0.0, 0.25}
    [(_, weights)] = chatml.render_training(messages, train_on="all")
    assert set(weights) == {0.0, 0.25, 1.0}


@pytest.mark.parametrize(
    "messages",
    [
        [],
        talk(("user", "hello")),
        [Message(role="user", content="a"), Message(role="assistant", content="b", weight=0.0)],
    ],
)
def test_a_conversation_with_nothing_to_train_gives_no_sequence(chatml, messages: list[Message]):
    assert chatml.render_training(messages) == []


def test_an_unknown_train_on_names_the_choices(chatml):
    with pytest.raises(ValueError, match="last_assistant, all_assistant, all"):
        chatml.render_training(TWO_TURNS, train_on="assistant")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["\n\n", "\n\n\n", " ", "the answer", "é\n"]
)
CONVERSATIONS = st.lists(TEXTS, min_size=2, max_size=6).map(
    lambda texts: [
        Message(role="assistant" if i % 2 else "user", content=text) for i, text in enumerate(texts)
    ]
)


@given(
    messages=CONVERSATIONS,
    template=st.sampled_from(["chatml", "tools", "thinking"]),
    kind=st.sampled_from(["bytes", "bpe"]),
)
def test_each_trained_turn_stands_behind_exactly_the_prompt_it_is_sampled_from(
    bpe, messages, template: str, kind: str
):
    tokenizer = ByteTokenizer() if kind == "bytes" else TokenizersTokenizer(bpe, eos_token_ids=[2])
    renderer = ChatTemplateRenderer(tokenizer, CHATML) if template == "chatml" else named(template, tokenizer)
    starts = []
    for tokens, weights in renderer.render_training(messages):
        starts += [tokens[:i] for i, weight in enumerate(weights) if weight and not weights[i - 1]]
    prompts = [renderer.render_prompt(messages[:i]) for i, m in enumerate(messages) if m.role == "assistant"]
    assert starts == prompts


@given(
    content=st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: "<think>" not in text),
    kind=st.sampled_from(["bytes", "bpe"]),
)
def test_parsing_what_was_trained_gives_the_message_back(bpe, content: str, kind: str):
    tokenizer = ByteTokenizer() if kind == "bytes" else TokenizersTokenizer(bpe, eos_token_ids=[2])
    renderer = ChatTemplateRenderer(tokenizer, CHATML)
    message = Message(role="assistant", content=content)
    [(tokens, weights)] = renderer.render_training([Message(role="user", content="q"), message])
    answer = [token for token, weight in zip(tokens, weights, strict=True) if weight]
    assert renderer.parse(answer) == message
    assert renderer.parse(answer[:-1]) == message


def test_an_answer_that_merges_with_the_prompt_is_tokenised_apart(bpe):
    tokenizer = TokenizersTokenizer(bpe, eos_token_ids=[2])
    renderer = ChatTemplateRenderer(tokenizer, CHATML)
    messages = talk(("user", "hello"), ("assistant", "\n\nhere"))
    prompt = renderer.render_prompt(messages[:1])
    whole = tokenizer.encode(renderer.prompt_text(messages[:1]) + "\n\nhere<|im_end|>")
    assert whole[: len(prompt)] != prompt, (
        "the tokenizer must merge across the border for this test to mean anything"
    )
    [sequence] = renderer.render_training(messages)
    assert sequence[0][: len(prompt)] == prompt
    assert trained(renderer, sequence) == ["\n\nhere<|im_end|>"]


class SpaceBefore(ByteTokenizer):
    """Puts a space before a text that starts with a letter, and swallows newlines into one token: nothing joins up."""

    def encode(self, text: str) -> list[int]:
        text = text.replace("assistant\nX", "assistantX")
        return super().encode(" " + text if text[:1].isalpha() else text)


def test_tokens_that_cannot_be_joined_are_refused():
    renderer = ChatTemplateRenderer(SpaceBefore(), CHATML)
    with pytest.raises(DataError, match="not a prefix of the conversation's tokens"):
        renderer.render_training(talk(("user", "q"), ("assistant", "Xylophone")))


# --- thinking ---------------------------------------------------------------------------------------------------


def thoughts() -> list[Message]:
    return [
        Message(role="user", content="one?"),
        Message(role="assistant", content="1", reasoning="easy"),
        Message(role="user", content="two?"),
        Message(role="assistant", content="2", reasoning="harder"),
    ]


def test_rewritten_history_makes_a_sequence_of_each_turn():
    renderer = named("thinking")
    first, second = renderer.render_training(thoughts())
    assert trained(renderer, first) == ["<think>\neasy\n</think>\n\n1<|im_end|>"]
    assert trained(renderer, second) == ["<think>\nharder\n</think>\n\n2<|im_end|>"]
    assert "easy" not in renderer.tokenizer.decode(second[0])
    [last] = renderer.render_training(thoughts(), train_on="last_assistant")
    assert last == second


def test_training_on_all_of_a_rewritten_history_is_refused():
    with pytest.raises(DataError, match=r"rewrites earlier turns.*all_assistant"):
        named("thinking").render_training(thoughts(), train_on="all")


def test_reasoning_is_parsed_into_its_own_field():
    renderer = named("thinking")
    encode = renderer.tokenizer.encode
    assert renderer.parse(encode("<think>\nhm\n</think>\n\n4<|im_end|>")) == Message(
        role="assistant", content="4", reasoning="hm"
    )
    assert renderer.parse(encode("<think>\nnever ends")) == Message(
        role="assistant", content="", reasoning="never ends"
    )
    assert renderer.parse(encode("4<|im_end|>")) == Message(role="assistant", content="4")


def test_reasoning_is_separated_if_the_template_does_not_know_it(chatml):
    encode = chatml.tokenizer.encode
    assert chatml.parse(encode("<think>9</think>4<|im_end|>")) == Message(
        role="assistant", content="4", reasoning="9"
    )
    assert chatml.parse(encode("<think>the answer is 4")).content == ""


def test_the_tags_of_reasoning_can_be_chosen():
    renderer = ChatTemplateRenderer(reasoning_tags=("[THINK]", "[/THINK]"))
    message = renderer.parse(renderer.tokenizer.encode("[THINK]9[/THINK]4<|im_end|>"))
    assert (message.reasoning, message.content) == ("9", "4")


def test_a_thought_that_the_prompt_opened_is_parsed_too():
    source = (TEMPLATES / "thinking.jinja").read_text(encoding="utf-8")
    source = source.replace(
        "add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}",
        "add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}",
    )
    renderer = ChatTemplateRenderer(None, source)
    renderer.require_trainable()
    assert renderer.parse(renderer.tokenizer.encode("hm\n</think>\n\n4<|im_end|>")) == Message(
        role="assistant", content="4", reasoning="hm"
    )
    first, _ = renderer.render_training(thoughts())
    assert trained(renderer, first) == ["easy\n</think>\n\n1<|im_end|>"]


def test_reasoning_without_a_place_in_the_template_is_refused(chatml):
    with pytest.raises(DataError, match="leaves out a part of an assistant turn, its reasoning: 'easy'"):
        chatml.render_training(thoughts())


# --- tools ------------------------------------------------------------------------------------------------------


def call(**arguments: str) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(name="get_weather", arguments=arguments),))


def test_tool_schemas_reach_the_prompt_of_training_and_sampling():
    renderer = named("tools")
    question = Message(role="user", content="rain?")
    [(tokens, weights)] = renderer.render_training([question, call(city="Zürich")], [WEATHER])
    prompt = renderer.render_prompt([question], [WEATHER])
    assert "get_weather" in renderer.tokenizer.decode(prompt)
    assert tokens[: len(prompt)] == prompt
    assert weights[: len(prompt)] == [0.0] * len(prompt)
    answer = renderer.parse(tokens[len(prompt) :])
    assert answer == call(city="Zürich")


def test_tool_schemas_that_the_template_drops_are_an_error(chatml):
    question = Message(role="user", content="rain?")
    with pytest.raises(DataError, match="does not show the tool 'get_weather'"):
        chatml.render_prompt([question], [WEATHER])
    with pytest.raises(DataError, match="does not show the tool 'get_weather'"):
        chatml.render_training([question, Message(role="assistant", content="no")], [WEATHER])


def test_a_tool_call_that_the_template_drops_is_an_error(chatml):
    with pytest.raises(DataError, match="its call of the tool 'get_weather'"):
        chatml.render_training([Message(role="user", content="rain?"), call(city="Bern")])


def test_a_message_that_the_template_drops_is_an_error():
    source = CHATML.replace(
        "{% for message in messages %}", "{% for message in messages if message.role != 'system' %}"
    )
    renderer = ChatTemplateRenderer(None, ChatTemplate(source, name="deaf.jinja"))
    for render in (renderer.render_prompt, renderer.render_training):
        with pytest.raises(DataError, match="leaves out a message of role 'system': 'be kind'") as caught:
            render(TWO_TURNS)
        assert caught.value.source == "deaf.jinja"


def test_a_tool_schema_without_a_name_is_an_error():
    with pytest.raises(DataError, match="a tool schema has no name"):
        named("tools").render_prompt([Message(role="user", content="x")], [{"type": "function"}])


def test_tool_output_that_a_template_quotes_counts_as_shown():
    source = CHATML.replace(
        "{{ message.content }}",
        "{{ message.content | tojson if message.role == 'tool' else message.content }}",
    )
    renderer = ChatTemplateRenderer(None, source)
    messages = [*talk(("user", "rain?")), Message(role="tool", content='{"a": "line\nline"}')]
    assert renderer.render_prompt(messages)


# --- templates that can't be trained on -------------------------------------------------------------------------


def test_an_unstable_template_is_refused_and_shows_where_it_parts():
    renderer = named("unstable")
    for attempt in (renderer.require_trainable, lambda: renderer.render_training(TWO_TURNS)):
        with pytest.raises(
            DataError, match=r"unstable\.jinja: the chat template is unstable.*<plan>"
        ) as caught:
            attempt()
        assert caught.value.exit_code == 4
    assert renderer.render_prompt(TWO_TURNS[:2])


def test_a_template_without_an_end_token_is_refused():
    renderer = ChatTemplateRenderer(
        None,
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
    )
    with pytest.raises(DataError, match="doesn't end an assistant turn with a token of its own"):
        renderer.require_trainable()
    with pytest.raises(DataError, match="doesn't end this assistant turn"):
        renderer.render_training(TWO_TURNS)
    assert renderer.stop_token_ids == renderer.tokenizer.eos_token_ids


def test_a_template_that_shows_no_prompt_would_train_everything_and_is_refused():
    renderer = ChatTemplateRenderer(
        None, "{% for m in messages if m.role == 'assistant' %}{{ m.content }}<|im_end|>{% endfor %}"
    )
    with pytest.raises(DataError, match="every token would be trained"):
        renderer.require_trainable()
    with pytest.raises(DataError, match="every token would be trained"):
        renderer.render_training(TWO_TURNS)


def test_data_with_the_templates_marks_inside_an_answer_is_refused(chatml):
    with pytest.raises(DataError, match="ends with the text of an end token"):
        chatml.render_training(talk(("user", "q"), ("assistant", "<|im_start|>assistant\nyes<|im_end|>\n")))


def test_a_renderer_that_can_be_trained_says_nothing(chatml):
    chatml.require_trainable()
    named("tools").require_trainable()
    named("thinking").require_trainable()


def test_the_templates_own_end_token_stops_sampling_before_the_tokenizers(bpe):
    tokenizer = TokenizersTokenizer(bpe, eos_token_ids=[0])
    assert ChatTemplateRenderer(tokenizer, CHATML).stop_token_ids == (2, 0)
    assert ChatTemplateRenderer().stop_token_ids == (257, 258)


def test_parsing_ends_at_the_first_stop_token():
    renderer = ChatTemplateRenderer()
    assert renderer.parse([104, 105, IM_END, IM_START, 120]).content == "hi"
    assert renderer.parse([]) == Message(role="assistant")


def test_the_fingerprint_follows_tokenizer_and_template(bpe):
    plain = ChatTemplateRenderer()
    assert plain.fingerprint == ChatTemplateRenderer().fingerprint
    assert plain.fingerprint != named("tools").fingerprint
    assert (
        plain.fingerprint
        != ChatTemplateRenderer(TokenizersTokenizer(bpe, eos_token_ids=[2]), CHATML).fingerprint
    )
