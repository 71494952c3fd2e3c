"""Experiment files, and values from the command line, that are wrong: refused at once, with place and remedy."""

from __future__ import annotations

import json
import re

import pytest
from lab import CONFIG

BOMB = "\n".join(f"k{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 10)}]" for n in range(7)) + "\n"


# --- the file itself ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", r"config\.yaml: the file is empty; `evsys new-experiment` writes one", id="empty"),
        pytest.param(b"# later\n", r"config\.yaml: the file is empty", id="only a comment"),
        pytest.param(bytes(range(256)), r"config\.yaml:2: byte \d+ isn't UTF-8; save the file as UTF-8", id="binary"),
        pytest.param(CONFIG.encode("utf-16"), r"the file is UTF-16; save it as UTF-8", id="utf-16"),
        pytest.param(b"name: caf\xe9\n", r"config\.yaml:1: byte 9 isn't UTF-8", id="latin-1"),
        pytest.param(b"name: a\x00b\n", r"config\.yaml:1:8: .*U\+0000 is not accepted; remove it", id="null byte"),
        pytest.param(b"- a\n", r"config\.yaml:1:1: .* expected a mapping of keys to values, got a list", id="a list"),
        pytest.param(b"hello\n", r"got text", id="a word"),
        pytest.param(f"{CONFIG}---\n{CONFIG}".encode(), r":10:1: .*second YAML document", id="two documents"),
        pytest.param(BOMB.encode(), r"aliases unfold to more than 100,000 values", id="a bomb"),
        pytest.param(b"a: " + b"[" * 9999, r"config\.yaml:1:\d+: .*nested more than 100 levels", id="deep"),
        pytest.param(b"a: &x {b: *x}\n", r"\*x is inside the value that it refers to", id="itself"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_experiment_is_refused_with_its_line_and_leaves_nothing(lab, content, said):
    lab.config(text=content)
    lab.run().refused(2, said)
    lab.nothing_was_written()


def test_a_missing_file_names_the_one_that_is_meant_and_a_folder_the_file_in_it(lab):
    lab.evsys("run", "confg.yaml").refused(2, r"confg\.yaml: no such file; did you mean config\.yaml\?")
    lab.evsys("run", ".").refused(
        2, r"this is a folder; name the experiment file in it, for example config\.yaml"
    )
    (lab.root / "loop.yaml").symlink_to("loop.yaml")
    lab.evsys("run", "loop.yaml").refused(2, r"loop\.yaml: can't be read: ")


@pytest.mark.parametrize(
    "change", [lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n")], ids=["bom", "crlf"]
)
def test_a_byte_order_mark_and_windows_line_ends_are_no_fault(lab, change):
    lab.config(text=change(CONFIG))
    lab.validate().passed()


def test_nothing_is_ever_constructed_from_a_file(lab):
    lab.config(("name: trial", "name: !!python/object/apply:os.system ['touch made-by-yaml']"))
    lab.run().refused(2, r":2:7: \$\.name: the tag !!python/object/apply:os\.system is not accepted")
    assert not (lab.root / "made-by-yaml").exists()


# --- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["2e-5", "2E-5", "+2e-5", "2.0e-5", ".00002"])
def test_a_learning_rate_is_a_number_however_it_is_written(lab, written):
    lab.config(("learning_rate: 0.05", f"learning_rate: {written}"))
    lab.validate().passed()
    result = lab.run("--json").json
    assert result["status"] == "completed"
    assert lab.facts("resolved.json")["arms"][0]["run"]["algorithm"]["params"]["learning_rate"] == 2e-5


def test_a_learning_rate_in_quotes_is_no_number_and_told_so(lab):
    lab.config(("learning_rate: 0.05", "learning_rate: '2e-5'"))
    lab.run().refused(
        2, r":8:35: \$\.run\.algorithm\.params\.learning_rate: .*got '2e-5'; write 2e-05 without quotes"
    )


def test_a_key_given_twice_names_both_lines(lab):
    lab.config(also="  model: {name: evsys/tiny}\n")
    lab.run().refused(
        2, r":10:3: \$\.run\.model: the key 'model' is given twice, on lines 7 and 10; keep one"
    )
    lab.nothing_was_written()


def test_words_and_times_that_look_like_other_types_stay_text_where_text_is_meant(lab):
    lab.config(("name: trial", "name: on"), ("metadata:", "metadata:\n  tags: [no, 12:30:00, 2026-01-01, y]"))
    lab.run().passed()
    assert lab.facts()["tags"] == ["no", "12:30:00", "2026-01-01", "y"]
    assert lab.facts()["name"] == "on"


def test_words_and_times_in_params_are_text_and_numbers_are_those_of_yaml_1_2(lab):
    values = "{word: on, no: no, time: '12:30', at: 12:30:00, day: 2026-01-01, octal: 010, hex: 0x10, rate: +1e5, yes: true}"
    lab.config(
        ("{kind: jsonl_to_chat}", f"{{kind: map, params: {{set: {values}}}}}, {{kind: jsonl_to_chat}}")
    )
    lab.run().passed()
    (path,) = lab.record().glob("runs/*/data/training_data.jsonl")
    row = json.loads(path.read_text(encoding="utf-8").partition("\n")[0])
    found = {key: row[key] for key in ("word", "no", "time", "at", "day", "octal", "hex", "rate", "yes")}
    assert found == {
        "word": "on", "no": "no", "time": "12:30", "at": "12:30:00", "day": "2026-01-01",
        "octal": 10, "hex": 16, "rate": 1e5, "yes": True,
    }  # fmt: skip


def test_numbers_where_text_is_meant_are_refused_with_their_spelling(lab):
    lab.config(("name: trial", "name: 010"), ("metadata:", "metadata:\n  tags: [+1e5]"))
    lab.run().refused(
        2, "2 problems:", r'\$\.name: expected text, got 10; write it in quotes: "010"', r'"\+1e5"'
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("steps: 4", "steps: true", r"\.steps: expected an integer or null, got true"),
        ("steps: 4", "steps: 4.5", r"\.steps: expected an integer or null, got 4\.5"),
        ("steps: 4", f"steps: {'9' * 5000}", r":8:\d+: \$\.run\.algorithm\.params\.steps: a number of 5000 digits is too long"),
        ("0.05", ".inf", r"\.learning_rate: \.inf is not a finite number"),
        ("0.05", ".nan", r"\.learning_rate: \.nan is not a finite number"),
        ("0.05", "1e999", r"\.learning_rate: 1e999 is not a finite number"),
        ("0.05", "-1", r"\.learning_rate: 'learning_rate' must be >= 0, got -1"),
        ("steps: 4", "1: 4", r'a key must be text, and 1 is the number 1; quote it: "1"'),
        ("steps: 4", "~: 4", r"a key must be text, and ~ is null"),
        ("name: trial", "name: ''", r":2:1: \$\.name: Length of 'name' must be >= 1"),
        ("name: evsys/tiny", "name: ''", r"\$\.run\.model\.name: Length of 'name' must be >= 1"),
        ("version: 1", "version: 2", r":1:1: \$\.version: expected 1, got 2; this evsys reads version 1"),
        ("{kind: mock}", "mock", r"\$\.run\.backend: expected a mapping, got 'mock'; write \{kind: mock\}"),
        ("steps: 4", "steps: 4, epochs: 2", r"both 'steps' and 'epochs' set the length of training; keep one"),
    ],
)  # fmt: skip
def test_a_value_that_can_not_be_meant_is_one_problem_at_its_place(lab, old, new, said):
    lab.config((old, new))
    outcome = lab.run("--json")
    outcome.refused(2, said)
    assert len(outcome.json["error"]["problems"]) == 1
    lab.nothing_was_written()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("run:", "n_repeats: 1000000000\nrun:", r"\$\.n_repeats: .* make 1,000,000,000 runs; at most 100,000 are accepted"),
        ("run:", "max_concurrent_arms: 0\nrun:", r"'max_concurrent_arms' must be >= 1, got 0"),
        ("steps: 4", "steps: 4, beta1: 0.99999999999999999999", r"'beta1' must be < 1, got 1\.0"),
        ("run:", "run:\n  seed: -1", r"\$\.run\.seed: 'seed' must be >= 0, got -1"),
        ("max_tokens: 4", "max_tokens: 4, limit: 0", r"'limit' must be >= 1, got 0"),
        ("max_tokens: 4", "max_tokens: 4, breakdown_keys: [topic]", r"no task of tasks\.jsonl has 'topic' in its metadata"),
    ],
)  # fmt: skip
def test_numbers_beyond_what_can_be_done_are_refused(lab, old, new, said):
    lab.config((old, new))
    lab.run().refused(2, said)
    lab.nothing_was_written()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("run:", f"base_seed: {'9' * 300}\nrun:"),
        ("steps: 4", "epochs: 1e-300"),
        ("steps: 4", "steps: 4, warmup_steps: 100000000000000000000"),
        ("max_tokens: 4", "max_tokens: 4, n_concurrent: 1000000000000, limit: 10000000000000000000000"),
        ("max_tokens: 4", "max_tokens: 4, num_samples: 2, temperature: 1e-308"),
    ],
)
def test_huge_and_tiny_numbers_that_mean_something_do_no_harm(lab, old, new):
    lab.config((old, new))
    lab.run().passed()


