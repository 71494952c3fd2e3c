"""The engine on chat tasks: the protocol of rollout engines, and the same results as the engine `direct`."""

import asyncio
import contextvars
import logging
import sys
import threading
from collections import Counter

import attrs
import pytest
from rollout_parts import Asking, Echo, chat_tasks, policy, run, timeless, until

from evsys.errors import RolloutError
from evsys.types import HarborTask, Message, NoScore, Rollout, RolloutLimits, Score, Usage
from evsys_rollouts_harbor import folders, trials
from evsys_rollouts_harbor.engine import HarborEngine
from evsys_std.engine import DirectEngine

WAVE = RolloutLimits(n_concurrent=4, wave=True)
ONCE = {"max_retries": 0}
QUICK = {"retry_wait_seconds": 0}


@pytest.mark.parametrize("limits", [RolloutLimits(n_concurrent=1), RolloutLimits(n_concurrent=10**9), WAVE])
@pytest.mark.parametrize(("count", "samples"), [(0, 3), (1, 1), (5, 3)])
def test_each_rollout_is_a_trial_counted_at_its_end(scratch, limits, count, samples):
    engine = HarborEngine()
    rollouts = run(engine, chat_tasks(count), policy(num_samples=samples), limits)
    found = Counter((rollout.task_id, rollout.sample_index) for rollout in rollouts)
    assert found == Counter((f"t{i}", s) for i in range(count) for s in range(samples))
    assert engine.trials_ended == count * samples
    assert all(rollout.score == Score(value=1.0) for rollout in rollouts)


@pytest.mark.parametrize("wave", [False, True])
def test_no_more_than_the_limit_act_at_once(scratch, wave):
    model = Echo(wait=3)
    run(HarborEngine(), chat_tasks(7), policy(model), RolloutLimits(n_concurrent=3, wave=wave))
    assert model.most <= 3


def test_the_agents_of_a_wave_begin_together_and_come_in_the_order_of_the_tasks(scratch):
    model = Echo()
    rollouts = run(HarborEngine(), chat_tasks(5), policy(model, num_samples=2), WAVE)
    assert [(r.task_id, r.sample_index) for r in rollouts] == [
        (f"t{i}", s) for i in range(5) for s in range(2)
    ]
    assert model.together == [4, 3, 2, 1] * 2 + [2, 1]


# --- the same as direct -----------------------------------------------------------------------------------------------------


class Troubled:
    """Asks the model, and then gets into the trouble that the task asks for."""

    async def run(self, task, model, tools, ctx):
        trouble = task.metadata.get("trouble")
        if trouble == "hang in silence":
            await asyncio.Event().wait()
        said = (await model.generate([Message(role="user", content=task.instruction)], ctx.sampling))[
            0
        ].message.content
        match trouble:
            case "crash":
                raise RuntimeError("the agent stumbled")
            case "exit":
                sys.exit(3)
            case "lose the network":
                raise ConnectionError("gone")
            case "hang":
                await asyncio.Event().wait()
            case "say a number":
                return 3
            case "tell of an error":
                return Rollout(
                    task_id=task.task_id, sample_index=ctx.sample_index, output=said, error="I gave up"
                )
        return Rollout(
            task_id=task.task_id,
            sample_index=ctx.sample_index,
            output=said,
            metadata={"seed": ctx.seed, "turns": ctx.max_turns, "system": ctx.system_prompt},
        )


async def troubled_verify(task: HarborTask, rollout: Rollout):
    match task.metadata.get("verdict"):
        case "raise":
            raise ZeroDivisionError("no verdict")
        case "none":
            return NoScore(reason="can't tell", boundary="verifier")
        case "parts":
            return Score(value=0.5, components={"form": 1.0}, metadata={"why": "half"})
    return Score(value=float(rollout.output == task.instruction))


TROUBLES = (
    "crash",
    "exit",
    "lose the network",
    "hang",
    "hang in silence",
    "say a number",
    "tell of an error",
)


