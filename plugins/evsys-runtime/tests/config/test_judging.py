from pathlib import Path
from typing import Any

import pytest
from task_files import cached, native_task, task, write_tasks

from evsys.errors import DataError, RolloutError
from evsys_runtime.config.model import BenchmarkConfig, PluginSpec
from evsys_runtime.config.selection import BASE_MODEL

RUN = """\
run:
  data: {path: data/train.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: sft}
  backend: {kind: mock}
"""
VAL = "{path: data/val.jsonl}"
TEST = "{path: data/test.jsonl, split: test}"
TWICE = (
    "{path: data/val.jsonl, num_samples: 3, metrics: "
    "[{kind: pass@k, params: {pass_threshold: 0.5, k: 2}}, {kind: pass@k, params: {k: 3}}]}"
)


def file(metadata: str) -> str:
    return f"version: 1\nname: x\nmetadata: {metadata}\n{RUN}"


def only(problems: list[str]) -> str:
    assert len(problems) == 1, problems
    return problems[0]


# --- the success metric ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (f"{{benchmark: {VAL}}}", ("val", "mean_reward", "max")),
        (f"{{benchmark: [{VAL}, {TEST}], success_metric: val.pass_rate}}", ("val", "pass_rate", "max")),
        (f"{{benchmark: [{VAL}, {TEST}], success_metric: nll}}", ("val", "nll", "min")),
        ("{benchmark: {path: data/val.jsonl, name: a.b, metrics: [nll]}, success_metric: a.b.nll}", ("a.b", "nll", "min")),
        ("{benchmark: {path: data/val.jsonl, metrics: [pass@3], num_samples: 4}, success_metric: pass@3}", ("val", "pass@3", "max")),
        (f"{{benchmark: {TWICE}, success_metric: 'val.pass@k[k=3]'}}", ("val", "pass@k[k=3]", "max")),
        (f"{{benchmark: {TWICE}, success_metric: 'pass@k[k=2,pass_threshold=0.5]'}}", ("val", "pass@k[k=2,pass_threshold=0.5]", "max")),
        (f"{{benchmark: {TWICE}, success_metric: 'val.pass@k[k=2,pass_threshold=0.5]'}}", ("val", "pass@k[k=2,pass_threshold=0.5]", "max")),
        (f"{{benchmark: {TWICE}}}", ("val", "pass@k[k=2,pass_threshold=0.5]", "max")),
        (f"{{benchmark: {TEST}, success_metric: test.nll, allow_test_selection: true}}", ("test", "nll", "min")),
        ("{benchmark: {path: data/test.jsonl, split: test, allow_test_selection: true}, success_metric: test.nll}", ("test", "nll", "min")),
        (f"{{benchmark: {VAL}, success_metric: odd, direction: min}}", ("val", "odd", "min")),
        (f"{{benchmark: {VAL}, success_metric: nll, direction: min}}", ("val", "nll", "min")),
        (f"{{benchmark: [{VAL}, {{path: data/test.jsonl, tags: [test]}}], success_metric: pass_rate}}", ("val", "pass_rate", "max")),
    ],
)  # fmt: skip
def test_the_success_metric_is_found(load, metadata: str, expected: tuple):
    success = load(file(metadata)).success
    assert (success.benchmark, success.metric, success.direction) == expected


