import asyncio
import errno
import logging
import os
import types
from typing import Any

import attrs
import pytest

import evsys
from evsys import HookManager
from evsys.errors import PluginContractError
from evsys.hookspecs import HOOKS


def emit(hooks: HookManager, hook: str, **arguments: Any) -> list[Any]:
    return asyncio.run(hooks.emit(hook, **arguments))


class Marked:
    def __init__(self) -> None:
        self.steps: list[int] = []

    @evsys.hookimpl
    def evsys_step_finished(self, step):
        self.steps.append(step)


class ByName:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def evsys_step_finished(self, ctx, metrics):
        await asyncio.sleep(0)
        self.heard.append((ctx, metrics))

    def evsys_run_started(self, **arguments):
        self.heard.append(sorted(arguments))


STEP = {"ctx": "ctx", "step": 3, "metrics": {"loss": 1.0}}


def test_marked_and_unmarked_methods_hear_a_hook_with_the_arguments_they_name():
    hooks, marked, by_name = HookManager(), Marked(), ByName()
    hooks.register(marked)
    hooks.register(by_name)
    assert emit(hooks, "evsys_step_finished", **STEP) == []
    assert marked.steps == [3]
    assert by_name.heard == [("ctx", {"loss": 1.0})]
    emit(hooks, "evsys_run_started", ctx="ctx", total_steps=5)
    assert by_name.heard[-1] == ["ctx", "total_steps"]
    assert hooks.warnings == []


def test_listeners_hear_in_the_order_of_registration_unless_they_ask_otherwise():
    heard: list[str] = []

    def listener(label, mark=lambda function: function):
        class Listener:
            @mark
            def evsys_run_started(self):
                heard.append(label)
                return label

        return Listener()

    hooks = HookManager()
    hooks.register(listener("last", evsys.hookimpl(trylast=True)))
    for label in ("a", "b", "c"):
        hooks.register(listener(label))
    hooks.register(listener("first", evsys.hookimpl(tryfirst=True)))
    assert emit(hooks, "evsys_run_started") == ["first", "a", "b", "c", "last"]
    assert heard == ["first", "a", "b", "c", "last"]


def test_keyword_only_arguments_and_defaults_are_filled():
    class Listener:
        def evsys_step_finished(self, *, step, metrics=None):
            return step, metrics

    hooks = HookManager()
    hooks.register(Listener())
    assert emit(hooks, "evsys_step_finished", **STEP) == [(3, {"loss": 1.0})]


class Raises:
    def evsys_step_finished(self, step):
        raise RuntimeError("disk full")

    async def evsys_run_started(self):
        raise ValueError("later")


def test_a_listener_that_raises_is_counted_and_logged_and_the_others_still_hear(caplog):
    hooks, before, after = HookManager(), Marked(), Marked()
    for listener in (before, Raises(), after):
        hooks.register(listener)
    with caplog.at_level(logging.WARNING, logger="evsys.hooks"):
        emit(hooks, "evsys_step_finished", **STEP)
    assert before.steps == after.steps == [3]
    assert hooks.warnings == ["listener 'Raises' failed in evsys_step_finished: RuntimeError: disk full"]
    assert caplog.records[0].exc_info[0] is RuntimeError
    emit(hooks, "evsys_step_finished", **STEP)
    emit(hooks, "evsys_run_started")
    assert hooks.warnings == [
        "listener 'Raises' failed in evsys_step_finished: RuntimeError: disk full (2 times)",
        "listener 'Raises' failed in evsys_run_started: ValueError: later",
    ]


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
@pytest.mark.parametrize("above", [True, False])
def test_a_listener_whose_output_is_gone_is_left_out_and_the_others_still_hear(caplog, number, above):
    class Prints:
        tried = 0

        def evsys_step_finished(self, ctx):
            self.tried += 1
            raise OSError(number, os.strerror(number))

        evsys_run_finished = evsys_step_finished

    parent, prints, other = HookManager(), Prints(), Marked()
    hooks = parent.child()
    (parent if above else hooks).register(prints)
    hooks.register(other)
    for _ in range(3):
        emit(hooks, "evsys_step_finished", **STEP)
    emit(hooks, "evsys_run_finished", ctx="ctx", result="result")
    assert prints.tried == 1
    assert other.steps == [3, 3, 3]
    (warning,) = hooks.warnings
    assert "listener 'Prints': the reader of its output has gone" in warning
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_listener_that_two_tasks_found_without_output_is_left_out_once():
    class Prints:
        async def evsys_step_finished(self, step):
            await asyncio.sleep(0)
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    hooks = HookManager()
    hooks.register(Prints())

    async def both():
        await asyncio.gather(*(hooks.emit("evsys_step_finished", **STEP) for _ in range(2)))

    asyncio.run(both())
    assert [warning.endswith("from then on (2 times)") for warning in hooks.warnings] == [True]


