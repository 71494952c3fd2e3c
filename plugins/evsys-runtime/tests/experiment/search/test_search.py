"""Experiments whose arms a search chooses, from beginning to end on the mock backend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_project import METADATA

from evsys.errors import ConfigError, RunError
from evsys_record.jsonl import read_jsonl
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.search import judged_scores

RATE = "algorithm.params.learning_rate"
SPACE = """
base_run:
  data: {source_kind: jsonl, path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: 6, batch_size: 4, lora_rank: 4}}
  backend: {kind: mock}
matrix:
  axes:
    algorithm.params.learning_rate: {low: 1e-3, high: 0.2, log: true}
    algorithm.params.lora_rank: [4, 8]
max_concurrent_arms: 1
confirm: null
"""
IN_LOOP = f"{METADATA}    run_every: 1\n"


def searched(project, search, *, more="", metadata=METADATA, space=SPACE, **options):
    """An experiment with a search."""
    return project.experiment(f"\nsearch: {search}{space}", metadata=metadata, extra=more, **options)


def proposals(directory):
    return [line["proposal"] for line in read_jsonl(Path(directory) / "proposals.jsonl")]


def facts(directory):
    return json.loads((Path(directory) / "experiment.json").read_text(encoding="utf-8"))


@pytest.fixture
def plugin(project):
    """A search of the project's own: `plugin(body)` has the body of its `ask`, and maybe more methods behind it."""

    def write(ask, more=""):
        project.code(
            "searches",
            "from evsys_sdk import register_search\n\n\n"
            "@register_search('own')\nclass Own:\n"
            f"    def ask(self, history, space):\n        {ask}\n{more}",
        )

    return write


# --- proposing --------------------------------------------------------------------------------------------------------


def test_arms_are_proposed_one_by_one_and_their_record_says_from_what(project):
    result = searched(project, "{kind: random, params: {arms: 3}}").run()

    assert (result.status, result.exit_code) == ("completed", 0)
    made = proposals(result.directory)
    assert [one["n"] for one in made] == [0, 1, 2]
    assert [one["from"]["ended"] for one in made] == [0, 1, 2]
    assert [arm.run_id for arm in result.arms] == [f"{one['name']}-s0" for one in made]
    assert len({one["from"]["history"] for one in made}) == 3
    assert facts(result.directory)["search"] == {
        "kind": "random",
        "proposed": 3,
        "duplicates": 0,
        "refused": 0,
        "referee": 0,
        "ended": "it has nothing more to propose",
    }
    resolved = json.loads((Path(result.directory) / "resolved.json").read_text(encoding="utf-8"))
    rates = [arm["run"]["algorithm"]["params"]["learning_rate"] for arm in resolved["arms"]]
    assert rates == [one["values"][RATE] for one in made]
    assert resolved["search"]["params"] == {"arms": 3, "seed": 0}


def test_arms_side_by_side_are_asked_for_while_others_run(project):
    space = SPACE.replace("max_concurrent_arms: 1", "max_concurrent_arms: 3")
    result = searched(project, "{kind: random, params: {arms: 4}}", space=space).run()

    assert result.status == "completed"
    assert [one["from"] | {"history": None} for one in proposals(result.directory)[:3]] == [
        {"arms": n, "ended": 0, "history": None} for n in range(3)
    ]


def test_repeats_of_an_arm_are_one_result(project, plugin):
    plugin(
        "assert all(e['status'] == 'completed' for e in history)\n"
        f"        return [] if len(history) == 2 else [{{'{RATE}': 0.01 * (1 + len(history)), 'algorithm.params.lora_rank': 4}}]"
    )
    result = searched(project, "{kind: own}", more="n_repeats: 2\n").run()
    assert [arm.run_id[-3:] for arm in result.arms] == ["-s0", "-s1", "-s0", "-s1"]
    assert result.status == "completed"


def test_the_history_has_scores_of_which_more_is_better_and_failures_as_results(project, plugin):
    project.code(
        "algorithms",
        "from evsys_sdk import SFT, register_algorithm\n"
        "@register_algorithm('breaks')\nclass Breaks(SFT):\n"
        "    async def build_batch(self, step_idx):\n"
        "        if self.config.lora_rank == 8:\n            raise RuntimeError('no')\n"
        "        return await super().build_batch(step_idx)\n",
    )
    plugin(
        "import pathlib, json\n"
        "        pathlib.Path('told.json').write_text(json.dumps(history))\n"
        f"        return [{{'{RATE}': 0.05, 'algorithm.params.lora_rank': (4, 8)[len(history)]}}] if len(history) < 2 else []"
    )
    space = SPACE.replace("kind: sft", "kind: breaks")
    result = searched(project, "{kind: own}", space=space).run()

    history = json.loads(Path("told.json").read_text(encoding="utf-8"))
    assert [entry["status"] for entry in history] == ["completed", "failed"]
    assert history[0]["score"] == result.arms[0].evaluations[-1].metrics["mean_reward"].value
    assert (history[0]["steps"], history[0]["reason"]) == (6, None)
    assert (history[1]["score"], history[1]["reason"]) == (
        None,
        "algorithm 'breaks' failed: RuntimeError: no",
    )
    assert (result.status, result.exit_code) == ("completed", 1)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(project, monkeypatch):
    monkeypatch.chdir(project.root)


