"""Small trainings compared: what agrees, what differs, and what is remembered of a server."""

import asyncio
import datetime as dt
import json

import attrs
import pytest
from click.testing import CliRunner

from evsys import Registry, use_registry
from evsys.errors import BackendError
from evsys.types import LoraSpec, ModelSpec
from evsys_backend_tinker import client_version, parity, probes
from evsys_backend_tinker.commands import backend
from evsys_backend_tinker.trial import STEPS, Trial, try_backend

MODEL = ModelSpec(name="evsys/tiny", lora=LoraSpec(rank=4))


def make():
    return Registry().build("backend", "mock")


@pytest.fixture(scope="module")
def trial() -> Trial:
    return asyncio.run(try_backend(make, MODEL))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVSYS_CACHE", str(tmp_path / "cache"))


def odd(findings) -> dict[str, str]:
    return {one.what: one.outcome for one in findings if one.outcome != "ok"}


def test_a_backend_that_does_all_it_should_agrees_with_itself_and_with_its_twin(trial: Trial):
    assert len(trial.losses) == len(trial.trained) == STEPS
    assert odd(parity.by_itself(trial, 1e-5)) == {}
    assert odd(parity.beside(trial, asyncio.run(try_backend(make, MODEL)), 0.0)) == {}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            lambda t: {"sampler": [value + 0.1 for value in t.sampler]},
            "sampler and trainer give the same logprobs",
        ),
        (
            lambda t: {"restored": [[v - 0.1 for v in t.restored[0]], t.restored[1]]},
            "a state restores the weights",
        ),
        (lambda t: {"restored": [t.restored[0], t.cold]}, "a state restores the optimiser"),
        (lambda t: {"repeats": False}, "a seed repeats a sample"),
        (lambda t: {"losses": list(reversed(t.losses))}, "training lowers the loss"),
        (lambda t: {"own_losses": {**t.own_losses, "ppo": (1.0, 2.0)}}, "loss ppo"),
        (lambda t: {"own_losses": {**t.own_losses, "ppo": (float("nan"), 2.0)}}, "loss ppo"),
    ],
)
def test_each_thing_that_can_be_wrong_is_found_by_its_name(trial: Trial, change, found: str):
    assert odd(parity.by_itself(attrs.evolve(trial, **change(trial)), 1e-5)) == {found: "differs"}


def test_what_a_backend_refuses_is_lacking_and_no_difference(trial: Trial):
    without = attrs.evolve(
        trial,
        prompt="no logprobs",
        own_losses={**trial.own_losses, "cispo": None},
        refused={"cispo": "unknown loss"},
    )
    found = list(parity.by_itself(without, 1e-5))
    assert odd(found) == {"logprobs of a prompt": "lacks", "loss cispo": "lacks"}
    assert [one.note for one in found if one.outcome == "lacks"] == ["no logprobs", "unknown loss"]


def test_another_model_differs_from_the_first_logprob_on(trial: Trial):
    other = asyncio.run(try_backend(make, attrs.evolve(MODEL, name="another/model")))
    assert odd(parity.beside(trial, other, 0.02))["untrained logprobs"] == "differs"
    shorter = attrs.evolve(trial, untrained=trial.untrained[:-1])
    [note] = [one.note for one in parity.beside(trial, shorter, 0.02) if one.outcome != "ok"]
    assert "same tokenizer" in note


def test_a_backend_that_fails_is_said_and_torn_down():
    ended = []

    class Failing:
        async def prepare(self, *_):
            raise BackendError("no room")

        async def teardown(self, client) -> None:
            ended.append(client)

    with pytest.raises(BackendError, match="no room"):
        asyncio.run(try_backend(Failing, MODEL))
    assert ended == [None]


def test_what_a_server_lacks_is_remembered_for_a_month():
    now = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    probes.keep("http://one.example", ["loss_fns:cispo"], now=now)
    assert probes.lacking("http://one.example", now=now + dt.timedelta(days=29)) == {"loss_fns:cispo"}
    assert probes.lacking("http://one.example", now=now + dt.timedelta(days=31)) == frozenset()
    assert probes.lacking("http://other.example", now=now) == frozenset()


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "{}", '{"format": 1, "probed": "yesterday"}'])
def test_a_damaged_note_is_none(text: str):
    path = probes.keep("http://one.example", ["loss_fns:cispo"])
    path.write_text(text, encoding="utf-8")
    assert probes.lacking("http://one.example") == frozenset()


def test_the_command_prints_what_it_found():
    with use_registry(Registry()):
        result = CliRunner().invoke(backend, ["probe", "mock", "--beside", "mock", "--json"])
    tree = json.loads(result.stdout)
    assert result.exit_code == 0
    assert tree["same"] is True
    assert {one["outcome"] for part in tree["findings"].values() for one in part} == {"ok"}
    assert list(tree["findings"]) == ["mock", "mock beside mock"]


def test_the_command_ends_with_1_where_something_differs():
    with use_registry(Registry()):
        result = CliRunner().invoke(
            backend, ["probe", "mock", "--beside", "local", "--beside-param", "workers=1"]
        )
    assert result.exit_code == 1
    assert "differs  untrained logprobs" in result.stdout


def test_a_param_without_a_value_is_refused():
    result = CliRunner().invoke(backend, ["probe", "mock", "--param", "base_url"])
    assert result.exit_code == 2
    assert "isn't NAME=VALUE" in result.output


def test_a_probe_forgets_what_an_earlier_one_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_version, "version", lambda _name: "0.30.4")
    probes.keep("http://127.0.0.1:9", ["loss_fns:cispo"])
    with use_registry(Registry()):
        result = CliRunner().invoke(backend, ["probe", "tinker", "--param", "base_url=http://127.0.0.1:9"])
    assert result.exit_code != 0  # nothing listens there
    assert probes.lacking("http://127.0.0.1:9") == frozenset()