@pytest.mark.parametrize(
    "metadata", ["{}", f"{{benchmark: {TEST}}}", f"{{benchmark: [{VAL}, {{path: data/test.jsonl}}]}}"]
)
def test_without_a_success_metric_nothing_is_guessed_among_several_or_from_test(load, metadata: str):
    assert load(file(metadata)).success is None


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ("{success_metric: nll}", "$.metadata.success_metric: 'nll' names a number, but nothing is scored"),
        (f"{{benchmark: {VAL}, success_metric: vall.nll}}", "no benchmark is called 'vall'; did you mean 'val.nll'?"),
        (f"{{benchmark: {VAL}, success_metric: quite.different}}", "no benchmark is called 'quite'; benchmarks: val"),
        (f"{{benchmark: [{VAL}, {{path: data/test.jsonl}}], success_metric: nll}}", "'nll' could be of any of 2 'val' benchmarks; write one of val.nll, test.nll"),
        (f"{{benchmark: {TEST}, success_metric: nll}}", "'nll' is read from a 'val' entry, and there is none; 'test' entries: test"),
        (f"{{benchmark: [{VAL}, {TEST}], success_metric: test.nll}}", "'test' is a 'test' entry, and choosing by it would spoil it; choose a 'val' entry, or set metadata.allow_test_selection: true"),
        ("{benchmark: {path: data/val.jsonl, metrics: [nll]}, success_metric: nl}", "'val' has no metric 'nl', only nll; did you mean 'nll'?"),
        ("{benchmark: {path: data/val.jsonl, metrics: [nll]}, success_metric: val.pass_rate}", "'val' has no metric 'pass_rate', only nll; add it to the metrics of 'val'"),
        (f"{{benchmark: {TWICE}, success_metric: 'val.pass@k[k=4]'}}", "'val' has no metric 'pass@k[k=4]', only pass@k[k=2,pass_threshold=0.5], pass@k[k=3]; did you mean 'pass@k[k=3]'?"),
        (f"{{benchmark: {TWICE}, success_metric: val.pass@k}}", "'val' has no metric 'pass@k', only pass@k[k=2,pass_threshold=0.5], pass@k[k=3]"),
        (f"{{benchmark: {TWICE}, success_metric: 'vall.pass@k[k=3]'}}", "no benchmark is called 'vall'; did you mean 'val.pass@k[k=3]'?"),
        (f"{{benchmark: {VAL}, success_metric: pass_rat}}", "no metric is called 'pass_rat'; did you mean 'pass_rate'?"),
        (f"{{benchmark: {VAL}, success_metric: nll, direction: max}}", "$.metadata.direction: 'direction' is 'max', but for 'nll' 'min' is better"),
        (f"{{benchmark: {VAL}, success_metric: nll, direction: up}}", "$.metadata.direction: expected 'max' or 'min'"),
        (f"{{benchmark: {VAL[:-1]}, num_samples: 1}}, success_metric: pass@3}}", "$.metadata.success_metric: pass@3 needs 3 samples of each task, and 'num_samples' is 1"),
    ],
)  # fmt: skip
def test_a_success_metric_that_cannot_decide_is_refused(problems, metadata: str, message: str):
    assert message in only(problems(file(metadata)))


def test_a_misspelt_metric_of_an_entry_is_reported_there_alone(problems):
    text = file("{benchmark: {path: data/val.jsonl, metrics: [pass_rat]}, success_metric: val.pass_rate}")
    assert "no metric is called 'pass_rat'; did you mean 'pass_rate'?" in only(problems(text))


def test_a_metric_without_direction_counts_as_max_with_a_warning(load):
    plan = load(file(f"{{benchmark: {VAL}, success_metric: odd}}"))
    assert (plan.success.direction, plan.success.declared) == ("max", False)
    assert plan.warnings == ("the metric 'odd' doesn't declare which way is better; taken as 'max'",)


def test_a_metric_with_an_impossible_direction_is_refused(problems, registry):
    class Sideways(registry.get("metric", "odd")):
        direction = "sideways"

    registry.register("metric", "sideways", Sideways)
    assert "declares the direction 'sideways'" in only(
        problems(file(f"{{benchmark: {VAL}, success_metric: sideways}}"))
    )


def test_an_entry_without_metrics_gets_the_success_metric_only_where_it_is_its_own(load):
    """The second entry draws samples enough for pass@2, and yet nobody asked for it there."""
    plan = load(
        file(
            "{benchmark: [{path: data/val.jsonl, num_samples: 3}, {path: data/test.jsonl, split: test, num_samples: 3}], success_metric: val.pass@2}"
        )
    )
    assert [entry.metrics for entry in plan.experiment.metadata.benchmarks] == [("pass@2",), ("mean_reward",)]
    assert plan.arms[0].benchmarks == plan.experiment.metadata.benchmarks


# --- the baseline ----------------------------------------------------------------------------------------------------------

MATRIX = RUN.replace("run:", "base_run:", 1) + "matrix: {axes: {algorithm.params.lora_rank: [4, 8]}}\n"


def test_the_baseline_names_an_arm_or_the_untrained_model(load, problems):
    def text(baseline: str) -> str:
        return f"version: 1\nname: x\nmetadata: {{baseline: {baseline}}}\n{MATRIX}"

    assert load(text("base_model")).experiment.metadata.baseline == BASE_MODEL
    assert load(text("lora_rank-4")).experiment.metadata.baseline == "lora_rank-4"
    assert load(text("LoRA_rank 4")).experiment.metadata.baseline == "lora_rank-4"
    assert only(problems(text("lora_rnk-4"))) == (
        "exp.yaml:3:12: $.metadata.baseline: no arm is called 'lora_rnk-4'; did you mean 'lora_rank-4'?"
    )
    assert "no arm is called 'zzz'; arms: lora_rank-4, lora_rank-8; or base_model" in only(
        problems(text("zzz"))
    )


def test_arms_that_start_from_different_models_need_a_named_baseline(load, problems):
    arms = MATRIX.replace("algorithm.params.lora_rank: [4, 8]", "model.name: [a, b, b2]")
    text = f"version: 1\nname: x\nmetadata: {{benchmark: {VAL}%s}}\n{arms}"
    assert (
        "the arms start from 3 different models, so 'base_model' is not a common baseline; name an arm"
        in only(problems(text.replace("%s", "")))
    )
    assert load(text.replace("%s", ", baseline: name-b")).experiment.metadata.baseline == "name-b"
    assert load(f"version: 1\nname: x\n{arms}").warnings == ()


