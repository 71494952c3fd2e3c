import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import attrs
import pytest
from task_files import cached, task, write_tasks

from evsys import Registry
from evsys.errors import ConfigError, DataError, PluginContractError, PluginLoadError
from evsys_runtime.config import arms as arms_module
from evsys_runtime.config.later import later_names
from evsys_runtime.config.validate import load_experiment

HEAD = "version: 1\nname: x\n"
RUN = """\
run:
  data: {path: data/train.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: sft}
  backend: {kind: mock}
"""
BASE = RUN.replace("run:", "base_run:", 1)


def run(**changes: str) -> str:
    """A run whose lines are replaced, or that gets further ones."""
    lines = {
        "data": "{path: data/train.jsonl}",
        "model": "{name: evsys/tiny}",
        "algorithm": "{kind: sft}",
        "backend": "{kind: mock}",
    }
    return (
        HEAD
        + "run:\n"
        + "".join(f"  {key}: {value}\n" for key, value in {**lines, **changes}.items() if value)
    )


def only(problems: list[str]) -> str:
    assert len(problems) == 1, problems
    return problems[0]


# --- what a good file gives --------------------------------------------------------------------------------------------


def test_a_small_file_becomes_a_plan(load, project: Path, registry: Registry):
    plan = load(HEAD + RUN)
    (arm,) = plan.arms
    assert (arm.name, arm.repeat, arm.seed_override, arm.deterministic) == ("run", 0, None, True)
    assert arm.run.algorithm.kind == "sft"
    assert arm.tree["model"] == {"name": "evsys/tiny"}
    assert plan.experiment.run == arm.run
    assert plan.project_root == project
    assert plan.registry is registry
    assert plan.warnings == ()
    assert plan.success is None


def test_version_may_be_left_out_and_is_checked(load, problems):
    assert load("name: x\n" + RUN).experiment.version == 1
    assert (
        only(problems("version: 2\nname: x\n" + RUN))
        == "exp.yaml:1:1: $.version: expected 1, got 2; this evsys reads version 1"
    )


def test_repeats_come_whole_set_by_whole_set(load):
    plan = load(HEAD + BASE + "matrix: {axes: {algorithm.params.lora_rank: [1, 2]}}\nn_repeats: 3\n")
    assert [(arm.name, arm.repeat) for arm in plan.arms] == [
        (f"lora_rank-{rank}", repeat) for repeat in range(3) for rank in (1, 2)
    ]
    assert len({arm.digest for arm in plan.arms}) == 2
    assert plan.arms[0].run is plan.arms[2].run


def test_a_seed_of_a_run_takes_the_place_of_the_base_seed(load):
    plan = load(
        HEAD + "runs:\n" + "".join(f"  - {json.dumps({**_tree(), 'seed': seed})}\n" for seed in (3, 4))
    )
    assert [arm.seed_override for arm in plan.arms] == [3, 4]
    assert plan.experiment.runs == tuple(arm.run for arm in plan.arms)


def _tree() -> dict:
    return {
        "data": {"path": "data/train.jsonl"},
        "model": {"name": "evsys/tiny"},
        "algorithm": {"kind": "sft"},
        "backend": {"kind": "mock"},
    }


def test_axes_may_give_what_the_base_run_lacks(load):
    plan = load(
        HEAD
        + BASE.replace("  algorithm: {kind: sft}\n", "")
        + "matrix:\n  axes: {run.algorithm.kind: [sft, reinforce]}\n"
    )
    assert [arm.run.algorithm.kind for arm in plan.arms] == ["sft", "reinforce"]
    assert plan.experiment.matrix.axes == {"run.algorithm.kind": ("sft", "reinforce")}
    assert plan.experiment.base_run["model"] == {"name": "evsys/tiny"}


def test_determinism_is_what_the_file_says_else_what_the_backend_promises(load, problems):
    assert load(run(backend="{kind: remote}")).arms[0].deterministic is False
    assert load(HEAD + "deterministic: false\n" + RUN).arms[0].deterministic is False
    text = HEAD + "deterministic: true\n" + RUN.replace("mock", "remote")
    assert only(problems(text)) == (
        "exp.yaml:3:1: $.deterministic: backend 'remote' can't promise it; leave it out, or use another backend"
    )


def test_overrides_are_applied_and_kept(load, problems):
    plan = load(HEAD + RUN, "run.algorithm.params.learning_rate=2e-5", "n_repeats=2")
    assert plan.arms[1].run.algorithm.params == {"learning_rate": 2e-5}
    assert plan.overrides == ("run.algorithm.params.learning_rate=2e-5", "n_repeats=2")
    assert only(problems(HEAD + RUN, "run.algorithm.params.learning_rte=2e-5")) == (
        "--set run.algorithm.params.learning_rte: $.run.algorithm.params.learning_rte: "
        "unknown key 'learning_rte'; did you mean 'learning_rate'?"
    )


# --- all problems at once ----------------------------------------------------------------------------------------------


