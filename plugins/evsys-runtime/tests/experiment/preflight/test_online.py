"""Backends that train elsewhere are asked before anything is spent."""

import asyncio

import pytest

from evsys import use_registry
from evsys.errors import BackendError, ConfigError
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.preflight.online import ask_backends

ELSEWHERE = """
from evsys.errors import ConfigError, Problem
from evsys_sdk import register_backend
from evsys_backend_mock import MockBackend

@register_backend("elsewhere")
class Elsewhere(MockBackend):
    async def preflight(self, model):
        if model.lora.rank == 5:
            raise ConfigError([Problem(path="$.model.name", message=f"the server has no {model.name}")])
        if model.lora.rank == 6:
            raise ZeroDivisionError("of its own")
"""


def asked(project, run_text, rank: str = "4", kind: str = "elsewhere", extra: str = "") -> int:
    project.code("plugins", ELSEWHERE)
    text = run_text(("kind: mock", f"kind: {kind}"), ("lora_rank: 4", f"lora_rank: {rank}"))
    plan = load_experiment(project.config("run:" + text, extra=extra))
    with use_registry(plan.registry):
        return asyncio.run(ask_backends(plan))


def test_a_backend_is_asked_once_however_often_its_run_is_repeated(project, run_text):
    assert asked(project, run_text, extra="n_repeats: 3\n") == 1


def test_a_backend_that_trains_here_is_asked_nothing(project, run_text):
    assert asked(project, run_text, kind="mock") == 0


def test_what_a_server_cannot_do_is_a_problem_of_the_file(project, run_text):
    with pytest.raises(ConfigError, match=r"\$\.run\.model\.name: the server has no evsys/tiny$"):
        asked(project, run_text, rank="5")


def test_a_backend_that_fails_to_look_is_named(project, run_text):
    with pytest.raises(BackendError, match="backend 'elsewhere' failed: ZeroDivisionError: of its own"):
        asked(project, run_text, rank="6")
