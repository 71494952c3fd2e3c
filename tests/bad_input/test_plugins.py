"""Plugins that can't be loaded, break their contract, or try to leave: named, attributed, and the good ones go on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from lab import lines, tasks

TRANSFORM = "from evsys_sdk import register_transform\n\n@register_transform('odd')\nclass Odd:\n"
VERIFIER = "from evsys_sdk import register_verifier\n\n@register_verifier('odd')\ndef odd(model_output, expected, params):\n"
METRIC = (
    "from typing import ClassVar\nfrom evsys_sdk import register_metric\n\n@register_metric('odd')\nclass Odd:\n"
    "    name: ClassVar[str] = 'odd'\n"
)
CALLBACK = (
    "import asyncio\nfrom evsys_sdk import register_callback\n\n@register_callback('odd')\nclass Odd:\n"
)
IN_FRONT = ("[{kind: jsonl_to_chat}]", "[{kind: odd}, {kind: jsonl_to_chat}]")
LISTENS = ("run:", "callbacks: [{kind: odd}]\nrun:")


# --- the project's own code --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f(:\n", r"src/plugins\.py:1: the project's code can't be imported: SyntaxError"),
        ("\nimport torch_of_another_day\n", r"src/plugins\.py:2: .*ModuleNotFoundError.*; install what it needs: pip install torch_of_another_day"),
        ("raise RuntimeError('not today')\n", r"src/plugins\.py:1: .*RuntimeError: not today; correct it, or remove the file from src/"),
        ("import sys\nsys.exit(0)\n", r"src/plugins\.py:2: .*SystemExit: 0"),
        ("\x00", r"src\.plugins: .*null bytes"),
        ("from evsys_sdk import register_transform\n\n@register_transform\nclass T: ...\n", r"src/plugins\.py:3: .*write @register_transform\(\) with brackets"),
        (TRANSFORM + "    def __call__(self, rows): return rows\n\n@register_transform('odd')\nclass Other(Odd): ...\n", r"transform 'odd' is registered twice: src\.plugins:Odd and src\.plugins:Other"),
        ("import dataclasses\n" + TRANSFORM + "    @dataclasses.dataclass\n    class Config:\n        words: list = []\n", r"mutable default .* is not allowed: use default_factory"),
    ],
)  # fmt: skip
def test_project_code_that_can_not_be_imported_ends_with_3_and_its_line(lab, code, said):
    lab.code(code)
    for outcome in (lab.run(), lab.validate("--json")):
        outcome.refused(3, said)
    lab.nothing_was_written()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (TRANSFORM + "    def call(self, rows): return rows\n", r"transform project/odd has no '__call__', which its kind asks for; did you mean 'call'\?"),
        ("from evsys_sdk import register_transform\nregister_transform('odd')(5)\n", r"transform project/odd has no '__call__'"),
        (TRANSFORM + "    def __init__(self, **kw): raise RuntimeError('boo')\n    def __call__(self, rows): return rows\n", r"can't be made from nothing: RuntimeError: boo"),
        (TRANSFORM + "    def __init__(self, **kw): raise SystemExit\n    def __call__(self, rows): return rows\n", r"can't be made from nothing: SystemExit"),
        (TRANSFORM + "    class Config:\n        words = 5\n    def __call__(self, rows): return rows\n", r"Odd\.Config is not an attrs class, dataclass or pydantic model"),
        ("import attrs\n" + TRANSFORM + "    @attrs.define\n    class Config:\n        words: 'Nowhere' = 5\n    def __call__(self, rows): return rows\n", r"Odd\.Config\.words: 'Nowhere' in its annotation isn't defined"),
    ],
)  # fmt: skip
def test_a_plugin_that_lacks_what_its_kind_asks_for_is_refused_when_it_is_used(lab, code, said):
    lab.code(code)
    lab.validate().passed()
    lab.config(IN_FRONT)
    lab.run().refused(3, said)
    lab.nothing_was_written()


def test_a_default_list_of_a_config_is_not_shared_between_arms(lab):
    lab.code(
        "import attrs\n" + TRANSFORM + "    @attrs.define\n    class Config:\n        words: list[str] = []\n"
        "    def __init__(self, words):\n        words.append('x')\n        self.words = words\n"
        "    def __call__(self, rows):\n        assert self.words == ['x'], self.words\n        return rows\n"
    )
    lab.config(IN_FRONT)
    lab.run().passed()


def test_a_plugin_of_the_project_that_hides_an_installed_one_is_told_of(lab):
    lab.code(
        "from evsys_sdk import register_transform\n\n@register_transform('jsonl_to_chat')\nclass Mine:\n"
        "    def __call__(self, rows):\n        for row in rows:\n            yield {**row, 'messages': [{'role': 'user', "
        "'content': 'x'}, {'role': 'assistant', 'content': 'y'}]}\n"
    )
    outcome = lab.run()
    outcome.passed()
    assert (
        "warning: transform 'jsonl_to_chat' is the project's own and hides transform evsys-std/jsonl_to_chat"
        in outcome.out
    )


def test_what_a_plugin_prints_stays_out_of_the_json_document(lab):
    lab.code(
        "print('imported')\n" + CALLBACK + "    def evsys_step_finished(self, step): print('step', step)\n"
    )
    lab.config(LISTENS)
    outcome = lab.run("--json")
    outcome.passed()
    assert outcome.json["status"] == "completed"
    assert "imported" in outcome.err
    assert "step 4" in outcome.err


# --- transforms --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("return None", 3, r"transform 'odd' returned null, not rows"),
        ("return 'abc'", 3, r"transform 'odd' returned a string, not rows"),
        ("return {'a': 1}", 3, r"transform 'odd' returned an object, not rows"),
        ("for row in rows: yield 'x'", 3, r"transform 'odd' gave a string as row 0, not a mapping"),
        ("for row in rows: yield None", 3, r"transform 'odd' gave null as row 0, not a mapping"),
        ("return [1, 2]", 3, r"transform 'odd' gave a number as row 0"),
        ("return []", 4, r"transform 'odd' took no row and gave none"),
        ("for row in rows: yield {'x': row['nope']}", 4, r"transform 'odd' failed after taking row 0 \(train\.jsonl:1\): KeyError: 'nope' \(src/plugins\.py:6\)"),
        ("raise SystemExit(0)", 4, r"transform 'odd' failed before taking a row: SystemExit: 0 \(src/plugins\.py:6\)"),
        ("for row in rows: yield {**row, 'when': {1, 2}}", 4, r"row 0: column 'when' holds what JSON can't: a set"),
        ("for row in rows: yield {**row, 'score': float('nan')}", 4, r"row 0: column 'score' holds what JSON can't"),
        ("for row in rows: yield {**row, 'raw': b'x'}", 4, r"row 0: column 'raw' holds what JSON can't"),
    ],
)  # fmt: skip
def test_a_transform_that_gives_no_rows_is_named(lab, body, code, said):
    lab.code(TRANSFORM + f"    def __call__(self, rows):\n        {body}\n")
    lab.config(IN_FRONT)
    lab.run().refused(code, said)
    lab.nothing_is_half_written()


def test_an_async_transform_is_told_to_be_a_plain_one(lab):
    lab.code(TRANSFORM + "    async def __call__(self, rows): return rows\n")
    lab.config(IN_FRONT)
    lab.run().refused(3, r"returned a coroutine, not rows", r"define it with a plain `def`")


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_one_ctrl_c_ends_a_run_whose_transform_hangs(lab):
    lab.code(
        "from pathlib import Path\nfrom threading import Event\n"
        + TRANSFORM
        + "    def __call__(self, rows):\n"
        + "        if not any(Path('.evsys').glob('experiments/*')):  # the search for leaks before the run\n"
        + "            return list(rows)\n"
        + "        Path('waiting').touch()\n        Event().wait()\n"
    )
    lab.config(IN_FRONT)
    # A shell may start its jobs deaf to Ctrl-C; the run must hear it here.
    start = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from evsys_cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", start, "run", "config.yaml", "--quiet"]
    process = subprocess.Popen(command, cwd=lab.root, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (lab.root / "waiting").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[1].splitlines() == [
        f"Interrupted; cancelled, record: {lab.record()}",
        f"To resume: evsys resume {lab.record()}",
    ]
    assert process.returncode == 130
    assert lab.facts()["status"] == "cancelled"
    lab.nothing_is_half_written()


# --- verifiers and metrics: training is kept, the score is absent ------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("'yes'", "returned 'yes', not a number, Score or NoScore"),
        ("None", "returned None, not a number"),
        ("{}", "returned {}, not a number"),
        ("(x for x in [1.0])", "returned a generator, not a number"),
        ("float('nan')", "gave value nan, no finite number"),
        ("float('inf')", "gave value inf, no finite number"),
        ("10 ** 400", "not a number"),
        ("expected['gold']", "TypeError"),
        ("exit(0)", "SystemExit: 0"),
        ("(_ for _ in ()).throw(OSError('judge down'))", "OSError: judge down"),
    ],
)
def test_a_verifier_that_gives_no_number_is_an_absent_score_and_never_zero(lab, said, reason):
    lab.code(VERIFIER + f"    from sys import exit\n    return {said}\n")
    lab.write("tasks.jsonl", lines(tasks(verifier={"name": "odd", "expected": "a"})))
    outcome = lab.run("--json")
    result = outcome.json
    assert (outcome.code, result["status"], result["arms"][0]["status"]) == (1, "invalid", "completed")
    for evaluation in result["arms"][0]["evaluations"]:
        assert (evaluation["status"], evaluation["scored"], evaluation["no_score"]) == ("invalid", 0, 12)
        assert reason in evaluation["failure"]["message"]
        assert "12 of 12 rollouts have no score" in evaluation["failure"]["message"]
        assert evaluation["metrics"]["mean_reward"]["value"] is None
    lab.nothing_is_half_written()


def test_a_verifier_that_fails_now_and_then_is_left_out_of_the_mean_and_counted(lab):
    lab.code(VERIFIER + "    if params.get('breaks'):\n        raise ValueError('no gold')\n    return 1.0\n")
    broken = tasks(30, verifier={"name": "odd", "expected": "a"})
    broken[7]["verifier"] = {"name": "odd", "expected": "a", "params": {"breaks": True}}
    lab.write("tasks.jsonl", lines(broken))
    outcome = lab.run("--json")
    outcome.passed()
    for evaluation in outcome.json["arms"][0]["evaluations"]:
        assert (evaluation["scored"], evaluation["no_score"]) == (29, 1)
        assert evaluation["metrics"]["mean_reward"]["value"] == 1.0
        assert evaluation["metrics"]["mean_reward"]["excluded"] == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ValueError('no such day')", "evaluation 'odd' failed: ValueError: no such day"),
        ("return None", "it returned NoneType, not a number"),
        ("return '0.5'", "it returned str, not a number"),
        ("return float('nan')", "it gave nan, which is not a finite number"),
        ("raise SystemExit(0)", "evaluation 'odd' failed: SystemExit: 0"),
    ],
)
def test_a_metric_that_fails_leaves_the_others_and_the_training_alone(lab, body, reason):
    made_up = "if len(task_rewards) == 3: return 1.0"  # `validate` tries it on three tasks
    lab.code(METRIC + f"    def compute(self, task_rewards):\n        {made_up}\n        {body}\n")
    lab.config(("max_tokens: 4", "max_tokens: 4, metrics: [mean_reward, odd]"))
    outcome = lab.run("--json")
    result = outcome.json
    assert (outcome.code, result["status"], result["arms"][0]["status"]) == (1, "completed", "completed")
    for evaluation in result["arms"][0]["evaluations"]:
        assert reason in evaluation["failure"]["message"]
        assert evaluation["status"] == "completed"
        assert evaluation["metrics"]["odd"]["value"] is None
        assert reason.partition("failed: ")[2] in evaluation["metrics"]["odd"]["reason"]
        assert evaluation["metrics"]["mean_reward"]["value"] is not None


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("    pass\n", 3, r"metric project/odd has no 'compute' or 'compute_rollouts'"),
        ("    direction = 'up'\n    def compute(self, task_rewards): return 1.0\n", 2, r":4:\d+: .*metrics\[0\]: the metric 'odd' declares the direction 'up'"),
    ],
)  # fmt: skip
def test_a_metric_that_is_none_is_refused_before_training(lab, body, code, said):
    lab.code(METRIC + body)
    lab.config(("max_tokens: 4", "max_tokens: 4, metrics: [odd]"))
    lab.run().refused(code, said)
    lab.nothing_was_written()


# --- callbacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "warning"),
    [
        ("    def evsys_step_finished(self, step): raise ValueError('not today')\n", "listener 'odd' failed in evsys_step_finished: ValueError: not today (4 times)"),
        ("    def evsys_step_finished(self, step): raise SystemExit(0)\n", "listener 'odd' failed in evsys_step_finished: SystemExit: 0 (4 times)"),
        ("    async def evsys_run_started(self): raise ValueError('late')\n", "listener 'odd' failed in evsys_run_started: ValueError: late"),
        ("    def evsys_experiment_finished(self, result): raise ValueError('z')\n", None),
        ("    def evsys_write_conclusion(self, result): return 5\n", "evsys_write_conclusion gave int, not a string; it was left out"),
    ],
)  # fmt: skip
def test_a_listener_that_fails_is_counted_and_ends_nothing(lab, body, warning):
    lab.code(CALLBACK + body)
    lab.config(LISTENS)
    outcome = lab.run()
    outcome.passed()
    assert outcome.err == ""
    if warning is not None:
        assert f"warning: {warning}" in outcome.out
    assert lab.facts()["status"] == "completed"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    def evsys_step_finishd(self): ...\n", r"listener 'odd': there is no hook 'evsys_step_finishd'; did you mean 'evsys_step_finished'\?"),
        ("    def evsys_step_finished(self, stpe): ...\n", r"evsys_step_finished has no argument 'stpe'; did you mean 'step'\?"),
    ],
)  # fmt: skip
def test_a_misspelt_hook_is_an_error(lab, body, said):
    lab.code(CALLBACK + body)
    lab.config(LISTENS)
    for outcome in (lab.validate(), lab.run()):
        outcome.refused(3, said)
    lab.nothing_was_written()


def test_an_algorithm_whose_config_is_not_that_of_algorithms_is_told_what_it_lacks(lab):
    lab.code(
        "import attrs\n"
        "from evsys_sdk import register_algorithm\n"
        "from evsys_algo_sft import SFT\n\n"
        "@register_algorithm('own')\n"
        "class Own(SFT):\n"
        "    @attrs.frozen(kw_only=True)\n"
        "    class Config:\n"
        "        learning_rate: float = 1e-3\n"
    )
    lab.validate("--set", "run.algorithm.kind=own", "--set", "run.algorithm.params={}").refused(
        3, r"the Config of Own has no lora_rank, .*; derive it from TrainingParams"
    )


def test_a_listener_that_cancels_its_own_task_fails_the_arm_with_its_line(lab):
    lab.code(CALLBACK + "    async def evsys_step_finished(self, step): raise asyncio.CancelledError\n")
    lab.config(LISTENS)
    lab.run().refused(1, r"a plugin cancelled its own task unexpectedly \(src/plugins\.py:6\)")


# --- installed distributions -------------------------------------------------------------------------------------------


@pytest.fixture
def site(lab):
    """Installs distributions for processes of the test: `site(name, entry points, modules)`; gives their environment."""
    folder = lab.root / "site"

    def install(name: str, entry_points: str, **modules: str) -> dict[str, str]:
        info = f"site/{name.replace('-', '_')}-1.0.dist-info"
        lab.write(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lab.write(f"{info}/entry_points.txt", entry_points)
        for module, text in modules.items():
            lab.write(f"site/{module}.py", text)
        return {"PYTHONPATH": str(folder)}

    return install


def test_broken_distributions_are_listed_with_their_owner_and_stop_nobody_who_does_not_use_them(lab, site):
    site(
        "evsys-raises",
        "[evsys.metrics]\nraises = evsys_raises:M\n[evsys.plugins]\nlistens = evsys_raises\n",
        evsys_raises="raise RuntimeError('at import')\n",
    )
    site(
        "evsys-leaves",
        "[evsys.verifiers]\nleaves = evsys_leaves:v\n",
        evsys_leaves="import sys\nsys.exit(0)\n",
    )
    site("evsys-garbled", "[evsys.metrics\nno ini file")
    env = site("evsys-gone", "[evsys.transforms]\ngone = evsys_gone:T\n")

    listed = lab.process("list", "--broken", "--json", env=env)
    listed.refused(3)
    broken = {row["name"]: row for row in listed.json["plugins"]}
    assert set(broken) == {"raises", "listens", "leaves", "gone"}
    assert broken["raises"]["distribution"] == "evsys-raises"
    assert "RuntimeError: at import" in broken["raises"]["error"]
    assert "SystemExit: 0" in broken["leaves"]["error"]
    assert "its module 'evsys_gone' is gone; reinstall or uninstall evsys-gone" in broken["gone"]["error"]

    outcome = lab.process("run", "config.yaml", "--quiet", env=env)
    outcome.passed()
    assert "warning: a listener was left out: plugin evsys-raises/listens (1.0)" in outcome.out

    lab.config(("max_tokens: 4", "max_tokens: 4, metrics: [raises]"))
    lab.process("run", "config.yaml", env=env).refused(
        3, r"metric evsys-raises/raises \(1\.0\).*RuntimeError: at import"
    )


def test_one_name_of_two_distributions_is_an_error_with_both_spellings(lab, site):
    env = site(
        "evsys-other",
        "[evsys.algorithms]\nsft = evsys_other:A\n",
        evsys_other="class A:\n    async def train(self, ctx): ...\n",
    )
    outcome = lab.process("run", "config.yaml", env=env)
    outcome.refused(
        2,
        r":8:15: .*algorithm 'sft' is offered by evsys-other 1\.0 .*; write 'evsys-other/sft' or 'evsys-algo-sft/sft'",
    )
    lab.config(("kind: sft", "kind: evsys-algo-sft/sft"))
    lab.process("validate", "config.yaml", env=env).passed()


def test_an_unknown_plugin_says_what_is_close_for_each_kind(lab):
    for old, new, said in (
        ("kind: mock", "kind: mok", r"no backend is called 'mok'; did you mean 'mock'\?"),
        ("kind: sft", "kind: opd", r"algorithm 'opd' needs a teacher, and the run names none"),
        ("kind: sft", "kind: sft2", r"no algorithm is called 'sft2'; did you mean 'sft'\?"),
        (
            "kind: jsonl_to_chat",
            "kind: jsonl_to_chatt",
            r"no transform is called 'jsonl_to_chatt'; did you mean",
        ),
    ):
        lab.config((old, new))
        lab.run().refused(2, said)
    lab.nothing_was_written()
    assert re.search(r"unknown kind 'algorithms'", lab.evsys("list", "algorithms").err)
    assert lab.evsys("schema", "algorithm", "nope").code == 3


def test_the_traceback_of_a_plugin_is_on_file_though_the_screen_shows_one_line(lab):
    lab.code(
        "from evsys_sdk import SFT, register_algorithm\n\n@register_algorithm('odd')\nclass Odd(SFT):\n"
        "    async def build_batch(self, step_idx):\n        return self.helper()\n\n    def helper(self):\n        return {}['gone']\n"
    )
    lab.config(("kind: sft", "kind: odd"))
    outcome = lab.run()
    outcome.refused(1, r"algorithm 'odd' failed: KeyError: 'gone' \(src/plugins\.py:9\)")
    (log,) = lab.record().glob("runs/*/run.log.jsonl")
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert any("in helper" in event.get("traceback", "") for event in events)
