"""Folders of native Harbor tasks, run as they stand in a sandbox, and what each ending of a trial is worth."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from rollout_parts import policy, run, until
from sandboxes import needs_sandbox, running
from task_files import PASSES, native_task

from evsys.errors import RolloutError
from evsys.types import NoScore, RolloutLimits, Score, VerifierSpec
from evsys_rollouts_harbor.engine import HarborEngine
from evsys_runtime.config.model import PluginSpec
from evsys_runtime.data.benchmark import load_tasks

pytestmark = needs_sandbox

GRADES = (
    "grep -q hello /app/out.txt && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n"
)


class Shell:
    """Runs the command that the policy gives it, in the task's sandbox, then does what comes after."""

    def __init__(self, command: str, then=None) -> None:
        self.command, self.then = command, then
        self.told: list[str] = []

    async def run(self, task, model, tools, ctx):
        self.told.append(task.instruction)
        done = await ctx.environment.exec(self.command)
        if self.then is not None:
            await self.then()
        return done.stdout


async def unasked(task, rollout):
    raise AssertionError("a task's own tests judge it")


def outcome(folder: Path, agent, *, limits: RolloutLimits | None = None, environment=None, **engine):
    tasks, _ = load_tasks(folder)
    a_policy = policy(agent=agent, verify=unasked, environment=environment)
    [rollout] = run(HarborEngine(max_retries=0, **engine), tasks, a_policy, limits)
    return rollout


@pytest.mark.parametrize(("command", "reward"), [("echo hello > out.txt", 1.0), ("echo bye > out.txt", 0.0)])
def test_a_task_is_judged_by_its_own_tests(scratch, tmp_path, command, reward):
    native_task(tmp_path / "suite" / "greet", instruction="Say hello.", test=GRADES)
    agent = Shell(command)
    rollout = outcome(tmp_path / "suite", agent)
    assert (rollout.task_id, rollout.score, rollout.error) == ("greet", Score(value=reward), None)
    assert agent.told == ["Say hello."]


def test_a_task_may_be_judged_by_a_verifier_instead(scratch, tmp_path):
    native_task(tmp_path / "suite" / "greet", test=PASSES)
    [task], _ = load_tasks(
        [{"task_id": "g", "path": str(tmp_path / "suite" / "greet"), "verifier": {"name": "v"}}]
    )
    assert task.verifier == VerifierSpec(name="v")

    async def verify(task, rollout):
        return Score(value=float(len(rollout.output)))

    [rollout] = run(HarborEngine(), [task], policy(agent=Shell("printf abc"), verify=verify))
    assert rollout.score == Score(value=3.0)


def test_a_task_of_several_steps_is_one_trial_with_the_mean_of_their_rewards(scratch, tmp_path):
    steps = {"first": PASSES, "second": "echo 0.5 > /logs/verifier/reward.txt\n"}
    native_task(tmp_path / "suite" / "long", instruction="Go on.", steps=steps)
    agent, engine = Shell("echo step >> /app/log; cat /app/log"), HarborEngine()
    tasks, _ = load_tasks(tmp_path / "suite")
    [rollout] = run(engine, tasks, policy(agent=agent, verify=unasked))
    assert rollout.score == Score(value=0.75)
    assert rollout.output == "step\nstep\n"
    assert agent.told == ["Go on.", "Go on."]
    assert engine.trials_ended == 1


def test_a_crash_in_a_later_step_is_no_score(scratch, tmp_path):
    native_task(tmp_path / "suite" / "long", steps={"first": PASSES, "second": PASSES})

    class Twice(Shell):
        async def run(self, task, model, tools, ctx):
            if self.told:
                raise RuntimeError("tired")
            return await super().run(task, model, tools, ctx)

    rollout = outcome(tmp_path / "suite", Twice("true"))
    assert rollout.error == "RuntimeError: tired"
    assert rollout.score == NoScore(reason="RuntimeError: tired", boundary="rollout")


# --- endings ----------------------------------------------------------------------------------------------------------------


async def crash():
    raise RuntimeError("after the answer")


async def hang():
    await asyncio.Event().wait()


def test_a_crash_after_the_answer_is_no_score_though_the_tests_would_pass(scratch, tmp_path):
    native_task(tmp_path / "suite" / "greet", test=GRADES)
    rollout = outcome(tmp_path / "suite", Shell("echo hello > out.txt", crash))
    assert rollout.error == "RuntimeError: after the answer"
    assert rollout.score == NoScore(reason="RuntimeError: after the answer", boundary="rollout")