def test_the_same_arm_is_refused_counted_and_asked_for_again(project, plugin):
    plugin(
        f"arm = {{'{RATE}': 0.05, 'algorithm.params.lora_rank': 4}}\n"
        "        return [arm] if len(history) < 3 else [{**arm, 'algorithm.params.lora_rank': 8}] if len(history) < 4 else []"
    )
    result = searched(project, "{kind: own}").run()

    made = proposals(result.directory)
    assert [one.get("refused") for one in made] == [
        None,
        f"the same arm as {made[0]['name']}",
        f"the same arm as {made[0]['name']}",
        None,
    ]
    assert len(result.arms) == 2
    assert (result.status, facts(result.directory)["search"]["duplicates"]) == ("completed", 2)


def test_what_is_no_arm_of_the_space_is_refused_and_told_to_the_search(project, plugin):
    plugin(
        "return [{'seed': 1}] if not history else [] if history[-1]['reason'] is None else "
        f"[{{'run.{RATE}': 0.05, 'algorithm.params.lora_rank': 4}}]"
    )
    result = searched(project, "{kind: own}").run()
    first, second = proposals(result.directory)
    assert "there is no axis 'seed'" in first["refused"]
    assert second["name"] == "learning_rate-0.05-lora_rank-4"


def test_a_search_that_repeats_itself_for_ever_ends(project, plugin):
    plugin(f"return [{{'{RATE}': 0.05, 'algorithm.params.lora_rank': 4}}]")
    result = searched(project, "{kind: own}").run()
    assert len(result.arms) == 1
    assert facts(result.directory)["search"]["ended"] == "100 proposals in a row couldn't be run"


def test_a_search_that_fails_is_told_as_its_failure(project, plugin):
    plugin("raise ValueError('out of ideas')")
    experiment = searched(project, "{kind: own}")
    with pytest.raises(RunError, match="out of ideas"):
        experiment.run()
    assert experiment.result.status == "failed"


def test_a_dry_run_tries_two_arms(project):
    result = searched(project, "{kind: random, params: {arms: 9}}", dry=True).run()
    assert len(result.arms) == 2


def test_the_budget_ends_a_search_and_leaves_enough_to_confirm(project):
    space = SPACE.replace("confirm: null", "confirm: {seeds: 1}")
    result = searched(
        project, "{kind: random, params: {arms: 9}}", space=space, more="budget: {steps: 20}\n"
    ).run()
    made = [arm for arm in result.arms if arm.purpose == "candidate"]
    assert len(made) == 2  # 6 steps each; a third one would leave none for the winner once more
    assert result.status == "completed"
    assert facts(result.directory)["search"]["ended"] == "the budget pays for no further arm"


def test_a_search_whose_budget_pays_for_no_arm_isnt_complete(project):
    space = SPACE.replace("confirm: null", "confirm: {seeds: 1}")
    result = searched(project, "{kind: random}", space=space, more="budget: {arms: 1}\n").run()
    assert (result.arms, result.status, result.exit_code) == ((), "budget_stopped", 5)
    assert "no arm of the search was run, since the budget pays for no further arm" in result.warnings
    again = Experiment.resume(result.directory, overrides=["budget.arms=2"], quiet=True).run()
    assert ([arm.purpose for arm in again.arms], again.status) == (["candidate"], "completed")


def test_a_search_of_which_nothing_can_be_run_has_failed_and_says_why(project, plugin):
    plugin("return [{'seed': len(history)}]")
    result = searched(project, "{kind: own}").run()
    assert (result.arms, result.status, result.exit_code) == ((), "failed", 1)
    (said,) = [one for one in result.warnings if one.startswith("no arm of the search")]
    assert said.startswith(
        "no arm of the search was run, since 100 proposals in a row couldn't be run; the last"
    )
    assert "there is no axis 'seed'" in said