def test_every_problem_is_reported_at_once_in_the_order_of_the_file(problems):
    found = problems(
        "version: 1\n"
        "nme: x\n"
        "n_repeats: 0\n"
        "metadata: {hypothess: a, hypothesis: 3, benchmark: [{path: data/val.jsonl, splitt: val}, {path: data/vl.jsonl}]}\n"
        "run:\n"
        "  data: {path: data/trian.jsonl, transforms: [{kind: jsonl_to_cht}]}\n"
        "  model: {name: evsys/tiny, name: other}\n"
        "  algorithm: {kind: sft, params: {learning_rate: abc, lora_rank: true}}\n"
        "  backend: mock\n"
        "  seed: -1\n"
        "  sed: 1\n"
        "callbacks: [{kind: local_loger}]\n"
    )
    assert found == [
        "exp.yaml:2:1: $.nme: unknown key 'nme'; did you mean 'name'?",
        "exp.yaml:3:1: $.n_repeats: 'n_repeats' must be >= 1, got 0",
        "exp.yaml:4:12: $.metadata.hypothess: unknown key 'hypothess'; did you mean 'hypothesis'?",
        'exp.yaml:4:26: $.metadata.hypothesis: expected text or null, got 3; write it in quotes: "3"',
        "exp.yaml:4:76: $.metadata.benchmark[0].splitt: unknown key 'splitt'; did you mean 'split'?",
        "exp.yaml:4:91: $.metadata.benchmark[1].path: there is no file data/vl.jsonl; did you mean 'val.jsonl' in that folder?",
        "exp.yaml:6:10: $.run.data.path: there is no file data/trian.jsonl; did you mean 'train.jsonl' in that folder?",
        "exp.yaml:6:48: $.run.data.transforms[0].kind: no transform is called 'jsonl_to_cht'; did you mean 'jsonl_to_chat'?",
        "exp.yaml:7:29: $.run.model.name: the key 'name' is given twice, on line 7; keep one of them",
        "exp.yaml:8:35: $.run.algorithm.params.learning_rate: expected a finite number, got 'abc'",
        "exp.yaml:8:55: $.run.algorithm.params.lora_rank: expected an integer, got true",
        "exp.yaml:9:3: $.run.backend: expected a mapping, got 'mock'; write {kind: mock}",
        "exp.yaml:10:3: $.run.seed: 'seed' must be >= 0, got -1",
        "exp.yaml:11:3: $.run.sed: unknown key 'sed'; did you mean 'seed'?",
        "exp.yaml:12:14: $.callbacks[0].kind: no callback is called 'local_loger'; did you mean 'local_logger'?",
    ]


@pytest.mark.parametrize("missing", ["data", "model", "algorithm", "backend"])
def test_a_missing_key_is_named_at_the_run(problems, missing: str):
    assert only(problems(run(**{missing: ""}))) == f"exp.yaml:3:1: $.run.{missing}: is missing"


def test_a_missing_name_is_named(problems):
    assert only(problems("version: 1\n" + RUN)) == "exp.yaml:1:1: $.name: is missing"


def test_what_was_refused_as_it_was_read_is_not_complained_of_again(problems):
    assert only(problems(run(algorithm="{kind: sft, params: {learning_rate: .nan}}"))) == (
        "exp.yaml:6:50: $.run.algorithm.params.learning_rate: .nan is not a finite number; give a number"
    )
    assert len(problems(run(model="!custom {name: evsys/tiny}"))) == 1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "algorithm",
            "{kind: sft, params: {notes: 010}}",
            'expected text, got 10; write it in quotes: "010"',
        ),
        ("algorithm", "{kind: sft, params: {notes: true}}", "expected text, got true"),
        ("algorithm", "{kind: sft, params: {lora_rank: 1_000}}", "expected an integer, got '1_000'"),
        ("algorithm", "{kind: sft, params: {lora_rank: 1.5}}", "expected an integer, got 1.5"),
        ("algorithm", "{kind: sft, params: {lora_rank: on}}", "expected an integer, got 'on'"),
        (
            "algorithm",
            "{kind: sft, params: {learning_rate: 12:30:00}}",
            "expected a finite number, got '12:30:00'",
        ),
        ("algorithm", "{kind: sft, params: [1]}", "expected a mapping, got a list"),
        ("algorithm", "{kind: 3}", 'expected text, got 3; write it in quotes: "3"'),
        ("algorithm", "{kind: sft, parms: {}}", "unknown key 'parms'; did you mean 'params'?"),
        ("tags", "[a, 010]", 'expected text, got 10; write it in quotes: "010"'),
        ("tags", "a", "expected a list, got 'a'; write [a]"),
        ("seed", "1.5", "expected an integer"),
        ("model", "{name: evsys/tiny, init_from_checkpoint: 3}", "expected text"),
    ],
)
def test_values_of_another_type_are_never_bent_into_shape(problems, key: str, value: str, message: str):
    assert message in only(problems(run(**{key: value})))


@pytest.mark.parametrize("text", ["on", "12:30:00", "2026-01-01", "1_000", "no", "'010'"])
def test_text_stays_text_where_text_is_asked(load, text: str):
    arm = load(run(tags=f"[{text}]", algorithm=f"{{kind: sft, params: {{notes: {text}}}}}")).arms[0]
    assert arm.run.tags == (text.strip("'"),)
    assert arm.run.algorithm.params["notes"] == text.strip("'")


@pytest.mark.parametrize("text", ["1e-4", "2e-5", "+1e5", "3", ".5"])
def test_numbers_reach_plugins_however_they_are_written(load, text: str):
    arm = load(run(algorithm=f"{{kind: sft, params: {{learning_rate: {text}}}}}")).arms[0]
    assert arm.run.algorithm.params["learning_rate"] == float(text)


# --- arms --------------------------------------------------------------------------------------------------------------


def test_a_problem_of_an_axis_value_is_reported_where_the_value_stands(problems):
    text = (
        HEAD
        + BASE
        + "matrix:\n  axes:\n    algorithm.params.learning_rate:\n      - 1e-4\n      - fast\n      - 2e-4\n"
    )
    assert only(problems(text)) == (
        "exp.yaml:12:9: $.matrix.axes['algorithm.params.learning_rate'][1]: expected a finite number, got 'fast' "
        "(in the arm 'learning_rate-fast')"
    )