def test_out_of_time_after_the_work_is_done_is_judged_and_flagged(scratch, tmp_path):
    native_task(tmp_path / "suite" / "greet", test=GRADES)
    agent = Shell("echo hello > out.txt", hang)
    rollout = outcome(tmp_path / "suite", agent, limits=RolloutLimits(timeout_seconds=1))
    assert (rollout.score, rollout.timed_out, rollout.error) == (Score(value=1.0), True, None)


def test_a_reward_that_the_agent_wrote_itself_is_worth_nothing(scratch, tmp_path):
    native_task(tmp_path / "suite" / "greet", test="exit 1\n")
    forge = "echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json"
    rollout = outcome(tmp_path / "suite", Shell(forge))
    assert isinstance(rollout.score, NoScore)
    assert rollout.score.boundary == "verifier"
    assert rollout.error is None


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("echo nan > /logs/verifier/reward.txt\n", "Non-finite reward"),
        ("echo '{\"reward\": 1e999}' > /logs/verifier/reward.json\n", "Non-finite reward"),
        ("echo much > /logs/verifier/reward.txt\n", "VerifierOutputParseError"),
        ("exit 3\n", "RewardFileNotFoundError"),
        ('echo \'{"a": 1, "b": 0}\' > /logs/verifier/reward.json\n', "none is called 'reward'"),
    ],
)
def test_tests_that_give_no_usable_reward_are_no_score(scratch, tmp_path, test, said):
    native_task(tmp_path / "suite" / "greet", test=test)
    rollout = outcome(tmp_path / "suite", Shell("true"))
    assert rollout.score.boundary == "verifier"
    assert said in rollout.score.reason
    assert rollout.error is None


def test_named_rewards_beside_the_reward_are_its_components(scratch, tmp_path):
    native_task(
        tmp_path / "suite" / "greet",
        test='echo \'{"reward": 0.5, "style": 1}\' > /logs/verifier/reward.json\n',
    )
    rollout = outcome(tmp_path / "suite", Shell("true"))
    assert rollout.score == Score(value=0.5, components={"style": 1.0})


def test_a_sandbox_that_cannot_be_made_is_the_environments_failure(scratch, tmp_path, monkeypatch):
    from evsys_rollouts_harbor.bubblewrap import BwrapEnvironment

    async def refuse(self):
        raise RolloutError("no room")

    monkeypatch.setattr(BwrapEnvironment, "start", refuse)
    native_task(tmp_path / "suite" / "greet")
    rollout = outcome(tmp_path / "suite", Shell("true"))
    assert rollout.score == NoScore(reason="RolloutError: no room", boundary="environment")


def test_a_sandbox_that_cannot_be_removed_costs_no_score(scratch, tmp_path, monkeypatch):
    from evsys_rollouts_harbor.bubblewrap import BwrapEnvironment

    stop = BwrapEnvironment.stop

    async def refuse(self):
        await stop(self)
        raise OSError("busy")

    monkeypatch.setattr(BwrapEnvironment, "stop", refuse)
    native_task(tmp_path / "suite" / "greet", test=PASSES)
    rollout = outcome(tmp_path / "suite", Shell("true"))
    assert (rollout.score, rollout.error) == (Score(value=1.0), None)


# --- environments -------------------------------------------------------------------------------------------------------------


def test_what_a_dockerfile_copies_and_sets_is_there(scratch, tmp_path):
    folder = native_task(tmp_path / "suite" / "greet", test=PASSES)
    (folder / "environment").mkdir()
    (folder / "environment" / "data.txt").write_text("seven", encoding="utf-8")
    (folder / "environment" / "Dockerfile").write_text("FROM debian\nWORKDIR /place\nENV N=3\nCOPY data.txt .\n", encoding="utf-8")  # fmt: skip
    rollout = outcome(tmp_path / "suite", Shell("pwd; cat data.txt; echo $N"))
    assert rollout.output == "/place\nseven3\n"


def test_a_task_that_builds_an_image_is_refused_before_anything_runs(tmp_path):
    folder = native_task(tmp_path / "suite" / "greet")
    (folder / "environment").mkdir()
    (folder / "environment" / "Dockerfile").write_text("FROM debian\nRUN apt install x\n", encoding="utf-8")
    tasks, _ = load_tasks(tmp_path / "suite")
    with pytest.raises(RolloutError, match="Dockerfile:2: it has RUN apt install x; name an environment"):
        HarborEngine().check_work(tasks, None, False)
    HarborEngine().check_work(tasks, PluginSpec(kind="bwrap", params={"image": "ignore"}), False)