# --- entries ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "split"),
    [
        (VAL, "val"),
        ("{path: data/val.jsonl, split: test}", "test"),
        ("{path: data/val.jsonl, tags: [val]}", "val"),
        ("{path: data/val.jsonl, tags: [test]}", "test"),
        ("{path: data/val.jsonl, tags: [test], split: test}", "test"),
    ],
)
def test_an_entry_is_val_unless_it_says_otherwise(load, entry: str, split: str):
    assert load(file(f"{{benchmark: {entry}}}")).experiment.metadata.benchmarks[0].split == split


def test_one_entry_may_stand_alone_or_in_a_list(load):
    one = load(file(f"{{benchmark: {VAL}}}")).experiment.metadata.benchmarks
    assert load(file(f"{{benchmark: [{VAL}]}}")).experiment.metadata.benchmarks == one


def test_labels_come_from_name_id_or_path(load, project: Path):
    (project / "data" / "topics").mkdir()
    (project / "data" / "topics" / "tasks.jsonl").write_bytes((project / "data" / "val.jsonl").read_bytes())
    cached(project, "abc", [task("a")])
    write_tasks(folder(project / "data" / "benchmark" / "stored") / "tasks.jsonl", [task("a")])
    entries = "[{path: data/val.jsonl}, {path: data/val.jsonl, name: mine}, {path: data/topics}, {path: data/topics/tasks.jsonl, name: t}, {id: abc}, {name: stored}]"
    plan = load(file(f"{{benchmark: {entries}}}"))
    assert [entry.label for entry in plan.experiment.metadata.benchmarks] == [
        "val",
        "mine",
        "topics",
        "t",
        "abc",
        "stored",
    ]


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        (["a", {"kind": "b", "params": {"x": 1}}], ["a", "b"]),
        (["a", {"kind": "a", "params": {"x": 1}}], ["a", "a[x=1]"]),
        ([{"kind": "a", "params": {"y": "w", "x": True}}, "a"], ["a[x=true,y=w]", "a"]),
        ([{"kind": "a", "params": {"x": "1"}}, {"kind": "a", "params": {"x": 1}}], ['a[x="1"]', "a[x=1]"]),
        (
            [{"kind": "a", "params": {"x": {"d": [1, 2], "c": "é"}}}, {"kind": "a", "params": {"x": None}}],
            ['a[x={"c":"é","d":[1,2]}]', "a[x=null]"],
        ),
    ],
)
def test_a_metric_is_called_by_its_kind_and_by_its_params_too_where_that_is_listed_again(metrics, names):
    specs = [each if isinstance(each, str) else PluginSpec(**each) for each in metrics]
    assert BenchmarkConfig(path="x.jsonl", metrics=tuple(specs)).metric_names == tuple(names)


@pytest.mark.parametrize(
    ("metadata", "samples", "temperature"),
    [
        ("{benchmark: {path: data/val.jsonl, metrics: [pass@1, pass@3]}}", 3, 1.0),
        ("{benchmark: {path: data/val.jsonl, metrics: [pass@1]}}", 1, 0.0),
        ("{benchmark: {path: data/val.jsonl, metrics: [{kind: pass@k, params: {k: 2}}, pass@4], temperature: 0.5}}", 4, 0.5),
        ("{benchmark: {path: data/val.jsonl, metrics: [pass@3], num_samples: 8}}", 8, 1.0),
        ("{benchmark: {path: data/val.jsonl}, success_metric: pass@3}", 3, 1.0),
        ("{benchmark: {path: data/val.jsonl}}", 1, 0.0),
    ],
)  # fmt: skip
def test_an_entry_draws_the_samples_that_its_metrics_need(load, metadata, samples, temperature):
    (entry,) = load(file(metadata)).experiment.metadata.benchmarks
    assert (entry.num_samples, entry.temperature) == (samples, temperature)