def test_the_same_problem_in_many_arms_is_reported_once_with_their_number(problems):
    text = HEAD + BASE.replace("sft}", "sft, params: {lora_rnk: 3}}")
    axes = "matrix: {axes: {algorithm.params.learning_rate: [1e-4, 2e-4], seed: [1, 2, 3], algorithm.kind: [sft, reinforce]}}\n"
    assert problems(text + axes) == [
        "exp.yaml:6:35: $.base_run.algorithm.params.lora_rnk: unknown key 'lora_rnk' (in all 12 arms); did you mean 'lora_rank'?"
    ]
    some = axes.replace("[1, 2, 3]", "[1, 2, -3]")
    assert only(problems(HEAD + BASE + some)) == (
        "exp.yaml:8:76: $.matrix.axes.seed[2]: 'seed' must be >= 0, got -3 "
        "(in 4 of 12 arms, the first is 'learning_rate-0.0001-seed-minus-3-kind-sft')"
    )


def test_a_problem_of_every_value_of_an_axis_is_one_of_the_axis(problems):
    axes = "matrix: {axes: {algorithm.params.learning: [1, 2, 3], seed: [1, 2]}}\n"
    assert only(problems(HEAD + BASE + axes)) == (
        "exp.yaml:8:17: $.matrix.axes['algorithm.params.learning']: unknown key 'learning' (in all 6 arms); "
        "did you mean 'learning_rate'?"
    )


def test_a_problem_of_all_arms_says_so(problems):
    text = HEAD + BASE.replace("tiny}", "tiny, rendrer: x}") + "matrix: {axes: {seed: [1, 2]}}\n"
    assert only(problems(text)) == (
        "exp.yaml:5:29: $.base_run.model.rendrer: unknown key 'rendrer' (in all 2 arms); did you mean 'renderer'?"
    )


def test_params_of_one_algorithm_only_are_refused_and_when_keeps_them_to_it(load, problems):
    axes = "matrix:\n  axes:\n    algorithm.kind: [sft, reinforce]\n    algorithm.params.lora_rank: {}\n"
    text = HEAD + BASE
    assert only(problems(text + axes.format("[8]"))) == (
        "exp.yaml:11:34: $.matrix.axes['algorithm.params.lora_rank'][0]: unknown key 'lora_rank' "
        "(in the arm 'kind-reinforce-lora_rank-8'); known: learning_rate, kl_coef, teacher, agent_import_path"
    )
    plan = load(text + axes.format("{values: [8, 16], when: {algorithm.kind: sft}}"))
    assert [arm.name for arm in plan.arms] == [
        "kind-sft-lora_rank-8",
        "kind-sft-lora_rank-16",
        "kind-reinforce",
    ]


def test_a_condition_that_never_holds_is_a_warning(load):
    axes = "matrix: {axes: {seed: [1], algorithm.params.lora_rank: {values: [8], when: {algorithm.kind: other}}}}\n"
    assert load(HEAD + BASE + axes).warnings == (
        "the axis 'algorithm.params.lora_rank' applies to no arm: its condition never holds",
    )


def test_each_distinct_part_of_many_arms_is_looked_at_once(load, monkeypatch: pytest.MonkeyPatch):
    looked = []
    original = arms_module.Arms._look_at

    def count(self, key, raw):
        looked.append(key)
        return original(self, key, raw)

    monkeypatch.setattr(arms_module.Arms, "_look_at", count)
    axes = {
        "algorithm.params.learning_rate": [n / 1000 for n in range(1, 11)],
        "seed": list(range(20)),
        "algorithm.params.lora_rank": [1, 2],
    }
    plan = load(HEAD + BASE + f"matrix: {json.dumps({'axes': axes})}\n")
    assert len(plan.arms) == 400
    assert {key: looked.count(key) for key in set(looked)} == {
        "data": 1,
        "model": 1,
        "backend": 1,
        "algorithm": 20,
        "seed": 20,
    }


# --- plugins -------------------------------------------------------------------------------------------------------------


def test_a_capability_that_the_backend_lacks_is_named_with_both_sides(problems):
    found = problems(run(algorithm="{kind: reinforce}", backend="{kind: remote}"))
    assert only(found) == (
        "exp.yaml:7:13: $.run.backend.kind: algorithm 'reinforce' needs 'custom_loss', which backend 'remote' doesn't offer; "
        "choose another backend, or leave it out"
    )


def test_an_option_that_needs_a_capability_is_refused_where_it_is_set(load, problems):
    assert load(run(algorithm="{kind: reinforce, params: {kl_coef: 0.0}}"))
    assert only(problems(run(algorithm="{kind: reinforce, params: {kl_coef: 0.1}}"))) == (
        "exp.yaml:6:41: $.run.algorithm.params.kl_coef: the option algorithm.params.kl_coef needs 'reference_logprobs', "
        "which backend 'mock' doesn't offer; choose another backend, or leave it out"
    )


def test_a_value_of_an_option_that_needs_a_capability_is_refused_alone(load, problems):
    assert load(run(algorithm="{kind: reinforce, params: {teacher: live}}"))
    assert only(problems(run(algorithm="{kind: reinforce, params: {teacher: ema}}"))) == (
        "exp.yaml:6:41: $.run.algorithm.params.teacher: the option algorithm.params.teacher needs 'averaged_weights', "
        "which backend 'mock' doesn't offer; choose another backend, or leave it out"
    )


