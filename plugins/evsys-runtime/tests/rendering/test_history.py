import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from merging import END, RENDERER, MergingTokenizer, Splitting, split

from evsys.types import Completion, Message, SamplingParams, ToolCall
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_runtime.rendering.history import Conversation, HistoryRenderer
from evsys_runtime.rendering.policy_client import PolicyClient
from evsys_runtime.rendering.templates import CHATML
from evsys_runtime.rendering.tokenizers import TokenizersTokenizer

SAMPLING = SamplingParams(max_tokens=500)
TEMPLATES = Path(__file__).parent / "templates"
WORDS = st.text("helo wrd\n\u00e9\u20ac.", min_size=1, max_size=12)

# Thoughts are shown in the last answer alone, as Qwen3 and others do it.
FORGETTING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.reasoning_content and loop.last %}<think>\n{{ message.reasoning_content }}\n</think>\n{% endif %}"
    "{{ message.content | trim }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
REMEMBERING = FORGETTING.replace(" and loop.last", "")


def user(text):
    return Message(role="user", content=text)


def said(text, **fields):
    return Message(role="assistant", content=text, **fields)


def talk(sampler, *asked, renderer=RENDERER, tools=()):
    """Ask one after the other, and give back what was said; the answer of a text in `asked` is sent back as it came."""
    client = Conversation(PolicyClient(sampler, renderer))

    async def main():
        messages = []
        for part in asked:
            if callable(part):
                messages[-1] = part(messages[-1])
                continue
            messages.append(user(part))
            [completion] = await client.generate(messages, SAMPLING, tools=tools)
            messages.append(completion.message)
        return messages

    return asyncio.run(main())


def follows(sampler, turn):
    """What a prompt adds to the prompt and the answer before it; fails where it doesn't go on with them."""
    prompt, tokens, *_ = sampler.log[turn - 1]
    following = sampler.log[turn][0]
    assert following[: len(prompt) + len(tokens)] == prompt + tokens
    return RENDERER.tokenizer.decode(following[len(prompt) + len(tokens) :])


def test_reasoning_stays_in_the_history_of_a_template_without_a_place_for_it():
    sampler = Splitting("<think>\nhello\n</think>\n\n4", "abc")
    messages = talk(sampler, "hi", "go on")
    assert (messages[1].reasoning, messages[1].content) == ("hello", "4")
    assert follows(sampler, 1) == "\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"


def test_the_next_prompt_goes_on_from_the_tokens_that_were_sampled():
    sampler = Splitting("hello ab", "abc")
    talk(sampler, "hi", "go on", "and on")
    assert RENDERER.tokenizer.encode("hello ab") != split("hello ab")
    assert follows(sampler, 1) == "\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    assert follows(sampler, 2) == "\n<|im_start|>user\nand on<|im_end|>\n<|im_start|>assistant\n"


def test_a_renderer_alone_would_not():
    sampler = Splitting("hello ab", "abc")

    async def main():
        client = PolicyClient(sampler, RENDERER)
        await client.generate([user("hi")], SAMPLING)
        await client.generate([user("hi"), said("hello ab"), user("go on")], SAMPLING)

    asyncio.run(main())
    with pytest.raises(AssertionError):
        follows(sampler, 1)


def test_half_a_character_at_the_end_of_an_answer_stays_half_a_character():
    sampler = Splitting([*b"caf", 0xC3], "abc")
    messages = talk(sampler, "hi", "go on")
    assert messages[1].content == "caf\ufffd"
    assert follows(sampler, 1) == "<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"


def test_an_answer_is_found_by_what_it_says_with_white_space_around_it_or_without():
    sampler = Splitting("  ab \n", "abc")
    talk(sampler, "hi", lambda message: said(message.content.strip()), "go on")
    assert follows(sampler, 1).startswith("\n<|im_start|>user\ngo on")


def test_an_answer_that_the_agent_changed_is_what_the_agent_made_of_it():
    sampler = Splitting("hello ab", "abc")
    talk(sampler, "hi", lambda _: said("hello ab, you"), "go on")
    assert sampler.log[1][0] == RENDERER.render_prompt([user("hi"), said("hello ab, you"), user("go on")])


def test_calls_of_tools_come_back_with_ids_and_as_text():
    call = '<tool_call>{"name": "look", "arguments": {"at": "abc"}}</tool_call>'
    sampler = Splitting(f"{call}", "abc")
    tool = {"type": "function", "function": {"name": "look"}}

    def sent_back(message):
        [each] = message.tool_calls
        return said("", tool_calls=(ToolCall(name=each.name, arguments='{"at": "abc"}', id="call_1"),))

    talk(sampler, "hi", sent_back, "go on", tools=[tool])
    assert follows(sampler, 1).startswith("\n<|im_start|>user\ngo on")


def test_other_tools_than_before_make_another_prompt():
    sampler = Splitting("hello ab", "abc")
    client = Conversation(PolicyClient(sampler, RENDERER))
    tool = {"type": "function", "function": {"name": "look"}}

    async def main():
        await client.generate([user("hi")], SAMPLING)
        await client.generate([user("hi"), said("hello ab"), user("more")], SAMPLING, tools=[tool])

    asyncio.run(main())
    assert sampler.log[1][0] == RENDERER.render_prompt([user("hi"), said("hello ab"), user("more")], [tool])