def test_temperature_depends_on_the_number_of_samples_unless_given(load):
    entries = "[{path: data/val.jsonl}, {path: data/val.jsonl, name: b, num_samples: 4}, {path: data/val.jsonl, name: c, num_samples: 4, temperature: 0}]"
    plan = load(file(f"{{benchmark: {entries}}}"))
    assert [entry.temperature for entry in plan.experiment.metadata.benchmarks] == [0.0, 1.0, 0.0]
    assert plan.warnings == ("benchmark 'c': at temperature 0 all 4 samples of a task are the same",)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{}", "$.metadata.benchmark: names no tasks; give 'path', 'id', or the 'name' of a stored benchmark"),
        ("{path: data/none.jsonl, id: x}", "$.metadata.benchmark.path: there is no file data/none.jsonl"),
        ("{id: x}", "$.metadata.benchmark.id: no benchmark 'x' in data or the cache; known: none yet"),
        ("{name: x}", "$.metadata.benchmark.name: no benchmark 'x' in data or the cache; known: none yet"),
        ("{path: data/vla.jsonl}", "$.metadata.benchmark.path: there is no file data/vla.jsonl; did you mean 'val.jsonl'"),
        (f"[{VAL}, {VAL}]", "$.metadata.benchmark[1]: two entries are called 'val', the other at $.metadata.benchmark[0]; give it a 'name'"),
        ("{path: data/val.jsonl, tags: [val, test]}", "$.metadata.benchmark.tags: an entry is 'val' or 'test', not both"),
        ("{path: data/val.jsonl, tags: [val], split: test}", "$.metadata.benchmark.tags: 'tags' says 'val' and 'split' 'test'"),
        ("{path: data/val.jsonl, tags: [easy]}", "$.metadata.benchmark.tags[0]: expected 'val' or 'test', got 'easy'"),
        ("{path: data/val.jsonl, split: dev}", "$.metadata.benchmark.split: expected 'val' or 'test', got 'dev'"),
        ("{path: data/val.jsonl, metrics: [pass@5], num_samples: 4}", "exp.yaml:3:56: $.metadata.benchmark.metrics[0]: pass@5 needs 5 samples of each task, and 'num_samples' is 4; set num_samples: 5 or more"),
        ("{path: data/val.jsonl, metrics: [{kind: pass@k, params: {k: 9}}], num_samples: 4}", "pass@k needs 9 samples"),
        ("{path: data/val.jsonl, metrics: [mean_rewrd]}", "exp.yaml:3:56: $.metadata.benchmark.metrics[0]: no metric is called 'mean_rewrd'; did you mean 'mean_reward'?"),
        ("{path: data/val.jsonl, metrics: [{kind: pass@3, params: {thresh: 1}}], num_samples: 3}", "$.metadata.benchmark.metrics[0].params.thresh: unknown key 'thresh'"),
        ("{path: data/val.jsonl, num_samples: 3, metrics: [{kind: pass@k, params: {k: 2}}, {kind: pass@k, params: {k: 2}}]}", "$.metadata.benchmark.metrics[1]: the metric 'pass@k[k=2]' is listed twice; keep one"),
        ("{path: data/val.jsonl, num_samples: 3, metrics: [{kind: pass@k, params: {k: 2}}, {kind: pass@k, params: {k: 4}}]}", "$.metadata.benchmark.metrics[1]: pass@k[k=4] needs 4 samples of each task"),
        ("{path: data/val.jsonl, metrics: [pass_rate, pass_rate]}", "$.metadata.benchmark.metrics[1]: the metric 'pass_rate' is listed twice"),
        ("{path: data/val.jsonl, engine: harbor}", "$.metadata.benchmark.engine: no rollout_engine is called 'harbor'; install it with: pip install 'evsys-sdk[harbor]'"),
        ("{path: data/val.jsonl, engine: {kind: dirct}}", "$.metadata.benchmark.engine.kind: no rollout_engine is called 'dirct'; did you mean 'direct'?"),
        ("{path: data/val.jsonl, engine: direct, system_prompt: hi}", "$.metadata.benchmark.system_prompt: engine 'direct' would ignore 'system_prompt'"),
        ("{path: data/val.jsonl, agent: {kind: chatt}}", "$.metadata.benchmark.agent.kind: no agent is called 'chatt'"),
        ("{path: data/val.jsonl, inference: {kind: openai}}", "$.metadata.benchmark.inference.kind: no inference_client is called 'openai'"),
        ("{path: data/val.jsonl, breakdown_keys: [topc]}", "$.metadata.benchmark.breakdown_keys[0]: no task of data/val.jsonl has 'topc' in its metadata; did you mean 'topic'?"),
        ("{path: data/val.jsonl, cluster_key: source}", "$.metadata.benchmark.cluster_key: no task of data/val.jsonl has 'source' in its metadata; their metadata has: topic"),
        ("{path: data/val.jsonl, num_samples: 0}", "'num_samples' must be >= 1"),
        ("{path: data/val.jsonl, temperature: -1}", "'temperature' must be >= 0"),
        ("[{path: data/val.jsonl}, 3]", "expected"),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_scored_is_refused(problems, entry: str, message: str):
    assert message in only(problems(file(f"{{benchmark: {entry}}}")))


def test_good_entries_are_checked_beside_a_bad_one(problems):
    found = "\n".join(
        problems(
            file(
                "{benchmark: [{path: data/val.jsonl, num_samples: 0}, {path: data/test.jsonl, metrics: [zzz]}], baseline: nobody}"
            )
        )
    )
    assert "'num_samples' must be >= 1" in found
    assert "no metric is called 'zzz'" in found
    assert "no arm is called 'nobody'" in found


# --- task files ------------------------------------------------------------------------------------------------------------