def test_whatever_happens_the_rollouts_are_those_of_the_direct_engine(scratch):
    tasks = [
        HarborTask(task_id=t, instruction=f"say {t}", metadata={"trouble": t}) for t in (*TROUBLES, "nothing")
    ]
    tasks += [
        HarborTask(task_id=v, instruction=v, metadata={"verdict": v}) for v in ("raise", "none", "parts")
    ]
    limits = RolloutLimits(timeout_seconds=0.4, max_turns=4)
    same = {
        "agent": Troubled(),
        "verify": troubled_verify,
        "num_samples": 2,
        "system_prompt": "Be kind.",
        "version": 7,
    }
    direct = run(DirectEngine(), tasks, policy(**same), limits)
    harbor = run(HarborEngine(**ONCE), tasks, policy(**same), limits)
    assert timeless(harbor) == timeless(direct)


def test_seeds_are_those_of_the_direct_engine_whatever_the_concurrency(scratch):
    seeds = []
    for engine, limits in ((DirectEngine(), RolloutLimits()), (HarborEngine(), RolloutLimits(n_concurrent=2)), (HarborEngine(), WAVE)):  # fmt: skip
        model = Echo()
        run(engine, chat_tasks(6), policy(model, num_samples=2), limits)
        seeds.append(sorted(model.seeds))
    assert seeds[0] == seeds[1] == seeds[2]


def test_an_agent_that_goes_on_in_spite_of_its_deadline_is_left_behind(scratch, monkeypatch):
    from evsys_rollouts_harbor import configs, loops

    monkeypatch.setattr(configs, "BACKSTOP_SECONDS", 0.3)
    monkeypatch.setattr(loops, "GRACE_SECONDS", 0.1)

    class Stubborn:
        async def run(self, task, model, tools, ctx):
            for _ in range(60):
                try:
                    await asyncio.sleep(0.05)
                except asyncio.CancelledError:
                    continue
            return "at last"

    [rollout] = run(
        HarborEngine(), chat_tasks(1), policy(agent=Stubborn()), RolloutLimits(timeout_seconds=0.05)
    )
    assert rollout.timed_out
    assert isinstance(rollout.score, NoScore)


# --- retries ----------------------------------------------------------------------------------------------------------------


class Flaky:
    """Fails the first times that it meets a task."""

    def __init__(self, failure: Exception, times: int = 1) -> None:
        self.failure, self.times = failure, times
        self.met: Counter[tuple[str, int]] = Counter()

    async def run(self, task, model, tools, ctx):
        said = await Asking().run(task, model, tools, ctx)
        self.met[task.task_id, ctx.sample_index] += 1
        if self.met[task.task_id, ctx.sample_index] <= self.times:
            raise self.failure
        return said


def test_what_may_pass_is_tried_again_and_its_cost_is_kept(scratch):
    engine = HarborEngine(**QUICK)
    agent = Flaky(ConnectionError("gone"))
    rollouts = run(engine, chat_tasks(3), policy(agent=agent))
    assert [rollout.score for rollout in rollouts] == [Score(value=1.0)] * 3
    assert {rollout.metadata["attempts"] for rollout in rollouts} == {2}
    assert {rollout.usage.prompt_tokens for rollout in rollouts} == {6}
    assert {len(rollout.turns) for rollout in rollouts} == {1}
    assert engine.trials_ended == 6


@pytest.mark.parametrize("times", [1, 9])
def test_retries_end_as_those_of_the_direct_engine(scratch, times):
    engines = [engine(max_retries=2, **QUICK) for engine in (DirectEngine, HarborEngine)]
    agents = [Flaky(ConnectionError("gone"), times=times) for _ in engines]
    direct, harbor = (
        timeless(run(engine, chat_tasks(3), policy(agent=agent)))
        for engine, agent in zip(engines, agents, strict=True)
    )
    assert harbor == direct
    assert agents[0].met == agents[1].met


def test_after_the_last_retry_the_failure_is_the_outcome(scratch):
    agent = Flaky(ConnectionError("gone"), times=9)
    [rollout] = run(HarborEngine(max_retries=2, **QUICK), chat_tasks(1), policy(agent=agent))
    assert agent.met["t0", 0] == 3
    assert rollout.error == "ConnectionError: gone"
    assert rollout.score == NoScore(reason="ConnectionError: gone", boundary="rollout", retryable=True)


