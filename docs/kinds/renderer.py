"""A renderer turns conversations into token ids and loss weights, and sampled ids back into a message.

By default it is made from the model's chat template: [rendering](../rendering.md).

## In an experiment file

```yaml
run:
  model: {name: evsys/tiny, renderer: lines}
```
"""

from collections.abc import Mapping, Sequence
from typing import Any

from evsys import register_renderer
from evsys.protocols import Tokenizer
from evsys.types import Message
from evsys_runtime import ByteTokenizer


@register_renderer("lines")
class Lines:
    """A line for each message, after its role."""

    def __init__(self, tokenizer: Tokenizer | None = None) -> None:
        self.tokenizer = tokenizer or ByteTokenizer()  # evsys gives it that of the model

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return self.tokenizer.eos_token_ids

    def render_prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        return [token for message in messages for token in self._line(message)] + self._head("assistant")

    def render_training(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        train_on: str = "all_assistant",
    ) -> list[tuple[list[int], list[float]]]:
        last = max((n for n, message in enumerate(messages) if message.role == "assistant"), default=-1)
        tokens: list[int] = []
        weights: list[float] = []
        for number, message in enumerate(messages):
            line, head = self._line(message), self._head(message.role)
            said = message.role == "assistant" and (train_on == "all_assistant" or number == last)
            weight = 1.0 if message.weight is None else message.weight
            tokens += line
            weights += (
                [1.0] * len(line)
                if train_on == "all"
                else [0.0] * len(head) + [weight * said] * (len(line) - len(head))
            )
        return [(tokens, weights)]

    def parse(self, tokens: Sequence[int]) -> Message:
        said = [token for token in tokens if token not in self.stop_token_ids]
        return Message(role="assistant", content=self.tokenizer.decode(said))

    def _head(self, role: str) -> list[int]:
        return self.tokenizer.encode(f"\n{role}: ")

    def _line(self, message: Message) -> list[int]:
        end = [self.stop_token_ids[0]] if message.role == "assistant" else []
        return self._head(message.role) + self.tokenizer.encode(message.content) + end