def test_a_family_of_capabilities_offers_its_members(load, registry: Registry):
    class Needy(registry.get("algorithm", "sft")):
        requires = frozenset({"loss_fns:ppo"})

    class Able(registry.get("backend", "mock")):
        capabilities = frozenset({"loss_fns"})

    registry.register("algorithm", "needy", Needy)
    registry.register("backend", "able", Able)
    assert load(run(algorithm="{kind: needy}", backend="{kind: able}"))


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        (
            {"model": "{name: evsys/tiny, load_checkpoint_path: data}"},
            "exp.yaml:5:29: $.run.model.load_checkpoint_path",
        ),
        ({"algorithm": "{kind: aims}"}, None),
        (
            {"algorithm": "{kind: aims, params: {target_modules: [q]}}"},
            "exp.yaml:6:36: $.run.algorithm.params.target_modules",
        ),
        ({"seed": "3"}, None),
    ],
)
def test_an_option_that_the_backend_would_ignore_is_refused(
    load, problems, registry: Registry, changes: dict, path: str | None
):
    class Aims(registry.get("algorithm", "sft")):
        @attrs.frozen(kw_only=True)
        class Config:
            target_modules: tuple[str, ...] = ()

    registry.register("algorithm", "aims", Aims)
    text = run(backend="{kind: remote}", **changes)
    if path is None:
        assert load(text)
    else:
        name = path.rpartition("$.run.")[2]
        assert only(problems(text)) == (
            f"{path}: backend 'remote' would ignore {name}; leave it out, or choose another backend"
        )


def test_the_backend_judges_the_model(problems):
    assert only(problems(run(model="{name: other/model}", backend="{kind: remote}"))) == (
        "exp.yaml:5:11: $.run.model.name: there is no model 'other/model'; known: evsys/tiny"
    )


def test_the_backend_is_told_what_is_trained(load, registry: Registry):
    from evsys.types import LoraSpec

    seen = []

    class Trains(registry.get("algorithm", "sft")):
        def lora(self):
            return LoraSpec(rank=self.fields["lora_rank"])

    class Judges(registry.get("backend", "mock")):
        @classmethod
        def validate_model(cls, model):
            seen.append((model.name, model.lora.rank))
            return ()

    registry.register("algorithm", "trains", Trains)
    registry.register("backend", "judges", Judges)
    load(run(algorithm="{kind: trains, params: {lora_rank: 7}}", backend="{kind: judges}"))
    assert seen == [("evsys/tiny", 7)]


def test_a_backend_that_fails_to_judge_is_a_problem_and_no_crash(problems, registry: Registry):
    class Fails(registry.get("backend", "mock")):
        @staticmethod
        def validate_model(model):
            raise RuntimeError("boom")

    registry.register("backend", "fails", Fails)
    assert "$.run.model.name: backend 'fails' can't judge the model: RuntimeError: boom" in only(
        problems(run(backend="{kind: fails}"))
    )


def test_a_plugin_that_refuses_its_params_is_a_problem_at_its_params(problems, registry: Registry):
    class Fussy(registry.get("transform", "jsonl_to_chat")):
        def __init__(self, **fields):
            raise ValueError("these don't go together")

    registry.register("transform", "fussy", Fussy)
    data = "{path: data/train.jsonl, transforms: [{kind: fussy, params: {column: a}}]}"
    assert "$.run.data.transforms[0].params: " in only(problems(run(data=data)))
    assert "these don't go together" in only(problems(run(data=data)))


def test_a_broken_plugin_is_raised_as_such_when_nothing_else_is_wrong(load, problems, registry: Registry):
    class Halved:
        Config = None

    registry.register("algorithm", "halved", Halved)
    with pytest.raises(PluginContractError, match=r"exp.yaml:6:15: \$.run.algorithm.kind: "):
        load(run(algorithm="{kind: halved}"))
    both = problems(run(algorithm="{kind: halved}", seed="x"))
    assert len(both) == 2
    assert both[0].startswith("exp.yaml:6:15: $.run.algorithm.kind: ")


def test_two_agents_in_one_run_are_refused(load, problems):
    algorithm = "{kind: reinforce, params: {agent_import_path: asyncio.sleep}}"
    assert load(run(algorithm=algorithm))
    assert load(run(agent="{kind: chat}"))
    assert only(problems(run(algorithm=algorithm, agent="{kind: chat}"))) == (
        "exp.yaml:8:3: $.run.agent: 'agent' and the algorithm's 'agent_import_path' both name the agent; keep one of them"
    )


def test_an_agent_that_the_algorithm_names_must_be_there(problems):
    algorithm = "{kind: reinforce, params: {agent_import_path: asyncio.sleeep}}"
    assert "$.run.algorithm.params.agent_import_path: agent 'asyncio:sleeep' can't be loaded" in only(
        problems(run(algorithm=algorithm))
    )


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("{}", "$.run.agent: the agent names neither 'kind' nor 'import_path'"),
        ("{kind: chat, import_path: a:B}", "$.run.agent: the agent names both 'kind' and 'import_path'"),
        ("{kind: chatt}", "$.run.agent.kind: no agent is called 'chatt'; did you mean 'chat'?"),
        (
            "{import_path: 'no path'}",
            "$.run.agent.import_path: 'no path' is not an import path; write module:Class",
        ),
        (
            "{import_path: nowhere_at_all:Agent}",
            "$.run.agent.import_path: there is no module 'nowhere_at_all'",
        ),
        (
            "{import_path: nowhere_at_all.sub.Agent}",
            "$.run.agent.import_path: 'nowhere_at_all.sub' can't be looked for",
        ),
    ],
)
def test_an_agent_is_named_or_given_by_its_import_path(problems, agent: str, message: str):
    assert message in only(problems(run(agent=agent)))