def tasks(project: Path, *lines: str) -> None:
    """Write these lines, and behind them tasks enough to decide something."""
    more = [GOOD.replace('"a", "inst', f'"more{n}", "metadata": {{"topic": 1}}, "inst') for n in range(10)]
    (project / "data" / "val.jsonl").write_text("\n".join([*lines, *more]) + "\n", encoding="utf-8")


GOOD = '{"task_id": "a", "instruction": "say a", "verifier": {"name": "exact_match", "expected": "a"}}'


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        ((GOOD, GOOD), 2, "'a'"),
        ((GOOD, '{"task_id": "b", "instruction": "x"}'), 2, "verifier"),
        ((GOOD, "", '{"task_id": "b", '), 3, ""),
        ((GOOD, "[]"), 2, ""),
    ],
)
def test_a_file_of_tasks_that_cannot_be_used_is_a_data_error_with_file_and_line(
    load, project: Path, lines, line, message
):
    tasks(project, *lines)
    with pytest.raises(DataError) as caught:
        load(file(f"{{benchmark: {VAL}}}"))
    assert (caught.value.source, caught.value.line) == ("data/val.jsonl", line)
    assert message in str(caught.value)


def test_it_is_listed_with_the_problems_the_experiment_file_where_there_are_some(problems, project: Path):
    tasks(project, GOOD, GOOD)
    found = problems(file(f"{{benchmark: {VAL}, baseline: nobody}}"))
    assert len(found) == 2
    assert any(text.startswith("data/val.jsonl:2: $.metadata.benchmark.path: ") for text in found)


@pytest.mark.parametrize(
    ("verifier", "message"),
    [
        ('{"name": "exact_mtch", "expected": "a"}', "data/val.jsonl:2: $.metadata.benchmark.path: task 'b': no verifier is called 'exact_mtch'; did you mean 'exact_match'?"),
        ('{"name": "exact_match", "expected": "a", "params": {"strp": true}}', "data/val.jsonl:2: $.metadata.benchmark.path: task 'b': params.strp: unknown key 'strp'; did you mean 'strip'?"),
        ('{"name": "exact_match", "expected": null}', "data/val.jsonl:2: $.metadata.benchmark.path: task 'b': verifier 'exact_match' can't judge by what it expects: nothing is expected"),
    ],
)  # fmt: skip
def test_verifiers_of_tasks_are_checked_and_named_with_file_and_line(
    problems, project: Path, verifier: str, message: str
):
    tasks(project, GOOD, f'{{"task_id": "b", "instruction": "x", "verifier": {verifier}}}')
    assert message in only(problems(file(f"{{benchmark: {VAL}}}")))


def test_a_verifier_that_is_a_function_takes_any_params(load, project: Path):
    tasks(
        project,
        '{"task_id": "b", "instruction": "x", "verifier": {"name": "plain", "params": {"anything": 1}}}',
    )
    assert load(file(f"{{benchmark: {VAL}}}"))


def test_the_same_unknown_verifier_in_many_tasks_is_reported_once(problems, project: Path):
    tasks(
        project,
        *(f'{{"task_id": "t{n}", "instruction": "x", "verifier": {{"name": "zzz"}}}}' for n in range(50)),
    )
    assert "task 't0': no verifier is called 'zzz'" in only(problems(file(f"{{benchmark: {VAL}}}")))


def test_tasks_that_lack_a_key_that_others_have_are_a_warning(load, project: Path):
    tasks(
        project,
        GOOD.replace('"a", "inst', '"a", "metadata": {"topic": 1}, "inst'),
        GOOD.replace('"a", "inst', '"b", "inst'),
    )
    warnings = load(file("{benchmark: {path: data/val.jsonl, breakdown_keys: [topic]}}")).warnings
    assert "benchmark 'val': 1 tasks have no 'topic'" in warnings


def test_tasks_that_ask_the_same_are_a_warning(load, project: Path):
    tasks(project, *(GOOD.replace('"a", "inst', f'"{n}", "inst') for n in range(12)))
    (warning,) = load(file("{benchmark: {path: data/val.jsonl}}")).warnings
    assert "equal tasks count as one observation, and on fewer than 10 the verdict is INVALID" in warning


async def answer(messages, sampling, *, n=1, tools=()):
    raise NotImplementedError


def test_a_path_next_to_an_id_is_the_fallback(load, problems, project: Path):
    entry = "{benchmark: {name: goal, id: goal-1, path: data/val.jsonl}}"
    plan = load(file(entry))
    assert (
        "benchmark 'goal-1' isn't in the project or its cache; data/val.jsonl is read instead"
        in plan.warnings
    )
    assert plan.experiment.metadata.benchmarks[0].label == "goal"
    cached(project, "goal-1", [task("a", verifier={"name": "zzz"}), *map(task, "bcdefghij")])
    assert only(problems(file(entry))).startswith("goal-1:1: $.metadata.benchmark.id: task 'a'")