def test_misspelt_keys_at_all_depths_are_told_at_once_with_what_was_meant(lab):
    lab.config(
        ("version: 1", "version: 1\nmetdata: {}"),
        ("max_tokens", "max_tokns"),
        ("learning_rate", "learning_rte"),
        ("{kind: jsonl_to_chat}", "{kind: jsonl_to_chat, params: {user_colum: q}}"),
        ("backend: {", "backend: {kid: x, "),
    )
    outcome = lab.run()
    outcome.refused(
        2,
        "5 problems:",
        r":2:1: \$\.metdata: unknown key 'metdata'; did you mean 'metadata'\?",
        r":5:\d+: \$\.metadata\.benchmark\.max_tokns: .*'max_tokens'\?",
        r":7:\d+: .*transforms\[0\]\.params\.user_colum: .*'user_column'\?",
        r":9:\d+: .*params\.learning_rte: .*'learning_rate'\?",
        r":10:\d+: \$\.run\.backend\.kid: .*did you mean 'kind'\?",
    )
    places = [line.split(":")[1] for line in outcome.err.splitlines()[1:]]
    assert places == sorted(places, key=int)
    lab.nothing_was_written()


def test_blocks_of_older_files_say_where_their_content_belongs(lab):
    lab.config(also="eval: {every: 5}\nvalidation: {}\n")
    lab.run().refused(
        2, r":10:1: \$\.eval: .*'metadata\.benchmark'", r":11:1: \$\.validation: .*'metadata\.benchmark'"
    )