AGENTS = """\
import attrs

async def answer(task, model, tools, ctx):
    return ""

class Plain:
    def __init__(self, turns=1):
        self.turns = turns
    async def run(self, task, model, tools, ctx):
        return ""

class Declared(Plain):
    @attrs.frozen(kw_only=True)
    class Config:
        turns: int = 1

ready = Plain()

class Mute:
    pass

def blocking(task, model, tools, ctx):
    return ""
"""


@pytest.fixture
def agents(project: Path) -> str:
    (project / "src").mkdir()
    (project / "src" / "harness.py").write_text(AGENTS, encoding="utf-8")
    (project / "src" / "_broken.py").write_text("import no_such_module_anywhere\n", encoding="utf-8")
    return "src.harness"


@pytest.mark.parametrize(
    "agent",
    [
        "{import_path: 'src.harness:answer'}",
        "{import_path: src.harness.Plain, params: {turns: 2}}",
        "{import_path: 'src.harness:Declared', params: {turns: 2}}",
        "{import_path: 'src.harness:ready'}",
    ],
)
def test_an_agent_by_import_path_is_accepted_where_it_can_act(load, agents: str, agent: str):
    assert load(run(agent=agent)).arms[0].run.agent.import_path.startswith(agents)


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("{import_path: 'src.harnes:Plain'}", "$.run.agent.import_path: there is no module 'src.harnes'"),
        ("{import_path: 'src.harness:Plian'}", "$.run.agent.import_path: agent 'src.harness:Plian' can't be loaded: src.harness has no 'Plian'; did you mean 'Plain'?"),
        ("{import_path: 'src._broken:Agent'}", "$.run.agent.import_path: agent 'src._broken:Agent' can't be loaded: ModuleNotFoundError"),
        ("{import_path: 'src.harness:Mute'}", "$.run.agent.import_path: 'src.harness:Mute' is not an agent: it has no async `run`"),
        ("{import_path: 'src.harness:blocking'}", "$.run.agent.import_path: 'src.harness:blocking' is not an agent"),
        ("{import_path: 'src.harness:Plain', params: {turn: 1}}", "$.run.agent.params: Plain doesn't take them: got an unexpected keyword argument 'turn'"),
        ("{import_path: 'src.harness:Declared', params: {turn: 1}}", "$.run.agent.params.turn: unknown key 'turn'; did you mean 'turns'?"),
        ("{import_path: 'src.harness:Declared', params: {turns: x}}", "$.run.agent.params.turns: expected an integer"),
    ],
)  # fmt: skip
def test_an_agent_by_import_path_that_could_not_act_is_refused(
    problems, agents: str, agent: str, message: str
):
    assert message in only(problems(run(agent=agent)))


def test_a_renderer_is_looked_up(problems):
    assert "$.run.model.renderer: no renderer is called 'chatty'" in only(
        problems(run(model="{name: evsys/tiny, renderer: chatty}"))
    )


# --- placeholders ----------------------------------------------------------------------------------------------------------