def test_a_task_that_harbor_cannot_read_is_named_before_anything_runs(tmp_path):
    native_task(tmp_path / "suite" / "greet", settings='[environment]\ncpus = "many"\n')
    tasks, _ = load_tasks(tmp_path / "suite")
    with pytest.raises(RolloutError, match=r"(?s)task 'greet': Harbor can't read it: .*cpus"):
        HarborEngine().check_work(tasks, None, False)


def test_a_task_without_a_network_gets_none(scratch, tmp_path):
    native_task(
        tmp_path / "suite" / "greet", test=PASSES, settings='[environment]\nnetwork_mode = "no-network"\n'
    )
    rollout = outcome(tmp_path / "suite", Shell("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' \\n'"))
    assert rollout.output == "lo"


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ("null", "can't run tasks that are folders"),
        ("moon", "no environment is called 'moon'; known: null, bwrap, Harbor's docker"),
        ("no.such:Place", "can't be loaded: ModuleNotFoundError"),
        ("pathlib:Path", "is not a Harbor environment"),
    ],
)
def test_an_environment_that_cannot_be_used_says_why(tmp_path, environment, said):
    native_task(tmp_path / "suite" / "greet")
    tasks, _ = load_tasks(tmp_path / "suite")
    with pytest.raises(RolloutError) as caught:
        HarborEngine().check_work(tasks, PluginSpec(kind=environment), False)
    assert said in str(caught.value)


def test_an_environment_by_its_import_path_is_used_with_its_params(scratch, tmp_path, monkeypatch):
    (tmp_path / "own_place.py").write_text(
        "from evsys_rollouts_harbor.places import Bubblewrap\n\n\nclass Mine(Bubblewrap):\n"
        "    def __init__(self, *args, colour, **kwargs):\n"
        "        super().__init__(*args, settings={'env': {'COLOUR': colour}}, **kwargs)\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    native_task(tmp_path / "suite" / "greet", test=PASSES)
    for kind in ("own_place:Mine", "own_place.Mine"):
        spec = PluginSpec(kind=kind, params={"colour": "red"})
        rollout = outcome(tmp_path / "suite", Shell("echo $COLOUR"), environment=spec)
        assert (rollout.output, rollout.error) == ("red\n", None)


# --- its end ------------------------------------------------------------------------------------------------------------------


def test_closing_the_engine_leaves_no_process(scratch, tmp_path):
    mark = f"3{uuid.uuid4().int % 10**9}"
    for name in ("a", "b", "c"):
        native_task(tmp_path / "suite" / name)
    tasks, _ = load_tasks(tmp_path / "suite")

    async def main():
        agent = Shell(f"setsid sleep {mark} & sleep {mark}")
        stream = HarborEngine().run(tasks, policy(agent=agent, verify=unasked), RolloutLimits())
        asking = asyncio.create_task(anext(stream))
        await until(lambda: sum(line.startswith("sleep") for line in running(f"sleep {mark}")) == 6)
        asking.cancel()
        await asyncio.wait([asking])
        await stream.aclose()

    asyncio.run(main())
    assert running(f"sleep {mark}") == []
    assert running(str(scratch)) == []


INTERRUPTED = """
import asyncio, sys
from rollout_parts import policy
from evsys.types import RolloutLimits
from evsys_rollouts_harbor.engine import HarborEngine
from evsys_runtime.data.benchmark import load_tasks


class Sleeper:
    async def run(self, task, model, tools, ctx):
        print("acting", flush=True)
        await ctx.environment.exec(f"setsid sleep {sys.argv[2]} & sleep {sys.argv[2]}")


async def main():
    tasks, _ = load_tasks(sys.argv[1])
    async for rollout in HarborEngine().run(tasks, policy(agent=Sleeper()), RolloutLimits()):
        print(rollout, flush=True)


asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_process_leaves_no_other(scratch, tmp_path, how):
    mark = f"3{uuid.uuid4().int % 10**9}"
    native_task(tmp_path / "suite" / "a")
    environment = {
        **os.environ,
        "TMPDIR": str(scratch),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "suite"), mark],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout.readline() == "acting\n"
    wait_until(lambda: sum(line.startswith("sleep") for line in running(f"sleep {mark}")) == 2)
    process.send_signal(how)
    said, complained = process.communicate(timeout=20)
    assert (said, "KeyboardInterrupt" in complained) == ("", how == signal.SIGINT)
    wait_until(lambda: running(f"sleep {mark}") == [])
    if how == signal.SIGKILL:  # nobody was left to remove what it had made
        shutil.rmtree(scratch)
        scratch.mkdir()


def wait_until(true, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