def test_a_key_of_a_later_version_says_so(lab):
    lab.config(also="deploy: {kind: anything}\nlog_store: {kind: evsys_logger}\n")
    lab.run().refused(
        2, r"\$\.deploy: .*not in this version", r"'evsys_logger' is not in this version; `local_logger`"
    )


# --- options that would be ignored -------------------------------------------------------------------------------------


def test_an_option_that_the_backend_can_not_serve_is_refused_with_both_names(lab):
    lab.code(
        "import attrs\nfrom evsys_sdk import SFT, register_algorithm, register_backend\n"
        "from evsys_algo_sft import SFTParams\nfrom evsys_backend_mock import MockBackend\n\n"
        "@attrs.frozen(kw_only=True)\nclass Params(SFTParams):\n"
        "    kl_coef: float = attrs.field(default=0.0, metadata={'requires': 'reference_logprobs'})\n\n"
        "@register_algorithm('penalised')\nclass Penalised(SFT):\n    Config = Params\n\n"
        "@register_backend('poor')\nclass Poor(MockBackend):\n    capabilities = frozenset({'custom_loss'})\n"
        "    honours = frozenset({'learning_rate'})\n"
    )
    lab.config(
        ("kind: sft", "kind: penalised"),
        ("steps: 4", "steps: 4, kl_coef: 0.1"),
        ("mock", "poor"),
    )
    lab.run().refused(
        2,
        r"\$\.run\.algorithm\.params\.kl_coef: the option algorithm\.params\.kl_coef needs 'reference_logprobs', "
        r"which backend 'poor' doesn't offer",
        r"backend 'poor' would ignore algorithm\.params\.lora_rank; leave it out",
    )
    lab.config(("kind: sft", "kind: penalised"), (", lora_rank: 4", ", kl_coef: 0.0"), ("mock", "poor"))
    lab.validate().passed()