@pytest.mark.parametrize(
    "search",
    [
        "{kind: optuna, params: {arms: 4, startup: 1}}",
        "{kind: asha, params: {arms: 4, min_steps: 1}}",
        "{kind: grid, params: {points: 2}}",
        "{kind: random, params: {arms: 4}, referee: 0.5}",
    ],
)
def test_a_search_all_of_whose_arms_fail_goes_on_to_its_end(project, search):
    project.code(
        "algorithms",
        "from evsys_sdk import SFT, register_algorithm\n"
        "@register_algorithm('breaks')\nclass Breaks(SFT):\n"
        "    async def build_batch(self, step_idx):\n        raise RuntimeError('no')\n",
    )
    space = SPACE.replace("kind: sft", "kind: breaks").replace("confirm: null", "confirm: {seeds: 1}")
    result = searched(project, search, metadata=IN_LOOP, space=space).run()
    assert [arm.status for arm in result.arms] == ["failed"] * 4
    assert (result.status, result.exit_code) == ("failed", 1)
    assert result.conclusion.verdict == "INCONCLUSIVE"


def test_the_budget_of_a_search_pays_for_scoring_its_winner_once_more(project):
    space = SPACE.replace("confirm: null\n", "confirm: {seeds: 0}\n")
    warm = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    temperature: 1.0")
    search, budget = "{kind: random, params: {arms: 9}}", "budget: {arms: 3}\n"
    result = searched(project, search, space=space, more=budget, metadata=warm).run()
    assert len([arm for arm in result.arms if arm.purpose == "candidate"]) == 2
    assert result.status == "completed"


def test_the_referee_gets_its_share_and_the_record_says_whose_an_arm_is(project, plugin):
    plugin(
        f"return [{{'{RATE}': round(0.01 + 0.01 * len(history), 3), 'algorithm.params.lora_rank': 8}}] if len(history) < 6 else []"
    )
    result = searched(project, "{kind: own, referee: 0.34}").run()
    made = proposals(result.directory)
    assert [one["by"] for one in made] == ["own", "own", "referee", "own", "own", "referee"]
    assert facts(result.directory)["search"]["referee"] == 2


def test_a_search_ends_in_the_confirmation_of_its_winner(project):
    space = SPACE.replace("confirm: null", "confirm: {seeds: 1}").replace("low: 1e-3", "low: 0.02")
    project.tasks([(f"t{i:02d}", f"say {c}", c) for i, c in enumerate("abcdefghabcdefgh")])
    result = searched(
        project, "{kind: random, params: {arms: 3}}", space=space.replace("steps: 6", "steps: 18")
    ).run()
    assert [arm.purpose for arm in result.arms].count("confirm") == 1
    assert result.conclusion.verdict == "SUPPORTED"


# --- taken up again ---------------------------------------------------------------------------------------------------


def story(directory):
    """What a search decided: its proposals and its answers."""
    judged = read_jsonl(Path(directory) / judged_scores.JUDGED, missing_ok=True)
    return proposals(directory), [{k: v for k, v in one.items() if k != "time"} for one in judged]


def scores(result):
    return [
        (arm.run_id, arm.run.steps, arm.evaluations[-1].metrics["mean_reward"].value) for arm in result.arms
    ]


ASHA = "{kind: asha, params: {sampler: grid, points: 2, min_steps: 1, reduction_factor: 2}}"


@pytest.fixture
def steps(project):
    project.tasks([(f"t{i:02d}", f"say {c}", c) for i, c in enumerate("abcdefghabcdefgh")])


@pytest.mark.usefixtures("steps")
def test_a_stopped_arm_is_a_result_and_says_why(project):
    result = searched(project, ASHA, metadata=IN_LOOP).run()
    stopped = [arm for arm in result.arms if arm.run.stop_reason]
    assert stopped
    assert len(stopped) < len(result.arms)
    for arm in stopped:
        assert arm.status == "completed"
        assert arm.run.steps < 6
        assert arm.run.stop_reason.startswith("search: asha stopped it by its score at step")
    assert result.status == "completed"


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("at", [1, 2, 3, 5, 8])
def test_cut_off_behind_any_decision_it_makes_the_same_choices(project, monkeypatch, at):
    from evsys_record.jsonl import JsonlWriter

    whole = searched(project, ASHA, metadata=IN_LOOP).run()

    original, calls = JsonlWriter.write, []

    def cut(self, record):
        original(self, record)
        if self.path.name in ("proposals.jsonl", judged_scores.JUDGED):
            calls.append(1)
            if len(calls) == at:
                raise KeyboardInterrupt

    experiment = searched(project, ASHA, metadata=IN_LOOP)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(JsonlWriter, "write", cut)
        experiment.run()
    result = Experiment.resume(experiment.record.directory, quiet=True).run()

    assert len(calls) == at
    assert story(result.directory) == story(whole.directory)
    assert scores(result) == scores(whole)


def test_an_own_train_fn_has_no_arms_to_train(project):
    experiment = searched(project, "{kind: random}", train_fn=lambda _session: [])
    with pytest.raises(ConfigError, match="trains arms that are known beforehand"):
        experiment.run()