def test_a_log_of_the_run_is_told_of_each_failure_once(caplog):
    class Log:
        def __init__(self) -> None:
            self.events: list[tuple[str, Any]] = []

        def warning(self, event, **facts):
            self.events.append((event, facts["reason"]))

    log = Log()
    hooks = HookManager().child(log=log)
    hooks.register(Raises())
    for _ in range(2):
        emit(hooks, "evsys_step_finished", **STEP)
    text = "listener 'Raises' failed in evsys_step_finished: RuntimeError: disk full"
    assert log.events == [("listener.failed", text)]
    assert hooks.warnings == [f"{text} (2 times)"]
    assert caplog.records == []


def test_a_listener_that_exits_has_failed():
    class Exits:
        def evsys_run_started(self):
            raise SystemExit(0)

    hooks = HookManager()
    hooks.register(Exits())
    emit(hooks, "evsys_run_started")
    assert hooks.warnings == ["listener 'Exits' failed in evsys_run_started: SystemExit: 0"]


def test_cancelling_is_not_swallowed():
    class Cancels:
        async def evsys_run_started(self):
            raise asyncio.CancelledError

    hooks = HookManager()
    hooks.register(Cancels())

    async def main():
        with pytest.raises(asyncio.CancelledError):
            await hooks.emit("evsys_run_started")

    asyncio.run(main())
    assert hooks.warnings == []


def test_a_run_has_its_own_listeners_beside_those_of_the_experiment():
    hooks = HookManager()
    experiment, one, two = Marked(), Marked(), Marked()
    hooks.register(experiment)
    first, second = hooks.child(), hooks.child()
    first.register(one)
    second.register(two)
    first.register(Raises())
    emit(first, "evsys_step_finished", **STEP)
    assert (experiment.steps, one.steps, two.steps) == ([3], [3], [])
    assert (len(hooks.warnings), len(first.warnings), len(second.warnings)) == (0, 1, 0)
    emit(hooks, "evsys_step_finished", **STEP)
    assert (experiment.steps, one.steps, two.steps) == ([3, 3], [3], [])


def test_the_first_answer_is_taken_and_failures_are_passed_over():
    class Writes:
        def __init__(self, text):
            self.text = text

        def evsys_write_conclusion(self):
            if self.text == "raise":
                raise RuntimeError("no model")
            return self.text

    hooks = HookManager()
    for text in ("raise", None, "prose", "never asked"):
        hooks.register(Writes(text))
    answer = asyncio.run(hooks.first("evsys_write_conclusion", result=None, conclusion=None))
    assert answer == "prose"
    assert len(hooks.warnings) == 1
    assert asyncio.run(HookManager().first("evsys_write_conclusion", result=None, conclusion=None)) is None


def test_a_module_of_functions_can_listen():
    module = types.ModuleType("ambient")
    module.evsys_run_started = lambda ctx: f"heard {ctx}"
    hooks = HookManager()
    hooks.register(module)
    assert emit(hooks, "evsys_run_started", ctx="c", total_steps=None) == ["heard c"]


# --- what is refused --------------------------------------------------------------------------------------------


def refusal(plugin: Any, *, name: str | None = None, hooks: HookManager | None = None) -> str:
    hooks = hooks or HookManager()
    with pytest.raises(PluginContractError) as caught:
        hooks.register(plugin, name)
    return str(caught.value)


@pytest.mark.parametrize("mark", [evsys.hookimpl, lambda function: function], ids=["marked", "by name"])
def test_a_misspelt_hook_names_the_closest(mark):
    class Listener:
        @mark
        def evsys_step_finish(self, step): ...

    assert refusal(Listener()) == (
        "listener 'Listener': there is no hook 'evsys_step_finish'; did you mean 'evsys_step_finished'?"
    )
    assert "listener 'mine'" in refusal(Listener(), name="mine")


def test_a_marked_method_that_is_no_hook_at_all_lists_the_hooks():
    class Listener:
        @evsys.hookimpl
        def zzz(self): ...

    assert "there is no hook 'zzz'; hooks: evsys_experiment_started, " in refusal(Listener())