def test_an_entry_that_another_model_answers_cannot_decide(load, problems, registry):
    registry.register("inference_client", "parrot", type("Parrot", (), {"generate": staticmethod(answer)}))
    entry = "{path: data/val.jsonl, inference: {kind: parrot}}"
    found = only(problems(file(f"{{success_metric: val.mean_reward, benchmark: {entry}}}")))
    assert found.startswith(
        "exp.yaml:3:12: $.metadata.success_metric: 'val' is answered by its own 'inference'"
    )
    assert load(file(f"{{benchmark: {entry}}}")).success is None
    both = f"[{entry}, {{name: own, path: data/val.jsonl}}]"
    assert str(load(file(f"{{benchmark: {both}}}")).success) == "own.mean_reward"


# --- stored benchmarks -----------------------------------------------------------------------------------------------------


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_a_stored_benchmark_is_found_by_name_or_id_and_its_tasks_are_looked_at(load, problems, project: Path):
    own = folder(project / "data" / "validation" / "topics")
    write_tasks(own / "tasks.jsonl", [task(name) for name in "abcdefghij"])
    cached(project, "pulled-0a1b", [task("a", verifier={"name": "zzz"}), *map(task, "bcdefghij")])
    for name in ("topics", "validation/topics"):
        assert load(file(f"{{benchmark: {{name: {name}}}}}"))
    assert only(problems(file("{benchmark: {name: topcs}}"))).startswith(
        "exp.yaml:3:24: $.metadata.benchmark.name: no benchmark 'topcs' in data or the cache; did you mean 'topics'? "
    )
    assert only(problems(file("{benchmark: {id: pulled-0a1b}}"))).startswith(
        "pulled-0a1b:1: $.metadata.benchmark.id: task 'a': no verifier is called 'zzz'"
    )
    folder(project / "data" / "benchmark" / "topics")
    write_tasks(project / "data" / "benchmark" / "topics" / "tasks.jsonl", [task("a")])
    assert "two benchmarks are called 'topics'; write benchmark/topics or validation/topics" in only(
        problems(file("{benchmark: {name: topics}}"))
    )


def test_no_store_serves_benchmarks_while_a_run_goes_on(problems):
    found = problems(file("{benchmark: {id: abc}}") + "data_store: {kind: local}\n")
    assert "no benchmark 'abc'" in only(found)


# --- tasks enough to decide ------------------------------------------------------------------------------------------------


def some(project: Path, count: int, **metadata: Any) -> None:
    each = [task(f"t{n}", metadata={key: of(n) for key, of in metadata.items()}) for n in range(count)]
    write_tasks(project / "data" / "val.jsonl", each)


def test_fewer_tasks_than_anything_can_be_decided_on_are_refused_where_they_decide(
    load, problems, project: Path
):
    some(project, 9)
    assert only(problems(file(f"{{benchmark: {VAL}}}"))) == (
        "exp.yaml:3:12: $.metadata.benchmark: data/val.jsonl holds 9 tasks, and nothing can be decided on fewer than 10; "
        "add tasks, or set split: test, which is reported and decides nothing"
    )
    assert load(file("{benchmark: {path: data/val.jsonl, split: test}}")).warnings == ()
    assert load(file(f"{{benchmark: [{VAL}, {{path: data/test.jsonl}}], success_metric: test.nll}}"))
    some(project, 10)
    assert load(file(f"{{benchmark: {VAL}}}")).warnings == ()


def test_a_limit_that_leaves_too_few_tasks_is_a_warning(load):
    plan = load(file("{benchmark: {path: data/val.jsonl, limit: 5}}"))
    assert plan.warnings == (
        "benchmark 'val': 'limit' leaves 5 tasks; on fewer than 10 the verdict is INVALID",
    )
    assert load(file("{benchmark: {path: data/val.jsonl, limit: 10}}")).warnings == ()


@pytest.mark.parametrize(
    ("clusters", "arms", "told"), [(6, 1, False), (5, 1, True), (6, 2, True), (7, 2, False)]
)
def test_too_few_clusters_for_any_difference_to_be_significant_are_a_warning(
    load, project: Path, clusters: int, arms: int, told: bool
):
    some(project, 20, topic=lambda n: n % clusters)
    runs = "".join(
        f"  - {{name: a{n}, data: {{path: data/train.jsonl}}, model: {{name: evsys/tiny}}, algorithm: {{kind: sft}}, "
        f"backend: {{kind: mock}}, seed: {n}}}\n"
        for n in range(arms)
    )
    metadata = "{benchmark: {path: data/val.jsonl, cluster_key: topic}}"
    plan = load(f"version: 1\nname: x\nmetadata: {metadata}\nruns:\n{runs}")
    assert any(f"its tasks fall into {clusters} clusters" in warning for warning in plan.warnings) is told
    # The smallest p-value that the test can give with so many clusters, corrected for the arms.
    assert (arms * 2 / 2**clusters > 0.05) is told


