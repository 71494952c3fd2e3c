"""A tokenizer that merges, and a sampler that doesn't: what it says splits in another way when it is tokenised again."""

import asyncio

from evsys.types import SampledSequence, SampleResult
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_runtime.rendering.tokenizers import ByteTokenizer

END = 257
MERGES = {300: "ab", 301: "abc", 302: "é", 303: "hello", 304: ' "', 305: "é!"}


class MergingTokenizer(ByteTokenizer):
    """Bytes, and some longer texts that `encode` always takes whole, the longest first."""

    vocab_size = 306
    fingerprint = "merging"

    def encode(self, text):
        merged, rest = [], text
        while rest:
            token, said = max(
                ((token, said) for token, said in MERGES.items() if rest.startswith(said)),
                key=lambda item: len(item[1]),
                default=(None, ""),
            )
            if token is None:
                special = next((s for s in self.special_ids if rest.startswith(s)), rest[0])
                merged.extend(super().encode(special))
                rest = rest[len(special) :]
            else:
                merged.append(token)
                rest = rest[len(said) :]
        return merged

    def decode(self, tokens):
        whole = []
        for token in tokens:
            whole.extend(MERGES[token].encode() if token in MERGES else [token])
        return super().decode(whole)


# Plain ChatML that shows tools and knows calls of them.
TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
RENDERER = ChatTemplateRenderer(MergingTokenizer(), TEMPLATE)


def split(text):
    """A text in bytes, which is never how the tokenizer splits what it has a token for."""
    return list(text.encode())


class Splitting:
    """A sampling client that says one thing after the other, in bytes, and goes on with the last; and keeps a log.

    An answer is a string, which is ended, or a list of tokens, which is taken as it is. One function in the place of all answers
    is given the text of the prompt and the seed.
    """

    def __init__(self, *answers, version=0, log=None):
        self.answers = answers
        self.version = version
        self.log = [] if log is None else log

    async def sample(self, prompt, params, n=1):
        await asyncio.sleep(0)
        sequences = []
        for _ in range(n):
            said = self.answers[min(len(self.log), len(self.answers) - 1)]
            said = said(RENDERER.tokenizer.decode(prompt), params.seed) if callable(said) else said
            tokens = [*split(said), END] if isinstance(said, str) else list(said)
            tokens = tokens[: params.max_tokens]
            # Fractions that float32 holds exactly, which is all that goes over a wire.
            logprobs = [-(len(self.log) * 128 + place + 1) / 1024 for place in range(len(tokens))]
            self.log.append((list(prompt), tokens, logprobs, params))
            finish = "stop" if tokens[-1] == END else "length"
            sequences.append(SampledSequence(tokens=tokens, logprobs=logprobs, finish_reason=finish))
        return SampleResult(sequences=sequences)

    async def compute_logprobs(self, tokens):
        raise NotImplementedError

    async def close(self):
        pass


def sampled_in(trajectories):
    """(token, logprob) of all that trajectories train, by turn."""
    found = {}
    for one in trajectories:
        for span in one.spans:
            place = slice(span.start, span.end)
            found[span.turn] = (one.tokens[place].tolist(), one.logprobs[place].tolist())
    return [found[turn] for turn in sorted(found)]