def test_placeholders_stay_in_the_plan_and_never_in_a_message(
    load, problems, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("EVSYS_KEY", "hunter2-secret")
    plan = load(run(backend="{kind: mock, params: {api_key: '${EVSYS_KEY}'}}"))
    assert plan.arms[0].run.backend.params == {"api_key": "${EVSYS_KEY}"}
    assert plan.arms[0].tree["backend"]["params"]["api_key"] == "${EVSYS_KEY}"
    assert "hunter2" not in repr(plan.arms)
    found = only(problems(run(backend="{kind: mock, params: {port: '${EVSYS_KEY}'}}")))
    assert "$.run.backend.params.port: expected an integer or null, got '${EVSYS_KEY}'" in found
    assert "hunter2" not in found


def test_a_variable_that_is_not_set_is_a_problem(problems, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("EVSYS_KEY", raising=False)
    assert only(problems(run(backend="{kind: mock, params: {api_key: 'x${EVSYS_KEY}'}}"))) == (
        "exp.yaml:7:34: $.run.backend.params.api_key: the environment variable EVSYS_KEY isn't set; export EVSYS_KEY=..."
    )


def test_a_placeholder_in_a_path_is_refused(problems, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EVSYS_DATA", "data")
    assert "$.run.data.path: environment variables are put in plugin params only" in only(
        problems(run(data="{path: '${EVSYS_DATA}/train.jsonl'}"))
    )


# --- files -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{}", "exp.yaml:4:3: $.run.data: names no rows; give 'path', 'rows', 'dataset_id' or 'hf_dataset'"),
        ("{path: data/train.jsonl, rows: [{a: 1}]}", "$.run.data.rows: 'path' and 'rows' both name the rows"),
        ("{rows: []}", "$.run.data.rows: there are no rows"),
        ("{rows: [1]}", "$.run.data.rows[0]: expected a mapping, got 1"),
        ("{path: data}", "$.run.data.path: data is a folder; name a file in it"),
        ("{path: data/empty.jsonl}", "$.run.data.path: data/empty.jsonl is empty"),
        ("{path: data/notes.txt}", "$.run.data.path: no format is known for the suffix '.txt'"),
        ("{path: nowhere/x.jsonl}", "$.run.data.path: there is no file nowhere/x.jsonl; paths are relative to the project root"),
        ("{path: data/train.jsonl, source_kind: parquet}", "$.run.data.source_kind: expected 'jsonl' or"),
        ("{path: data/train.jsonl, source_kind: in_memory}", "$.run.data.source_kind: source_kind 'in_memory' needs 'rows', and 'path' is given"),
        ("{dataset_id: a, dataset_name: b, path: data/train.jsonl}", "$.run.data.dataset_name: both 'dataset_id' and 'dataset_name' are given"),
        ("{dataset_id: abc}", "$.run.data.dataset_id: no dataset 'abc' in data or the cache, and no 'data_store' is configured"),
        ("{dataset_name: abc}", "$.run.data.dataset_name: no dataset 'abc' in data or the cache, and no 'data_store' is configured; did you mean 'abd'?"),
        ("{dataset_name: abc, path: nowhere.jsonl}", "$.run.data.path: there is no file nowhere.jsonl"),
        ("{dataset_name: abd/v7}", "$.run.data.dataset_name: dataset 'abd' has no v7/train.jsonl; it has v1, v2"),
        ("{dataset_name: abd/v2}", "$.run.data.dataset_name: data/datasets/abd/v2/train.jsonl is empty"),
        ('{path: "a\\0b"}', "is not a usable path"),
        ("{path: data/train.jsonl, on_bad_row: ignore}", "$.run.data.on_bad_row: expected 'error' or 'skip'"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_read_is_refused(problems, project: Path, data: str, message: str):
    own_dataset(project, "abd", '{"messages": []}\n', "")
    (project / "data" / "empty.jsonl").write_text("", encoding="utf-8")
    (project / "data" / "notes.txt").write_text("x", encoding="utf-8")
    assert message in only(problems(run(data=data)))


@pytest.mark.parametrize(
    "data",
    [
        "{rows: [{a: 1}]}",
        "{dataset_name: abd}",
        "{dataset_name: abd/v1, path: nowhere.jsonl}",
        "{path: data/notes.txt, source_kind: jsonl}",
        "{dataset_id: kept}",
    ],
)
def test_data_from_elsewhere_is_accepted(load, project: Path, data: str):
    own_dataset(project, "abd", '{"messages": []}\n', '{"messages": []}\n')
    (project / "data" / "notes.txt").write_text("x", encoding="utf-8")
    cached(project, "kept", [{"messages": []}], kind="datasets")
    assert load(run(data=data))


def test_files_and_transforms_that_a_transform_uses_are_checked_where_its_params_name_them(
    problems, registry: Registry, project: Path
):
    class Joined:
        transforms: ClassVar = {"inner[0]": SimpleNamespace(kind="jsonl_to_chat", params={"colum": "x"})}

        @attrs.frozen(kw_only=True)
        class Config:
            other: str

        def __init__(self, other):
            self.files = {"other": other}

        def __call__(self, rows):
            return rows

    registry.register("transform", "joined", Joined)
    data = "{path: data/train.jsonl, transforms: [{kind: joined, params: {other: data/trian.jsonl}}]}"
    first, second = problems(run(data=data))
    assert first.startswith(
        "exp.yaml:4:62: $.run.data.transforms[0].params.inner[0].params.colum: unknown key 'colum'"
    )
    assert second == (
        "exp.yaml:4:71: $.run.data.transforms[0].params.other: there is no file data/trian.jsonl; "
        "did you mean 'train.jsonl' in that folder?"
    )


def own_dataset(project: Path, name: str, *versions: str) -> None:
    for number, text in enumerate(versions, 1):
        folder = project / "data" / "datasets" / name / f"v{number}"
        folder.mkdir(parents=True)
        (folder / "train.jsonl").write_text(text, encoding="utf-8")


def test_a_store_may_have_what_the_cache_lacks(load):
    for data in ("{dataset_id: abc}", "{dataset_name: abc, path: nowhere.jsonl}"):
        assert load(run(data=data) + "data_store: {kind: local}\n").warnings == ()


def test_reading_the_fallback_instead_of_a_dataset_that_nobody_has_is_a_warning(load):
    plan = load(run(data="{dataset_name: abc, path: data/train.jsonl}"))
    assert plan.warnings == (
        "dataset 'abc' isn't in the project or its cache; data/train.jsonl is read instead",
    )


def test_permissions_are_asked_of_the_system(problems, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    found = "\n".join(problems(HEAD + RUN))
    assert "$.run.data.path: data/train.jsonl can't be read; check its permissions" in found
    assert "$.output_dir: .evsys/experiments can't be written" in found


def test_a_file_where_the_records_should_go_is_refused(problems):
    found = only(problems(HEAD + RUN + "output_dir: data/train.jsonl/x\n"))
    assert "exp.yaml:8:1: $.output_dir: data/train.jsonl/x can't be made: data/train.jsonl is a file" in found


@pytest.mark.parametrize("folder", ["''", '"a\\0b"', "x" * 300, "loop", "loop/below"])
def test_a_folder_that_can_not_be_made_is_refused(problems, project: Path, folder: str):
    (project / "loop").symlink_to("loop")
    found = only(problems(HEAD + RUN + f"output_dir: {folder}\n"))
    assert re.search(r"\$\.output_dir: .*(is not a usable path|can't be made)", found)


def test_links_that_lead_nowhere_and_pipes_are_no_files_of_rows(problems, project: Path):
    (project / "loop.jsonl").symlink_to("loop.jsonl")
    os.mkfifo(project / "pipe.jsonl")
    assert "loop.jsonl is a symbolic link that leads nowhere" in only(
        problems(run(data="{path: loop.jsonl}"))
    )
    assert "pipe.jsonl is not a regular file" in only(problems(run(data="{path: pipe.jsonl}")))


@pytest.mark.parametrize(("text", "place"), [("name: x", "$.name"), ("name: evsys/tiny", "$.run.model.name")])
def test_an_empty_name_is_refused(problems, text: str, place: str):
    found = only(problems((HEAD + RUN).replace(text, "name: ''")))
    assert f"{place}: Length of 'name' must be >= 1" in found


def test_more_runs_than_anybody_means_are_refused_before_they_are_made(problems):
    found = only(problems(HEAD + RUN + "n_repeats: 1000000000\n"))
    assert (
        "exp.yaml:8:1: $.n_repeats: 1 arms repeated make 1,000,000,000 runs; at most 100,000 are accepted"
        in found
    )


def test_a_text_in_place_of_a_mapping_is_told_what_it_seems_to_be(problems):
    found = problems(
        run(data="data/train.jsonl", model="evsys/tiny", backend="mock")
        + "metadata: {benchmark: val.jsonl}\n"
    )
    assert [line.rpartition("; ")[2] for line in found] == [
        "write {path: data/train.jsonl}",
        "write {name: evsys/tiny}",
        "write {kind: mock}",
        "write {path: val.jsonl}",
    ]


def test_an_arm_is_not_called_like_the_untrained_model(problems):
    assert "$.run.name: an arm can't be called 'base_model'" in only(
        problems(HEAD + RUN.replace("run:\n", "run:\n  name: base_model\n"))
    )


def test_a_key_that_only_an_axis_makes_is_reported_at_the_axis(problems):
    text = (
        HEAD + RUN.replace("run:", "base_run:") + "matrix:\n  axes:\n    algoritm.params.lora_rank: [4, 8]\n"
    )
    found = only(problems(text))
    assert "$.matrix.axes['algoritm.params.lora_rank']: unknown key 'algoritm'" in found
    assert "did you mean 'algorithm'?" in found


def test_a_metric_with_an_odd_direction_is_refused_where_it_is_listed(problems, registry):
    class Upward:
        direction = "up"

        def compute(self, task_rewards):
            return 0.0

    registry.register("metric", "upward", Upward)
    metadata = "metadata:\n  benchmark: {name: val, path: data/val.jsonl, metrics: [mean_reward, upward]}\n"
    assert (
        "$.metadata.benchmark.metrics[1]: the metric 'upward' declares the direction 'up'; it is 'max' or 'min'"
        in only(problems(HEAD + metadata + RUN))
    )


def test_of_thousands_of_wrong_tasks_some_are_told_and_the_others_counted(problems, project: Path):
    tasks = [
        {"task_id": f"t{i}", "instruction": "x", "verifier": {"name": f"unknown{i}"}} for i in range(3000)
    ]
    lines = "".join(f"{json.dumps(task)}\n" for task in tasks)
    (project / "data" / "val.jsonl").write_text(lines, encoding="utf-8")
    found = problems(HEAD + "metadata:\n  benchmark: {name: val, path: data/val.jsonl}\n" + RUN)
    assert len(found) == 11
    assert "task 't9': no verifier is called 'unknown9'" in found[9]
    assert "val.jsonl:11: $.metadata.benchmark.path: 2990 more tasks from here on have problems" in found[10]


def test_what_is_wrong_with_many_tasks_alike_is_told_once_with_their_number(problems, project: Path):
    alike = [task(f"t{n}", verifier={"name": "exact_match", "expected": None}) for n in range(3000)]
    write_tasks(project / "data" / "val.jsonl", [task("a"), *alike])
    assert only(problems(HEAD + "metadata:\n  benchmark: {path: data/val.jsonl}\n" + RUN)) == (
        "data/val.jsonl:2: $.metadata.benchmark.path: task 't0': verifier 'exact_match' can't judge by what it expects: "
        "nothing is expected (and 2999 more tasks like it)"
    )


def test_checkpoints_to_start_from_must_be_there(load, problems):
    assert "$.run.model.init_from_checkpoint: there is no file ckpt/5" in only(
        problems(run(model="{name: evsys/tiny, init_from_checkpoint: ckpt/5}"))
    )
    assert load(run(model="{name: evsys/tiny, init_from_checkpoint: data}"))
    assert load(run(model="{name: evsys/tiny, load_checkpoint_path: 'tinker://x/y'}"))
    both = "{name: evsys/tiny, load_checkpoint_path: data, init_from_checkpoint: data}"
    assert "both name a source of the weights" in only(problems(run(model=both)))


def test_paths_are_relative_to_the_project_and_not_to_the_working_directory(
    project: Path,
    registry: Registry,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
):
    deep = project / "experiments" / "one"
    deep.mkdir(parents=True)
    (deep / "config.yaml").write_text(HEAD + RUN, encoding="utf-8")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    plan = load_experiment(deep / "config.yaml", registry=registry)
    assert plan.project_root == project
    monkeypatch.chdir(deep)
    assert load_experiment("config.yaml", registry=registry).project_root == project


# --- later versions --------------------------------------------------------------------------------------------------------

LATER = {
    "deploy": "{kind: anything}",
}


def test_every_key_for_later_is_tested_here():
    assert set(LATER) == set(later_names("experiment"))
    assert later_names("run") == ()
    assert later_names("benchmark") == ()


@pytest.mark.parametrize("key", LATER)
def test_keys_for_later_exist_and_answer_not_in_this_version(load, problems, key: str):
    assert only(problems(f"{HEAD}{key}: {LATER[key]}\n{RUN}")).startswith(
        f"exp.yaml:3:1: $.{key}: not in this version"
    )
    assert load(f"{HEAD}{key}: null\n{RUN}")


def test_some_arm_runs_at_any_time(load, problems):
    assert load(f"{HEAD}max_concurrent_arms: 1\n{RUN}").concurrent_arms == 1
    assert "'max_concurrent_arms' must be >= 1, got 0" in only(
        problems(f"{HEAD}max_concurrent_arms: 0\n{RUN}")
    )


def test_a_key_of_the_file_in_one_of_its_blocks_is_sent_to_the_top_level(problems):
    found = only(problems(f"{HEAD}metadata: {{select: {{checkpoint: last}}}}\n{RUN}"))
    assert "$.metadata.select: unknown key 'select'; 'select' belongs at the top level of the file" in found


def test_a_plugin_of_a_distribution_that_is_missing_names_it(problems):
    found = only(problems(f"{HEAD}{RUN}callbacks: [{{kind: evsys_logger}}]\n"))
    assert found.startswith("exp.yaml:8:14: $.callbacks[0].kind: no callback is called 'evsys_logger'")
    assert found.endswith("pip install evsys-dashboard")


@pytest.mark.parametrize("key", ["eval", "validation"])
def test_blocks_of_older_files_are_refused_with_where_they_went(problems, key: str):
    found = only(problems(f"{HEAD}{key}: {{path: x, whatever: 1}}\n{RUN}"))
    told = f"{key}: the block '{key}' is of an older format; list what is scored under 'metadata.benchmark'"
    assert found.startswith(f"exp.yaml:3:1: $.{told}")
    inside = only(problems(run(**{key: "{metrics: [pass_rate], inference: {kind: chat}}"})))
    assert inside.startswith(f"exp.yaml:8:3: $.run.{told}")


# --- whose fault -----------------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_read_is_a_config_error(registry: Registry, tmp_path: Path):
    with pytest.raises(ConfigError, match="no such file"):
        load_experiment(tmp_path / "none.yaml", registry=registry)


def test_the_exit_code_says_whose_fault_it_is(load, problems, project: Path):
    assert ConfigError.exit_code == 2
    assert PluginLoadError.exit_code == 3
    assert DataError.exit_code == 4
    assert problems(run(algorithm="{kind: sftt}"))  # an unknown name is the file's fault


def test_the_algorithm_judges_the_model_too(load, problems, registry: Registry):
    class Picky(registry.get("algorithm", "sft")):
        def validate_model(self, model):
            if model.name != "evsys/tiny":
                yield f"no rate is known for {model.name}"

    registry.register("algorithm", "picky", Picky)
    assert load(run(algorithm="{kind: picky}"))
    assert only(problems(run(algorithm="{kind: picky}", model="{name: other}"))) == (
        "exp.yaml:6:3: $.run.algorithm.params: no rate is known for other"
    )


# --- rows and batches ------------------------------------------------------------------------------------------------------


class Batched:
    """An algorithm that needs whole batches, and keeps one row out."""

    whole_batches = True

    @attrs.frozen(kw_only=True)
    class Config:
        batch_size: int | None = attrs.field(default=None)

    def __init__(self, **fields):
        self.config = self.Config(**fields)

    def rows_trained(self, rows: int) -> int:
        return max(rows - 1, 0)

    async def train(self, ctx):
        raise NotImplementedError


def test_an_explicit_batch_that_the_rows_cannot_fill_is_a_problem(load, problems, registry, project: Path):
    registry.register("algorithm", "batched", Batched)
    (project / "data" / "five.jsonl").write_text('{"messages": []}\n' * 5, encoding="utf-8")

    def text(size: int | str | None, data: str = "{path: data/five.jsonl}") -> str:
        params = "{}" if size is None else f"{{batch_size: {size}}}"
        return run(data=data, algorithm=f"{{kind: batched, params: {params}}}")

    load(text(None))
    load(text("null"))
    load(text(4))
    assert only(problems(text(5))) == (
        "exp.yaml:6:39: $.run.algorithm.params.batch_size: 4 rows are fewer than one batch of 5; "
        "set it to at most 4, or leave it out"
    )
    assert "2 rows are fewer" in only(problems(text(3, "{rows: [{a: 1}, {a: 2}, {a: 3}]}")))
    # A project's own transform may make more rows of these.
    load(text(9, "{path: data/five.jsonl, transforms: [{kind: jsonl_to_chat}]}"))


def test_the_rows_of_arms_are_counted_once(load, registry, project: Path, monkeypatch):
    registry.register("algorithm", "batched", Batched)
    (project / "data" / "five.jsonl").write_text('{"messages": []}\n' * 5, encoding="utf-8")
    counted = []
    most_rows = arms_module.most_rows
    monkeypatch.setattr(arms_module, "most_rows", lambda *a, **k: counted.append(a) or most_rows(*a, **k))
    base = BASE.replace("train.jsonl", "five.jsonl").replace("kind: sft", "kind: batched")
    axes = "{seed: [1, 2, 3], algorithm.params.batch_size: [2, 3]}"
    assert len(load(f"{HEAD}{base}matrix: {{axes: {axes}}}\n").arms) == 6
    assert len(counted) == 2  # of each size, a few batches are enough


def test_a_verifier_class_without_a_config_takes_the_params_of_tasks(load, registry, project: Path):
    class Plain:
        def __call__(self, model_output, expected, params):
            return params["scale"]

    registry.register("verifier", "plain_class", Plain)
    verifier = {"name": "plain_class", "expected": "x", "params": {"scale": 0.5}}
    write_tasks(project / "data" / "val.jsonl", [task(name, verifier=verifier) for name in "abcdefghijkl"])
    metadata = "metadata:\n  benchmark: {name: val, path: data/val.jsonl}\n"
    assert load(HEAD + metadata + RUN).experiment.metadata.benchmarks[0].label == "val"
