"""Renderers with one fault each."""

import attrs
from right_renderer import Bytes

from evsys_runtime.rendering.chat import ChatTemplateRenderer


class FloatTokens(ChatTemplateRenderer):
    def render_prompt(self, messages, tools=()):
        return [float(token) for token in super().render_prompt(messages, tools)]


class OneWeightTooMany(ChatTemplateRenderer):
    def render_training(self, messages, tools=(), train_on="all_assistant"):
        return [
            (tokens, [*weights, 0.0])
            for tokens, weights in super().render_training(messages, tools, train_on)
        ]


class AnotherPrompt(ChatTemplateRenderer):
    def render_prompt(self, messages, tools=()):
        return [*super().render_prompt(messages, tools)[:-1], 0]


class TrainsThePrompt(ChatTemplateRenderer):
    def render_training(self, messages, tools=(), train_on="all_assistant"):
        found = super().render_training(messages, tools, train_on)
        if train_on == "all_assistant":
            return found
        return [([*tokens], [1.0, *weights[1:]]) for tokens, weights in found]


class ReadsSomethingElse(ChatTemplateRenderer):
    def parse(self, tokens):
        message = super().parse(tokens)
        return attrs.evolve(message, content=f"{message.content}!")


class NeverStops(ChatTemplateRenderer):
    def render_training(self, messages, tools=(), train_on="all_assistant"):
        stops = self.stop_token_ids
        return [
            (tokens, [0.0 if t in stops else w for t, w in zip(tokens, weights, strict=True)])
            for tokens, weights in super().render_training(messages, tools, train_on)
        ]


class LastAnswerOnly(ChatTemplateRenderer):
    def render_training(self, messages, tools=(), train_on="all_assistant"):
        return super().render_training(messages, tools, "last_assistant")


class ForgetsToolCalls(Bytes):
    def parse(self, tokens):
        return attrs.evolve(super().parse(tokens), tool_calls=())


class WeightsOneEarly(ChatTemplateRenderer):
    def render_training(self, messages, tools=(), train_on="all_assistant"):
        found = super().render_training(messages, tools, train_on)
        return [(tokens, [*weights[1:], 0.0]) for tokens, weights in found]