# --- what is scored --------------------------------------------------------------------------------------------------------


def test_keys_are_looked_for_in_the_tasks_that_are_scored(problems, project: Path):
    some(project, 12)
    later = [task(f"t{n}", metadata={"level": 1} if n > 9 else {}) for n in range(12)]
    write_tasks(project / "data" / "val.jsonl", later)
    found = problems(
        file("{benchmark: {path: data/val.jsonl, limit: 10, limit_by: first, breakdown_keys: [level]}}")
    )
    assert "no scored task of data/val.jsonl has 'level' in its metadata" in only(found)


def test_a_second_system_message_is_refused(problems, project: Path):
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"}]
    write_tasks(project / "data" / "val.jsonl", [task(name, instruction=said) for name in "abcdefghij"])
    found = problems(file("{benchmark: {path: data/val.jsonl, system_prompt: Be long.}}"))
    assert only(found) == (
        "data/val.jsonl:1: $.metadata.benchmark.path: task 'a': it has a system message, and the entry sets "
        "'system_prompt' too (and 9 more tasks like it)"
    )


def test_what_needs_a_place_to_act_needs_an_engine_that_runs_it(problems, project: Path):
    """The registry of these tests has no engine `harbor`, as an installation without the extra has none."""
    for name in "abcdefghij":
        native_task(project / "data" / "suite" / name)
    folders = [{"task_id": name, "path": f"data/suite/{name}"} for name in "abcdefghij"]
    write_tasks(project / "data" / "val.jsonl", folders)
    wanted = "no rollout_engine is called 'harbor'; install it with: pip install 'evsys-sdk[harbor]'"
    for entry, why in {
        "{path: data/suite}": "tasks in folders need it",
        VAL: "tasks in folders need it",
        "{path: data/other.jsonl, environment: {kind: bwrap}}": "an environment needs it",
    }.items():
        write_tasks(project / "data" / "other.jsonl", [task(name) for name in "abcdefghij"])
        found = problems(file(f"{{benchmark: {entry}}}"))
        assert f"$.metadata.benchmark.engine: {why}: {wanted}" in only(found)


def test_an_engine_says_what_it_cannot_run(load, problems, registry):
    class Picky:
        name = "picky"

        def check_work(self, tasks, environment, harness):
            if environment is not None:
                raise RolloutError(
                    f"no {environment.kind}, not even for {len(tasks)} tasks", hint="stay here"
                )

        def run(self, tasks, policy, limits): ...

    registry.register("rollout_engine", "picky", Picky)
    assert load(file("{benchmark: {path: data/val.jsonl, engine: picky}}"))
    found = problems(
        file("{benchmark: {path: data/val.jsonl, engine: picky, limit: 10, environment: {kind: moon}}}")
    )
    assert "$.metadata.benchmark.engine: no moon, not even for 10 tasks; stay here" in only(found)


def test_a_broken_native_task_is_named_with_its_file_and_line(load, project: Path):
    for name in "ab":
        native_task(project / "data" / "suite" / name)
    broken = project / "data" / "suite" / "b" / "task.toml"
    broken.write_text('schema_version = "1.4"\n[agent\n', encoding="utf-8")
    with pytest.raises(DataError, match="broken TOML: ") as caught:
        load(file("{benchmark: {path: data/suite}}"))
    assert (caught.value.source, caught.value.line) == ("data/suite/b/task.toml", 2)


# --- rows that transforms make tasks of ------------------------------------------------------------------------------------


def test_transforms_of_an_entry_are_built_and_make_its_tasks(load, problems, project: Path, registry):
    write_tasks(project / "data" / "rows.jsonl", [{"q": f"say {name}"} for name in "abcdefghij"])

    class Tasks(registry.get("transform", "jsonl_to_chat")):
        def __call__(self, rows):
            for row in rows:
                yield {
                    "task_id": row["q"],
                    "instruction": row["q"],
                    "verifier": {"name": self.fields["column"]},
                }

    registry.register("transform", "tasks", Tasks)

    def text(params: str) -> str:
        return file(
            f"{{benchmark: {{path: data/rows.jsonl, transforms: [{{kind: tasks, params: {{{params}}}}}]}}}}"
        )

    assert load(text("column: plain"))
    unknown = "$.metadata.benchmark.transforms[0].params.colum: unknown key 'colum'"
    assert unknown in only(problems(text("colum: plain")))
    assert "task 'say a': no verifier is called 'zzz'" in only(problems(text("column: zzz")))