# --- what decides ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ("success_metric: val.mean_reward\n  direction: min", r"\$\.metadata\.direction: 'direction' is 'min', but for 'mean_reward' 'max' is better"),
        ("direction: maximize", r"\$\.metadata\.direction: expected 'max' or 'min'"),
        ("success_metric: vla.mean_reward", r"no benchmark is called 'vla'; did you mean 'val\.mean_reward'\?"),
        ("success_metric: val.mean_rewrd", r"no metric is called 'mean_rewrd'; did you mean 'mean_reward'\?"),
        ("baseline: nobody", r"\$\.metadata\.baseline: no arm is called 'nobody'; arms: run; or base_model"),
    ],
)  # fmt: skip
def test_a_judgement_that_can_not_be_made_is_refused_before_anything_is_spent(lab, metadata, said):
    lab.config(("metadata:", f"metadata:\n  {metadata}"))
    lab.run().refused(2, said)
    lab.nothing_was_written()


def test_a_metric_without_direction_is_taken_as_more_is_better_and_told_so(lab):
    lab.code(
        "from typing import ClassVar\nfrom evsys_sdk import register_metric\n\n@register_metric('eval_val_loss')\nclass M:\n"
        "    name: ClassVar[str] = 'eval_val_loss'\n    def compute(self, task_rewards):\n        return 0.5\n"
    )
    lab.config(("max_tokens: 4", "max_tokens: 4, metrics: [eval_val_loss]"))
    assert "'eval_val_loss' doesn't declare which way is better; taken as 'max'" in lab.validate().err
    outcome = lab.run("--set", "metadata.direction=min", "--json")
    outcome.passed()
    assert outcome.json["conclusion"]["direction"] == "min"


def test_choosing_by_a_test_set_is_refused_unless_it_is_said_aloud(lab):
    lab.config(
        ("max_tokens: 4", "max_tokens: 4, split: test"),
        ("metadata:", "metadata:\n  success_metric: val.mean_reward"),
    )
    lab.run().refused(2, r"'val' is a 'test' entry, .*metadata\.allow_test_selection: true")
    lab.run("--set", "metadata.allow_test_selection=true").passed()


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (
            "pass@3",
            r"metrics\[0\]: pass@3 needs 3 samples of each task, and 'num_samples' is 2; set num_samples: 3",
        ),
        ("pass^4", r"pass\^4 needs 4 samples"),
        ("pass@0", r"'k' must be >= 1, got 0"),
        (f"'pass@{'9' * 5000}'", r"no metric is called 'pass@9+'"),
        ("pass_at_1", r"no metric is called 'pass_at_1'; did you mean 'pass_rate'\?"),
        ("mean_reward, mean_reward", r"metrics\[1\]: the metric 'mean_reward' is listed twice"),
    ],
)
def test_a_metric_that_can_not_be_computed_is_refused(lab, metrics, said):
    lab.config(("max_tokens: 4", f"max_tokens: 4, num_samples: 2, metrics: [{metrics}]"))
    lab.run().refused(2, said)


# --- names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("../../../etc/passwd", "-etc-passwd"),
        ("CON", "-_con"),
        ("a:b*c?", "-a-b-c"),
        ("x" * 3000, r"-x+-[0-9a-f]{8}"),
        ("日本語 🎉", "-ribenyu-[0-9a-f]{8}"),
        (". .", "-unnamed-[0-9a-f]{8}"),
    ],
)
def test_any_name_becomes_a_portable_folder_inside_the_project(lab, name, folder):
    lab.config(
        ("name: trial", f"name: '{name}'"),
        ("run:", f"run:\n  name: '{name}'"),
        ("name: val", f"name: '{name}'"),
    )
    lab.run().passed()
    assert re.fullmatch(rf"\d{{8}}-\d{{6}}{folder}", lab.record().name)
    assert lab.facts()["name"] == name
    (run,) = (lab.record() / "runs").iterdir()
    assert len(run.name) <= 80
    lab.nothing_is_half_written()


