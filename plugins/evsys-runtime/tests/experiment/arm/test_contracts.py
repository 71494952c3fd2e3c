"""What a backend is told when it prepares."""

import json
from pathlib import Path

import pytest

from evsys_runtime.experiment.arm.contracts import prepare_options

TELLS = """
from evsys_sdk import register_backend
from evsys_backend_mock import MockBackend

@register_backend("odd")
class Odd(MockBackend):
    async def prepare(self, model, run_dir, seed, restore=None, *, deterministic=None):
        client = await super().prepare(model, run_dir, seed, restore)
        client.facts = {"told": deterministic}
        return client
"""


@pytest.mark.parametrize(("extra", "expected"), [("", True), ("deterministic: false\n", False)])
def test_a_backend_with_a_parameter_for_it_is_told_whether_the_run_is_deterministic(
    project, run_text, extra, expected
):
    project.code("plugins", TELLS)
    experiment = project.experiment("run:" + run_text(("kind: mock", "kind: odd")), extra=extra)
    result = experiment.run()
    assert result.status == "completed", result
    [facts] = Path(result.directory).glob("runs/*/run.json")
    assert json.loads(facts.read_text("utf-8"))["backend"]["told"] is expected


@pytest.mark.parametrize(
    ("extra", "told", "recorded"),
    [
        ("", True, True),
        ("", False, False),
        ("deterministic: false\n", False, False),
        ("deterministic: false\n", True, False),
    ],
)
def test_the_record_says_deterministic_only_where_what_the_backend_made_is(
    project, run_text, extra, told, recorded
):
    project.code("plugins", TELLS.replace('"told": deterministic', f'"deterministic": {told}'))
    (arm,) = project.experiment("run:" + run_text(("kind: mock", "kind: odd")), extra=extra).run().arms
    facts = json.loads((Path(arm.run_dir) / "run.json").read_text(encoding="utf-8"))
    assert (facts["deterministic"], facts["backend"]["deterministic"]) == (recorded, told)


def test_a_backend_without_it_is_called_as_its_protocol_says():
    class Plain:
        async def prepare(self, model, run_dir, seed, restore=None): ...

    class Forwards:
        async def prepare(self, *args, **kwargs): ...

    class Native:
        prepare = staticmethod(max)

    class Tells:
        async def prepare(self, model, run_dir, seed, restore=None, *, deterministic=False): ...

    assert prepare_options(Plain(), deterministic=True) == {}
    assert prepare_options(Forwards(), deterministic=True) == {}
    assert prepare_options(Native(), deterministic=True) == {}
    assert prepare_options(Tells(), deterministic=True) == {"deterministic": True}


def test_a_backend_with_a_parameter_for_it_gets_the_log_of_the_run():
    class Listens:
        async def prepare(self, model, run_dir, seed, restore=None, *, log=None): ...

    log = object()
    assert prepare_options(Listens(), deterministic=True, log=log) == {"log": log}
    assert prepare_options(Listens(), deterministic=True) == {}