# --- what a callback monitors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "monitor", "message", "hint"),
    [
        (
            "path: data/val.jsonl, run_every: 5",
            "val.mean_rewrad",
            "'val' has no metric 'mean_rewrad'",
            "val.mean_reward",
        ),
        (
            "path: data/val.jsonl, run_every: 5",
            "vla.mean_reward",
            "called 'vla.mean_reward'",
            "val.mean_reward",
        ),
        ("path: data/val.jsonl, run_every: 5", "val.accuracy", "only mean_reward", "metrics of 'val'"),
        ("path: data/val.jsonl", "val.mean_reward", "when the training is over", "run_every"),
        (
            "path: data/test.jsonl, split: test, run_every: 5",
            "test.mean_reward",
            "'test' entry",
            "'val' entry",
        ),
    ],
)
def test_a_monitored_number_that_a_run_never_has_is_refused(
    problems, entry: str, monitor: str, message: str, hint: str
):
    callback = f"callbacks: [{{kind: watching, params: {{monitor: {monitor}}}}}]\n"
    problem = only(problems(file(f"{{benchmark: {{{entry}}}}}") + callback))
    assert "$.callbacks[0].params" in problem
    assert message in problem
    assert hint in problem


@pytest.mark.parametrize("monitor", ["val.mean_reward", "loss", "reward.format"])
def test_a_score_or_what_may_be_a_training_metric_can_be_monitored(load, monitor: str):
    entry = "{benchmark: {path: data/val.jsonl, run_every: 5}}"
    callback = f"callbacks: [{{kind: watching, params: {{monitor: {monitor}}}}}]\n"
    load(file(entry) + callback)


# --- the claim -------------------------------------------------------------------------------------------------------------

TWO_RUNS = "runs:\n" + "".join(
    f"  - {{name: {name}, seed: {seed}, data: {{path: data/train.jsonl}}, model: {{name: evsys/tiny}}, "
    "algorithm: {kind: sft}, backend: {kind: mock}}\n"
    for name, seed in (("wide", 3), ("deep", 4))
)


def claimed(metadata: str) -> str:
    return f"version: 1\nname: x\nmetadata: {{benchmark: {VAL}, {metadata}}}\n{TWO_RUNS}"


@pytest.mark.parametrize(
    ("metadata", "claim", "margin"),
    [
        ("baseline: wide", "better", 0.0),
        ("minimum_effect: 0.1", "better", 0.1),
        ("margin: 0.1", "better", 0.1),
        ("claim: no_worse, margin: 0.05", "no_worse", 0.05),
        ("claim: equal, margin: 0.05", "equal", 0.05),
        ("claim: worse", "worse", 0.0),
    ],
)
def test_a_claim_has_a_margin(load, metadata: str, claim: str, margin: float):
    made = load(claimed(metadata)).experiment.metadata
    assert (made.claim, made.claimed_margin) == (claim, margin)


def test_a_contrast_names_the_baseline_and_the_arm_that_is_compared(load):
    made = load(claimed("contrast: {arm: deep, against: wide}")).experiment.metadata
    assert (made.baseline, made.contrast.arm, made.contrast.against) == ("wide", "deep", "wide")
    made = load(claimed("contrast: {arm: deep}")).experiment.metadata
    assert (made.baseline, made.contrast.against) == (BASE_MODEL, BASE_MODEL)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ("claim: equal", "needs a margin above 0"),
        ("claim: no_worse, margin: 0", "needs a margin above 0"),
        ("claim: worse, minimum_effect: 0.1", "'minimum_effect' belongs to the claim 'better'"),
        ("margin: 0.2, minimum_effect: 0.1", "'margin' is 0.2 and 'minimum_effect' is 0.1"),
        ("contrast: {arm: depe}", "no arm is called 'depe'"),
        ("contrast: {arm: deep, against: wied}", "no arm is called 'wied'"),
        ("contrast: {arm: deep, against: deep}", "compared with itself"),
        ("baseline: wide, contrast: {arm: deep, against: base_model}", "'baseline' is 'wide'"),
    ],
)
def test_a_claim_that_cannot_be_tested_is_refused(problems, metadata: str, words: str):
    assert words in only(problems(claimed(metadata)))


def test_a_metric_of_ones_own_draws_as_many_samples_as_its_name_says(load, registry):
    class Best:
        direction = "max"

        def compute(self, task_rewards):
            return sum(max(rewards) for rewards in task_rewards) / len(task_rewards)

    class Any_(Best):
        needs_samples = 1

    registry.register("metric", "best@2", Best)
    registry.register("metric", "any@4", Any_)
    for metric, samples in (("best@2", 2), ("any@4", 1)):
        plan = load(file(f"{{benchmark: {{path: data/val.jsonl, metrics: [{metric}]}}}}"))
        assert [entry.num_samples for entry in plan.experiment.metadata.benchmarks] == [samples]


def test_an_entry_cant_have_the_name_of_a_proof(problems):
    (problem,) = problems(file("{benchmark: {name: val@selected, path: data/val.jsonl}}"))
    assert "'val@selected' is the name of another entry's proof" in problem