# --- from the command line ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("run.seed", r"--set run\.seed: it has no '='; write --set PATH=VALUE"),
        ("=3", r"'' is not a path"),
        ("run..seed=3", r"'run\.\.seed' is not a path; write it like run\.algorithm\.params\.learning_rate"),
        ("ruun.seed=3", r"there is no key 'ruun'; did you mean 'run'\?"),
        ("run.algorithm.params.stepz=3", r"unknown key 'stepz'; did you mean 'steps'\?"),
        ("run.algorithm.params.steps=[1,", r"not valid YAML"),
        ("run.algorithm.params.steps=four", r"--set run\.algorithm\.params\.steps: .*expected an integer.*'four'"),
        ("run=5", r"a run must be a mapping, got the number 5"),
        ("runs[0].name=x", r"runs is a mapping, so 0 can't be set in it"),
        ("run.data.transforms[7].kind=x", r"a list of 1; .*7.* is none of its positions"),
        ("name=!!python/none x", r"the tag !!python/none is not accepted"),
        ("run.__class__=x", r"unknown key '__class__'"),
        ("run.algorithm.params.learning_rate=${NOT_SET_ANYWHERE}", r"the environment variable NOT_SET_ANYWHERE isn't set"),
        ("run.model.name=\udcff", r"U\+DCFF is not accepted"),
    ],
)  # fmt: skip
def test_an_override_that_means_nothing_is_refused_in_its_own_words(lab, override, said):
    lab.run("--set", override).refused(2, r"--set ", said)
    lab.nothing_was_written()


@pytest.mark.parametrize("command", [("run",), ("validate",), ("data", "preview")])
def test_every_command_answers_a_wrong_file_with_one_json_document(lab, command):
    lab.config(("kind: mock", "kind: mok"))
    outcome = lab.evsys(*command, "config.yaml", "--json")
    outcome.refused(2)
    error = outcome.json["error"]
    assert (outcome.json["format"], error["exit_code"], error["type"]) == (1, 2, "ConfigError")
    (problem,) = error["problems"]
    assert (problem["path"], problem["line"], problem["column"]) == ("$.run.backend.kind", 9, 13)
    assert problem["hint"] == "did you mean 'mock'?"


def test_a_wrong_key_hides_nothing_else_of_its_block(lab):
    """Also not that a needed key is missing which was only misspelt: the did-you-mean says that."""
    text = """version: 1
name: typos
metadata:
  success_metric: held_out.mean_reward
  benchmark:
    name: held_out
    pathh: tasks.jsonl
    path: nope.jsonl
    metrics: [mean_rewardd]
    max_tokens: many
run:
  data:
    pathh: 1
    transforms: [{kind: jsonl_to_chatt}, {kind: jsonl_to_chat, params: {user_colum: x}}]
  model: {name: evsys/tiny, bad: 1, init_from_checkpoint: nowhere}
  algorithm: {kind: sft, parms: 1, params: {learning_rate: abc, stepz: 3}}
  backend: {kind: local, extra: 1, params: {worker: 2}}
"""
    lab.config(text=text)
    outcome = lab.validate()
    outcome.refused(
        2,
        "14 problems:",
        r":7:5: \$\.metadata\.benchmark\.pathh: unknown key 'pathh'; did you mean 'path'\?",
        r":8:5: \$\.metadata\.benchmark\.path: there is no file nope\.jsonl",
        r":9:15: .*no metric is called 'mean_rewardd'",
        r":10:5: .*max_tokens: expected an integer",
        r":13:5: \$\.run\.data\.pathh: unknown key 'pathh'; did you mean 'path'\?",
        r":14:19: .*no transform is called 'jsonl_to_chatt'",
        r":14:73: .*unknown key 'user_colum'",
        r":15:29: .*unknown key 'bad'",
        r":15:\d+: \$\.run\.model\.init_from_checkpoint: ",
        r":16:26: .*unknown key 'parms'",
        r":16:\d+: .*learning_rate: expected a finite number",
        r":16:\d+: .*unknown key 'stepz'",
        r":17:26: .*unknown key 'extra'",
        r":17:\d+: .*unknown key 'worker'",
    )
    assert "names no" not in outcome.said


def test_a_value_that_is_not_among_the_choices_is_answered_with_them(lab):
    lab.config()
    lab.validate("--set", "run.algorithm.params.on_collapse=foo").refused(
        2, r"on_collapse: expected one of 'stop', 'rollback', 'branch', 'warn', got 'foo'"
    )
