"""Renderers with one fault each."""

import attrs

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
        return [
            (tokens, [1.0] * len(tokens)) for tokens, _ in super().render_training(messages, tools, train_on)
        ]


class ReadsSomethingElse(ChatTemplateRenderer):
    def parse(self, tokens):
        message = super().parse(tokens)
        return attrs.evolve(message, content=f"{message.content}!")


class NeverStops(ChatTemplateRenderer):
    def render_training(self, messages, tools=(), train_on="all_assistant"):
        return [
            (tokens, [*weights[:-1], 0.0])
            for tokens, weights in super().render_training(messages, tools, train_on)
        ]