def test_what_will_not_pass_is_not_tried_again(scratch):
    agent = Flaky(RuntimeError("wrong"))
    [rollout] = run(HarborEngine(**QUICK), chat_tasks(1), policy(agent=agent))
    assert agent.met["t0", 0] == 1
    assert rollout.score == NoScore(reason="RuntimeError: wrong", boundary="rollout")


def test_a_verdict_that_may_pass_is_asked_for_again(scratch):
    asked = Counter()

    async def verify(task, rollout):
        asked[task.task_id] += 1
        if asked[task.task_id] == 1:
            return NoScore(reason="the judge is busy", retryable=True, boundary="verifier")
        return Score(value=0.25)

    [rollout] = run(HarborEngine(**QUICK), chat_tasks(1), policy(verify=verify))
    assert rollout.score == Score(value=0.25)


@pytest.mark.parametrize("patience", [0, 2])
def test_what_all_verdicts_took_is_counted_whichever_is_the_last(scratch, patience):
    asked = []

    async def verify(task, rollout):
        asked.append(rollout)
        usage = Usage(completion_tokens=10 ** len(asked), cost_usd=0.5)
        if len(asked) < 3:
            return NoScore(reason="the judge is busy", retryable=True, boundary="verifier", usage=usage)
        return Score(value=0.25, usage=usage)

    engine = HarborEngine(max_retries=patience, **QUICK)
    [rollout] = run(engine, chat_tasks(1), policy(verify=verify))
    assert len(asked) == patience + 1
    assert isinstance(rollout.score, NoScore) == (patience == 0)
    assert rollout.score.usage.completion_tokens == {0: 10, 2: 1110}[patience]
    assert rollout.score.usage.cost_usd == 0.5 * len(asked)


# --- where code runs ----------------------------------------------------------------------------------------------------------


def test_agents_models_and_verifiers_run_on_the_callers_loop_with_its_context_variables(scratch):
    color: contextvars.ContextVar[str] = contextvars.ContextVar("color", default="none")
    seen = []

    class Model(Echo):
        async def generate(self, messages, sampling, *, n=1, tools=()):
            seen.append((asyncio.get_running_loop(), color.get()))
            return await super().generate(messages, sampling, n=n, tools=tools)

    class Agent(Asking):
        async def run(self, task, model, tools, ctx):
            seen.append((asyncio.get_running_loop(), color.get()))
            return await super().run(task, model, tools, ctx)

    async def verify(task, rollout):
        seen.append((asyncio.get_running_loop(), color.get()))
        return Score(value=1.0)

    async def main():
        color.set("red")
        stream = HarborEngine().run(chat_tasks(2), policy(Model(), Agent(), verify), RolloutLimits())
        assert len([rollout async for rollout in stream]) == 2
        return asyncio.get_running_loop()

    loop = asyncio.run(main())
    assert set(seen) == {(loop, "red")}
    assert len(seen) == 6


def test_two_runs_at_once_do_not_meet(scratch):
    async def main():
        async def one(name):
            tasks = [HarborTask(task_id="same", instruction=name)]
            stream = HarborEngine().run(tasks, policy(num_samples=3), RolloutLimits())
            return [rollout.output async for rollout in stream]

        return await asyncio.gather(one("a"), one("b"))

    assert asyncio.run(main()) == [["a"] * 3, ["b"] * 3]


def test_an_agent_without_an_environment_has_none(scratch):
    class Agent:
        async def run(self, task, model, tools, ctx):
            return repr(ctx.environment)

    [rollout] = run(HarborEngine(), chat_tasks(1), policy(agent=Agent()))
    assert rollout.output == "None"


# --- its end ------------------------------------------------------------------------------------------------------------------


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "evsys-harbor"]