@pytest.mark.parametrize(("template", "goes_on"), [(REMEMBERING, True), (FORGETTING, False)])
def test_a_template_that_drops_thoughts_from_the_history_is_right(template, goes_on):
    renderer = ChatTemplateRenderer(MergingTokenizer(), template)
    sampler = Splitting("<think>\nhello\n</think>\nab", "abc")
    messages = talk(sampler, "hi", lambda message: said(message.content), "go on", renderer=renderer)
    assert messages[1] == said("ab")  # as clients send it back
    prompt, tokens, *_ = sampler.log[0]
    assert (sampler.log[1][0][: len(prompt) + len(tokens)] == prompt + tokens) == goes_on
    if not goes_on:
        assert sampler.log[1][0] == renderer.render_prompt(messages[:3])


def test_the_text_of_an_end_token_inside_an_answer_ends_no_turn():
    sampler = Splitting("ab<|im_end|>cd", "abc")
    messages = talk(sampler, "hi", "go on")
    assert messages[1].content == "ab<|im_end|>cd"
    assert sampler.log[1][0] == RENDERER.render_prompt(messages[:3])


def test_several_answers_to_one_prompt_are_each_known():
    renderer = HistoryRenderer(RENDERER)
    prompt = renderer.render_prompt([user("hi")])
    for text in ("ab", "abc"):
        tokens = [*split(text), END]
        completion = Completion(
            message=said(text), finish_reason="stop", prompt_tokens=prompt, tokens=tokens, logprobs=[0.0]
        )
        renderer.answered(completion)
    for text in ("ab", "abc"):
        following = renderer.render_prompt([user("hi"), said(text), user("more")])
        assert following[: len(prompt) + len(text) + 1] == [*prompt, *split(text), END]


def test_what_was_never_rendered_here_is_let_be():
    renderer = HistoryRenderer(RENDERER)
    renderer.answered(Completion(message=said("ab"), finish_reason="stop"))
    renderer.answered(
        Completion(message=said("ab"), finish_reason="stop", prompt_tokens=[1], tokens=[2], logprobs=[0.0])
    )
    asked = [user("hi"), said("ab"), user("more")]
    assert renderer.render_prompt(asked) == RENDERER.render_prompt(asked)
    assert renderer.render_prompt([]) == RENDERER.render_prompt([])
    assert renderer.parse(split("ab")) == said("ab")
    assert renderer.render_training(asked[:2]) == RENDERER.render_training(asked[:2])


def test_a_long_conversation_goes_on_from_its_own_tokens_and_only_the_last_answers_are_kept():
    sampler = Splitting("ab")
    client = Conversation(PolicyClient(sampler, RENDERER))

    async def main():
        messages = []
        for number in range(40):
            messages.append(user(f"{number}"))
            [completion] = await client.generate(messages, SAMPLING)
            messages.append(completion.message)

    asyncio.run(main())
    for turn in range(1, 40):
        assert follows(sampler, turn).startswith("\n<|im_start|>user\n")
    assert len(client.history._said) == 16


class Chunked(Splitting):
    """Says texts in chunks that are tokenised one by one, and ends each or not."""

    def __init__(self, tokenizer, *answers):
        self.tokenizer = tokenizer
        end = tokenizer.encode("<|im_end|>")
        said = (
            [t for chunk in chunks for t in tokenizer.encode(chunk)] + end * ended
            for chunks, ended in answers
        )
        super().__init__(*said)

    async def sample(self, prompt, params, n=1):
        self.text = self.tokenizer.decode(prompt)
        return await super().sample(prompt, params, n)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    template=st.sampled_from(["chatml", "tools.jinja", "thinking.jinja"]),
    turns=st.lists(
        st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=4), st.booleans()), min_size=2, max_size=4
    ),
)
def test_a_prompt_says_what_the_template_shows_however_answers_were_split(bpe, template, turns):
    source = CHATML if template == "chatml" else (TEMPLATES / template).read_text(encoding="utf-8")
    tokenizer = TokenizersTokenizer(bpe, eos_token_ids=[bpe.token_to_id("<|im_end|>")])
    renderer = ChatTemplateRenderer(tokenizer, source)
    sampler = Chunked(tokenizer, *((chunks, ended) for _, chunks, ended in turns))
    client = Conversation(PolicyClient(sampler, renderer))

    async def main():
        messages = []
        for asked, _, _ in turns:
            messages.append(user(asked))
            [completion] = await client.generate(messages, SAMPLING)
            shown, plain = sampler.text, renderer.prompt_text(messages)
            assert shown.split() == plain.split()  # templates trim, and white space is the model's own
            messages.append(said(completion.message.content))

    asyncio.run(main())
    for (prompt, tokens, *_), (following, *_) in zip(sampler.log, sampler.log[1:], strict=False):
        assert following[: len(prompt) + len(tokens)] == prompt + tokens


@pytest.mark.parametrize("ended", [True, False])
def test_an_answer_that_the_tokenizer_would_join_to_its_prompt_goes_on_all_the_same(bpe, ended):
    tokenizer = TokenizersTokenizer(bpe, eos_token_ids=[bpe.token_to_id("<|im_end|>")])
    apart = tokenizer.encode("assistant\n") + tokenizer.encode("\n\nhello")
    assert tokenizer.encode("assistant\n\n\nhello") != apart
    sampler = Chunked(tokenizer, (["\n\nhello"], ended), (["hello"], True))
    talk(sampler, "hi", "go on", renderer=ChatTemplateRenderer(tokenizer, CHATML))
    prompt, tokens, *_ = sampler.log[0]
    assert sampler.log[1][0][: len(prompt) + len(tokens)] == prompt + tokens


def test_an_answer_to_no_messages_at_all_is_let_be():
    sampler = Splitting("ab")
    client = Conversation(PolicyClient(sampler, RENDERER))

    async def main():
        await client.generate([], SAMPLING)
        await client.generate([said("ab"), user("more")], SAMPLING)

    asyncio.run(main())
    assert sampler.log[1][0] == RENDERER.render_prompt([said("ab"), user("more")])
