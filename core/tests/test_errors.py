import asyncio
import contextlib
import contextvars
import inspect
import pickle
import sys

import pytest

from evsys import boundary, errors
from evsys.errors import ConfigError, DataError, EvsysError, Problem, RunError, VerifierError

CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, EvsysError)]
PROBLEMS = (
    Problem(path="$.run.name", message="is missing", hint="add it", source="config.yaml", line=3, column=5),
    Problem(path="$.x", message="no"),
)


def made(cls: type[EvsysError]) -> EvsysError:
    if cls is ConfigError:
        return ConfigError(PROBLEMS)
    if cls is DataError:
        return DataError("bad row", source="a.jsonl", line=4, hint="fix it", rows=3)
    return cls("it broke", hint="mend it", plugin="evsys-x/y", run_id="a-s0")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_survives_pickling_whole(cls):
    error = made(cls)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__
    assert again.args == error.args


def test_every_error_class_is_public():
    assert {cls.__name__ for cls in CLASSES} | {"PLUGIN_FAILURES", "Problem", "boundary"} == set(
        errors.__all__
    )


@pytest.mark.parametrize(
    ("name", "builtin", "exit_code"),
    [
        ("ConfigError", ValueError, 2),
        ("PluginError", EvsysError, 3),
        ("PluginNotFoundError", LookupError, 3),
        ("PluginConflictError", EvsysError, 3),
        ("PluginLoadError", ImportError, 3),
        ("PluginIncompatibleError", EvsysError, 3),
        ("PluginContractError", TypeError, 3),
        ("DataError", ValueError, 4),
        ("BudgetExceeded", EvsysError, 5),
        ("RunError", EvsysError, 1),
        ("VerifierError", RunError, 1),
        ("StoreError", OSError, 1),
    ],
)
def test_the_tree_keeps_builtins_and_exit_codes(name, builtin, exit_code):
    cls = getattr(errors, name)
    assert issubclass(cls, builtin)
    assert cls.exit_code == exit_code


def test_a_problem_says_where_what_and_what_to_do():
    assert str(PROBLEMS[0]) == "config.yaml:3:5: $.run.name: is missing; add it"
    assert str(PROBLEMS[1]) == "$.x: no"
    assert str(ConfigError(PROBLEMS)) == f"{PROBLEMS[0]}\n{PROBLEMS[1]}"
    assert str(ConfigError("no arms", hint="add one")) == "no arms; add one"


def test_messages_end_with_the_hint_and_data_errors_begin_with_the_place():
    assert str(made(RunError)) == "it broke; mend it"
    assert str(made(DataError)) == "a.jsonl:4: bad row; fix it"


# --- boundaries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("run", errors.RunError),
        ("backend", errors.BackendError),
        ("algorithm", errors.AlgorithmError),
        ("rollout", errors.RolloutError),
        ("verifier", errors.VerifierError),
        ("evaluation", errors.EvaluationError),
        ("deploy", errors.DeployError),
        ("launcher", errors.LaunchError),
        ("data", errors.DataError),
        ("store", errors.StoreError),
        ("plugin", errors.PluginContractError),
    ],
)
def test_a_failure_is_attributed_to_the_boundary_it_crossed(name, cls):
    cause = KeyError("x")
    with pytest.raises(cls) as caught, boundary(name, "evsys-x/y", run_id="a-s0"):
        raise cause
    error = caught.value
    assert type(error) is cls
    assert str(error) == f"{name} 'evsys-x/y' failed: KeyError: 'x'"
    assert error.__cause__ is cause
    assert error.facts == {"plugin": "evsys-x/y", "run_id": "a-s0"}
    assert getattr(error, "boundary", name) == name


def test_a_failure_is_attributed_once():
    with pytest.raises(EvsysError) as caught, boundary("algorithm", "outer"), boundary("verifier", "inner"):
        raise ZeroDivisionError
    assert type(caught.value) is VerifierError
    assert str(caught.value) == "verifier 'inner' failed: ZeroDivisionError: no message"


def test_a_plugin_that_exits_has_failed_and_does_not_end_the_process():
    with pytest.raises(VerifierError) as caught, boundary("verifier", "inner"):
        sys.exit(0)
    assert str(caught.value) == "verifier 'inner' failed: SystemExit: 0"


def test_what_ends_the_process_crosses_boundaries_untouched():
    for stop in (KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
        with pytest.raises(stop), boundary("verifier", "inner"):
            raise stop


def test_no_failure_is_no_error():
    with boundary("verifier", "inner"):
        value = 1
    assert value == 1


def test_what_a_waiting_task_has_entered_can_be_seen_from_outside():
    async def waits():
        with boundary("backend", "outer"), boundary("rollout", "inner"):
            await asyncio.Event().wait()

    async def looks():
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        found = errors.entered(task.get_context())
        task.cancel()
        return found, errors.entered(contextvars.copy_context())

    assert asyncio.run(looks()) == (("rollout", "inner"), None)


def test_a_boundary_is_left_again_however_it_ends():
    with boundary("run", "outer"):
        with contextlib.suppress(VerifierError), boundary("verifier", "inner"):
            raise ValueError
        assert errors.entered(contextvars.copy_context()) == ("run", "outer")
    assert errors.entered(contextvars.copy_context()) is None


def test_a_stall_is_an_error_of_the_boundary_that_was_waited_at():
    error = errors.stalled_at("verifier", "slow", "nothing moved", run_id="a-s0", hint="wait longer")
    assert type(error) is VerifierError
    assert error.facts == {"plugin": "slow", "run_id": "a-s0", "stalled": True}
