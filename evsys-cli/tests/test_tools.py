"""The tools of agents answer what the commands print with `--json`."""

from __future__ import annotations

import jsonschema
import pytest

from evsys.errors import ConfigError, EvsysError
from evsys_record import ControlError
from evsys_runtime import Toolbox

ALL = 100_000


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A project with two experiments, made once."""
    return tmp_path_factory.mktemp("lab")


@pytest.fixture
def toolbox(evsys, config, monkeypatch, lab):
    if not (lab / "config.yaml").exists():
        for path in (config, config.parent / "train.jsonl", config.parent / "tasks.jsonl"):
            (lab / path.name).write_bytes(path.read_bytes())
        (lab / "pyproject.toml").write_text("[tool.evsys]\n", encoding="utf-8")
        monkeypatch.chdir(lab)
        for rate in ("0.05", "0.1"):
            words = ("--set", f"run.algorithm.params.learning_rate={rate}")
            assert evsys("run", "config.yaml", "-q", *words).code == 0
    monkeypatch.chdir(lab)
    return Toolbox(lab)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("context", {"max_tokens": 900}, ("context", "--tokens", "900")),
        ("next", {"limit": 2}, ("next", "--limit", "2")),
        ("status", {}, ("status",)),
        ("wait", {"cursor": 3}, ("wait", "--after", "3")),
        ("show", {}, ("show", "last")),
        ("show", {"experiment": "-2", "run": "run"}, ("show", "-2", "run")),
        ("why", {}, ("why",)),
        ("compare", {"one": "last", "other": "-2"}, ("compare", "last", "-2")),
        ("history", {"limit": 50}, ("history",)),
        ("history", {"runs": True, "sort": "name", "limit": 50}, ("history", "--runs", "--sort", "name")),
        ("history", {"near": "config.yaml"}, ("history", "--near", "config.yaml")),
        ("schema", {"kind": "experiment"}, ("schema", "--experiment", "--outline")),
        ("schema", {"kind": "algorithm", "name": "sft", "full": True}, ("schema", "algorithm", "sft")),
        ("schema", {"kind": "result", "name": "why", "full": True}, ("schema", "--result", "why")),
        ("schema", {"kind": "metric"}, ("schema", "metric")),
        ("preview", {"config": "config.yaml", "rows": 2}, ("data", "preview", "config.yaml", "-n", "2")),
    ],
)
def test_a_tool_answers_what_its_command_prints(evsys, toolbox, name, arguments, words):
    answer = toolbox.call(name, {"max_tokens": ALL, **arguments})
    printed = evsys(*words, "--json").json
    assert answer.tree == printed
    assert not answer.cuts
    jsonschema.validate(printed, toolbox.tools[name].output_schema)


def test_a_plan_has_a_token_besides(evsys, toolbox):
    values = ["run.algorithm.params.steps=8"]
    answer = toolbox.call("plan", {"config": "config.yaml", "set": values, "max_tokens": ALL})
    printed = evsys("plan", "config.yaml", "--set", values[0], "--json").json
    assert printed["token"] is None
    assert {**answer.tree, "config": None, "token": None} == {**printed, "config": None}
    assert len(answer.tree["token"]) > 8
    jsonschema.validate(answer.tree, toolbox.tools["plan"].output_schema)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("show", {"experimnt": "last"}, "experimnt.*did you mean 'experiment'"),
        ("compare", {"one": "last"}, "other"),
        ("next", {"limit": "three"}, r"\$\.limit"),
        ("wait", {"seconds": 60}, r"\$\.seconds"),
        ("contxt", {}, "did you mean 'context'"),
        ("history", {"outcome": ["won"]}, "known: "),
        ("plan", {"config": "../other.yaml"}, "outside the project"),
        ("plan", {"config": "confg.yaml"}, "did you mean"),
        ("run", {"token": "none"}, "call `plan` again"),
        ("show", {"experiment": "/etc"}, "there is no experiment"),
    ],
)
def test_wrong_arguments_are_refused_with_what_to_do(toolbox, name, arguments, message):
    with pytest.raises(EvsysError) as refused:
        toolbox.call(name, arguments)
    import re

    assert re.search(message, str(refused.value))


def test_a_request_to_an_experiment_that_has_ended_is_refused(toolbox):
    with pytest.raises(ControlError, match="is not running"):
        toolbox.call("stop", {"experiment": "last", "reason": "enough"})


def test_a_token_starts_one_experiment_and_only_as_it_was_planned(evsys, toolbox, lab):
    token = toolbox.call("plan", {"config": "config.yaml", "set": ["name=started"]}).tree["token"]
    launched = toolbox.call("run", {"token": token}).tree
    jsonschema.validate(launched, toolbox.tools["run"].output_schema)
    waited = toolbox.call("wait", {"experiment": launched["experiment_id"]}).tree
    assert (waited["reason"], waited["exit_code"]) == ("end", 0)
    assert toolbox.call("show", {"experiment": "started"}).tree["experiment"]["name"] == "started"
    with pytest.raises(ConfigError, match="used before"):
        toolbox.call("run", {"token": token})
    token = toolbox.call("plan", {"config": "config.yaml"}).tree["token"]
    with (lab / "config.yaml").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    with pytest.raises(ConfigError, match="has changed since it was planned"):
        toolbox.call("run", {"token": token})


def test_a_retraction_is_that_of_the_command(evsys, toolbox):
    done = toolbox.call("retract", {"experiment": "-2", "reason": "a faulty grader"}).tree
    jsonschema.validate(done, toolbox.tools["retract"].output_schema)
    assert evsys("show", done["experiment_id"], "--json").json["experiment"]["retracted"] == "a faulty grader"
    undone = {"experiment": done["experiment_id"], "reason": "it was right", "withdraw": True}
    assert toolbox.call("retract", undone).tree["withdrawn"]


@pytest.mark.parametrize("tokens", [300, 600, 1200])
def test_a_long_answer_is_cut_to_its_limit_and_still_fits_its_schema(toolbox, tokens):
    for name, arguments in (("show", {}), ("why", {}), ("plan", {"config": "config.yaml"}), ("history", {})):
        answer = toolbox.call(name, {**arguments, "max_tokens": tokens})
        jsonschema.validate(answer.tree, toolbox.tools[name].output_schema)
        whole = toolbox.call(name, {**arguments, "max_tokens": ALL}).tree
        assert bool(answer.cuts) == ({**answer.tree, "token": 0} != {**whole, "token": 0})