def test_an_argument_that_the_hook_does_not_have_is_named():
    class Listener:
        def evsys_step_finished(self, stpe): ...

    assert refusal(Listener()) == (
        "listener 'Listener': evsys_step_finished has no argument 'stpe'; did you mean 'step'?"
    )


def test_hook_wrappers_are_refused():
    class Listener:
        @evsys.hookimpl(wrapper=True)
        def evsys_step_finished(self, step):
            yield

    assert "evsys_step_finished can't be wrapped" in refusal(Listener())


def test_a_refused_listener_hears_nothing():
    class Listener:
        heard = 0

        def evsys_run_started(self):
            self.heard += 1

        def evsys_step_finish(self): ...

    hooks, listener = HookManager(), Listener()
    refusal(listener, hooks=hooks)
    emit(hooks, "evsys_run_started")
    assert listener.heard == 0


def test_one_object_can_not_listen_twice_but_two_of_a_class_can():
    hooks, listener = HookManager(), Marked()
    hooks.register(listener)
    assert "can't be registered" in refusal(listener, hooks=hooks)
    other = Marked()
    hooks.register(other)
    hooks.register(Marked(), "Marked")
    emit(hooks, "evsys_step_finished", **STEP)
    assert listener.steps == other.steps == [3]


def test_attributes_that_only_look_like_hooks_do_not_matter():
    @attrs.define
    class Listener:
        evsys_version: str = "1"
        evsys_table: dict = attrs.field(factory=dict)

    HookManager().register(Listener())


def test_emitting_an_unknown_hook_is_an_error_of_the_caller():
    with pytest.raises(
        PluginContractError, match="no hook 'evsys_step_finish'; did you mean 'evsys_step_finished'"
    ):
        emit(HookManager(), "evsys_step_finish")


@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_each_hook_can_be_heard_with_all_its_arguments(hook):
    import inspect

    names = list(inspect.signature(HOOKS[hook]).parameters)
    heard: list[dict] = []
    module = types.ModuleType("listener")
    namespace: dict[str, Any] = {"heard": heard}
    exec(f"def {hook}({', '.join(names)}): heard.append(locals())", namespace)
    setattr(module, hook, namespace[hook])
    hooks = HookManager()
    hooks.register(module)
    emit(hooks, hook, **dict.fromkeys(names, 1))
    assert heard == [dict.fromkeys(names, 1)]


# --- listeners that never come back --------------------------------------------------------------------------------


class Hangs:
    def __init__(self):
        self.heard = 0

    async def evsys_experiment_finished(self, result):
        self.heard += 1
        await asyncio.Event().wait()


def test_a_listener_that_does_not_come_back_is_left_out_and_the_others_are_told():
    told, hung, stuck = [], [], Hangs()

    class Listens:
        def evsys_experiment_finished(self, result):
            told.append(result)

    manager = HookManager(seconds=0.01).child(hung=hung.append)
    manager.register(stuck, "stuck")
    manager.register(Listens())

    async def twice():
        await manager.emit("evsys_experiment_finished", result=1)
        await manager.emit("evsys_experiment_finished", result=2)

    asyncio.run(twice())
    assert (told, stuck.heard) == ([1, 2], 1)
    assert hung == ["listener 'stuck' in evsys_experiment_finished"]
    [warning] = manager.warnings
    assert warning == (
        "listener 'stuck': evsys_experiment_finished didn't come back within 0.01 s, so it was left out from then on"
    )


def test_a_listener_that_raises_a_timeout_of_its_own_is_told_of_the_next_thing_too():
    class Slow:
        heard = 0

        async def evsys_experiment_finished(self, result):
            self.heard += 1
            raise TimeoutError("its service is slow")

    slow, manager = Slow(), HookManager(seconds=60)
    manager.register(slow, "slow")

    async def twice():
        await manager.emit("evsys_experiment_finished", result=1)
        await manager.emit("evsys_experiment_finished", result=2)

    asyncio.run(twice())
    assert slow.heard == 2
    assert manager.warnings == [
        "listener 'slow' failed in evsys_experiment_finished: TimeoutError: its service is slow (2 times)"
    ]


def test_a_manager_that_is_closed_tells_nobody_and_its_parent_goes_on():
    heard = []

    class Hears:
        def evsys_step_finished(self, step):
            heard.append(step)

    parent = HookManager()
    parent.register(Hears())
    child = parent.child()

    async def emits():
        for step, manager in enumerate((child, parent, child)):
            await manager.emit("evsys_step_finished", step=step)
            if step == 0:
                child.close()

    asyncio.run(emits())
    assert heard == [0, 1]