def test_closing_ends_agents_and_the_thread(scratch):
    class Slow:
        acting = 0

        async def run(self, task, model, tools, ctx):
            Slow.acting += 1
            try:
                await asyncio.Event().wait()
            finally:
                Slow.acting -= 1

    async def main():
        stream = HarborEngine().run(chat_tasks(20), policy(agent=Slow()), RolloutLimits(n_concurrent=8))
        asking = asyncio.create_task(anext(stream))
        await until(lambda: Slow.acting == 8)
        asking.cancel()
        await asyncio.wait([asking])
        await stream.aclose()
        return Slow.acting

    assert asyncio.run(main()) == 0
    assert threads() == []


def test_a_reader_that_stops_early_leaves_nothing_behind(scratch):
    async def main():
        stream = HarborEngine().run(chat_tasks(30), policy(), RolloutLimits(n_concurrent=4))
        async for _ in stream:
            break
        await stream.aclose()

    asyncio.run(main())
    assert threads() == []


def test_one_who_leaves_while_the_thread_is_starting_leaves_nothing_behind(scratch):
    async def main():
        stream = HarborEngine().run(chat_tasks(3), policy(), RolloutLimits())
        asking = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        await stream.aclose()

    asyncio.run(main())
    assert threads() == []


def test_an_environment_that_is_not_there_fails_the_run_and_leaves_nothing_behind(scratch):
    with pytest.raises(RolloutError, match="no environment is called 'moon'"):
        run(HarborEngine(), chat_tasks(1), policy(environment="moon"))
    assert threads() == []


def test_a_slow_reader_slows_the_engine_down(scratch):
    model = Echo()

    async def main():
        stream = HarborEngine().run(chat_tasks(40), policy(model), RolloutLimits(n_concurrent=2))
        await anext(stream)
        for _ in range(40):
            await asyncio.sleep(0.005)
        taken = model.calls
        await stream.aclose()
        return taken

    assert asyncio.run(main()) <= 6


# --- what Harbor leaves in a process -----------------------------------------------------------------------------------------


def test_the_table_of_loggers_stays_flat(scratch, monkeypatch):
    monkeypatch.setattr(trials, "_FORGET_EVERY", 20)
    most = []

    class Watching(Asking):
        async def run(self, task, model, tools, ctx):
            most.append(len(logging.Logger.manager.loggerDict))
            return await super().run(task, model, tools, ctx)

    run(HarborEngine(), chat_tasks(10), policy())
    before = len(logging.Logger.manager.loggerDict)
    run(HarborEngine(), chat_tasks(100), policy(agent=Watching()), RolloutLimits(n_concurrent=4))
    assert max(most) - before <= (20 + 4) * 8
    assert len(logging.Logger.manager.loggerDict) == before


def test_no_more_run_at_once_than_files_may_be_open(scratch, monkeypatch):
    monkeypatch.setattr(folders.resource, "getrlimit", lambda _which: (15, 15))
    model = Echo(wait=20)
    assert len(run(HarborEngine(), chat_tasks(12), policy(model), RolloutLimits(n_concurrent=12))) == 12
    assert model.most <= 5


def test_a_failing_hook_ends_nothing(scratch, monkeypatch, caplog):
    def fail():
        raise RuntimeError("a hook stumbled")

    engine = HarborEngine()
    monkeypatch.setattr(engine, "_count", fail)
    rollouts = run(engine, chat_tasks(3), policy())
    assert [rollout.score for rollout in rollouts] == [Score(value=1.0)] * 3
    assert "a hook stumbled" in caplog.text


def test_nobody_is_called_while_trials_run(scratch):
    asked = []
    watching = True

    def audit(event, arguments):
        if watching and event in {"socket.connect", "socket.getaddrinfo"}:
            asked.append((event, arguments))

    sys.addaudithook(audit)  # there is no way to take it out again
    run(HarborEngine(), chat_tasks(3), policy())
    watching = False
    assert asked == []


def test_params_that_make_no_sense_are_refused():
    with pytest.raises(RolloutError, match="no environment is called 'moon'.*docker"):
        HarborEngine().check_work(chat_tasks(1), attrs.make_class("Spec", {"kind": attrs.field(default="moon"), "params": attrs.field(factory=dict)})(), False)  # fmt: skip
