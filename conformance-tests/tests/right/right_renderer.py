"""A renderer that keeps its contract, made with core alone: bytes, and one id for each role and for the end."""

import json

from evsys.types import Message, ToolCall

ROLES = {"system": 256, "user": 257, "assistant": 258, "tool": 259}
END = 260


class Bytes:
    supports = frozenset({"tools"})
    stop_token_ids = (END,)

    def render_prompt(self, messages, tools=()):
        return [token for message in messages for token in self._message(message)] + [ROLES["assistant"]]

    def render_training(self, messages, tools=(), train_on="all_assistant"):
        tokens, weights = [], []
        for i, message in enumerate(messages):
            trained = message.role == "assistant" and (train_on != "last_assistant" or i == len(messages) - 1)
            own = self._message(message)
            tokens += own
            weights += [0.0] + [float(trained)] * (len(own) - 1)
        return [(tokens, weights)]

    def parse(self, tokens):
        text = bytes(token for token in tokens if token < 256).decode("utf-8", "replace")
        if text.startswith("call:"):
            name, arguments = json.loads(text.removeprefix("call:"))
            return Message(role="assistant", tool_calls=(ToolCall(name=name, arguments=arguments),))
        return Message(role="assistant", content=text)

    def _message(self, message):
        text = message.content
        for call in message.tool_calls:
            text += "call:" + json.dumps([call.name, dict(call.arguments)], ensure_ascii=False)
        return [ROLES[message.role], *text.encode(), END]
