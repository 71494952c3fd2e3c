"""Mistakes that authors make, each of which several checks meet, and one of them tells."""

import json

from pydantic import BaseModel


class JsonJudge:
    reward_range = (0.0, 1.0)

    def __call__(self, model_output, expected, params):
        return float(json.loads(model_output)["answer"] == expected)


class TwoArguments:
    reward_range = (0.0, 1.0)

    def __call__(self, model_output, expected):
        return 1.0


class ForgetsToReturn:
    reward_range = (0.0, 1.0)

    def __call__(self, model_output, expected, params):
        float(expected in model_output)


class SaysNoParams:
    class Config(BaseModel):
        old: str
        new: str

    def __init__(self, old, new):
        self.names = {old: new}

    def __call__(self, rows):
        return [{self.names.get(name, name): value for name, value in row.items()} for row in rows]


def no_rows(rows):
    for row in rows:
        row = dict(row)


class NotAwaited:
    def run(self, task, model, tools, ctx):
        return model.generate(task.instruction)


class NoSuchAttribute:
    async def run(self, task, model, tools, ctx):
        return task.prompt


class AlwaysEmpty:
    async def generate(self, messages, sampling, *, n=1, tools=()):
        return []


class NotAsync:
    def pull(self, ref):
        return [ref]
