"""`evsys eval` and `evsys benchmark run`."""

import json
from pathlib import Path

import pytest
from aiohttp import web
from faulty_service import answering
from small_project import Project

from evsys_runtime.experiment.result_schemas import validate_result

CLIENT = """
import attrs
from evsys import option, register_inference_client
from evsys.types import Completion, Message, Usage

@register_inference_client("says")
class Says:
    @attrs.frozen(kw_only=True)
    class Config:
        text: str = option("a", "what it says")

    def __init__(self, text):
        self.text = text

    async def generate(self, messages, sampling, *, n=1, tools=()):
        if self.text == "down":
            raise ConnectionError("the service is down")
        said = Message(role="assistant", content=self.text)
        used = Usage(prompt_tokens=2, completion_tokens=1, cost_usd=0.25)
        return [Completion(message=said, finish_reason="stop", usage=used)] * n
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.evsys]\n", encoding="utf-8")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/clients.py").write_text(CLIENT, encoding="utf-8")
    for name, expected in (("easy", "a"), ("hard", "z")):
        rows = [
            {
                "task_id": f"t{i}",
                "instruction": "say",
                "verifier": {"name": "exact_match", "expected": expected},
            }
            for i in range(4)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("project")
def test_an_api_model_is_scored_on_each_benchmark(evsys):
    outcome = evsys("eval", "sage", "easy.jsonl", "hard.jsonl", "--client", "says", "-q")
    assert outcome.code == 0
    assert "easy: mean_reward 1.000" in outcome.out
    assert "hard: mean_reward 0.000" in outcome.out
    assert "16 prompt and 8 completion tokens, $2.0000" in outcome.out
    assert "from the cache" not in outcome.out
    again = evsys("eval", "sage", "easy.jsonl", "--client", "says", "-q")
    assert "4 of 4 rollouts came from the cache; --no-cache recomputes all\n0 prompt and 0" in again.out


def test_what_judging_took_stands_apart(evsys, project):
    (project / "src/verifiers.py").write_text(
        "from evsys import register_verifier\n"
        "from evsys.types import Score, Usage\n"
        "@register_verifier('judged')\n"
        "def judged(model_output, expected, params):\n"
        "    used = Usage(prompt_tokens=50, completion_tokens=5, cost_usd=0.5)\n"
        "    return Score(value=float(model_output == expected), usage=used)\n",
        encoding="utf-8",
    )
    easy = project / "easy.jsonl"
    easy.write_text(easy.read_text(encoding="utf-8").replace("exact_match", "judged"), encoding="utf-8")
    outcome = evsys("eval", "sage", "easy.jsonl", "--client", "says", "-q", "--skip-grader-check")
    assert "\n8 prompt and 4 completion tokens, $1.0000" in outcome.out
    assert "\njudging: 200 prompt and 20 completion tokens, $2.0000" in outcome.out


def test_its_result_is_one_document_of_the_published_shape(evsys, project):
    outcome = evsys(
        "benchmark", "run", "easy.jsonl", "--model", "sage", "--client", "says", "--json", "--limit", "3"
    )
    assert outcome.code == 0
    validate_result(outcome.json, "run_result")
    [scoring] = outcome.json["evaluations"]
    assert (scoring["model"], scoring["tasks"], scoring["scored"]) == ("sage", 3, 3)
    assert Path(outcome.json["run_dir"]).is_relative_to(project / ".evsys/evaluations")


@pytest.mark.usefixtures("project")
def test_a_service_that_is_down_is_told_and_ends_with_1(evsys):
    outcome = evsys("eval", "sage", "easy.jsonl", "--client", "says", "--param", "text=down", "-q")
    assert outcome.code == 1
    assert "the service is down" in outcome.out


@pytest.mark.usefixtures("project")
def test_a_benchmark_that_isnt_there_is_wrong_data(evsys):
    outcome = evsys("eval", "sage", "nowhere.jsonl", "--client", "says", "-q")
    assert outcome.code in (2, 4)
    assert "nowhere.jsonl" in outcome.err


@pytest.mark.usefixtures("project")
def test_an_api_model_without_an_address_is_refused(evsys, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    outcome = evsys("eval", "gpt", "easy.jsonl")
    assert outcome.code == 2
    assert "pass --base-url, or set OPENAI_BASE_URL" in outcome.err


def test_a_folder_that_is_no_checkpoint_is_refused(evsys, project):
    outcome = evsys("eval", str(project), "easy.jsonl")
    assert outcome.code == 2
    assert "not a complete checkpoint" in outcome.err


@pytest.mark.usefixtures("project")
def test_a_parameter_without_a_value_is_refused(evsys):
    outcome = evsys("eval", "sage", "easy.jsonl", "--client", "says", "--param", "text")
    assert outcome.code == 2
    assert "NAME=VALUE" in outcome.err


def test_a_service_is_asked_at_its_address(evsys, project):
    async def answer(request: web.Request) -> web.Response:
        asked = await request.json()
        choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": asked["max_tokens"]}
        return web.json_response({"choices": [choice], "usage": usage})

    with answering(answer) as url:
        outcome = evsys("eval", "gpt", "easy.jsonl", "--base-url", url, "--max-tokens", "7", "-q", "--json")
    assert outcome.code == 0, outcome.err
    [scoring] = outcome.json["evaluations"]
    assert (scoring["model"], scoring["metrics"]["mean_reward"]["value"]) == ("gpt", 1.0)
    assert (scoring["usage"]["completion_tokens"], scoring["usage"]["cost_usd"]) == (28, None)


def test_a_checkpoint_is_scored_with_the_backend_that_made_it(evsys, project):
    Project(project).experiment().run()
    [folder] = (project / ".evsys/experiments").glob("*/runs/run-s0/checkpoints/6")
    outcome = evsys("eval", str(folder), "easy.jsonl", "--max-tokens", "4", "-q", "--json")
    assert outcome.code == 0, outcome.err
    [scoring] = outcome.json["evaluations"]
    assert (outcome.json["arm"], scoring["step"], scoring["model"]) == ("run-s0-step6", 6, None)


def test_a_base_model_is_scored_on_a_backend_by_name_and_as_a_folder(evsys, project):
    outcome = evsys(
        "eval", "evsys/tiny", "easy.jsonl", "--backend", "mock", "--max-tokens", "4", "-q", "--json"
    )
    assert outcome.code == 0, outcome.err
    [scoring] = outcome.json["evaluations"]
    assert (outcome.json["arm"], scoring["step"], scoring["model"]) == ("evsys/tiny", 0, None)
    assert evsys("models", "export", "evsys/tiny", "mine").code == 0
    settings = ("--backend", "local", "--max-tokens", "2", "-q", "--json")
    named, folder = (evsys("eval", model, "easy.jsonl", *settings) for model in ("evsys/tiny", "mine"))
    assert (named.json["status"], folder.json["arm"]) == ("completed", "mine")
    assert folder.json["evaluations"][0]["metrics"] == named.json["evaluations"][0]["metrics"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nobody", "--backend", "local"), "'nobody' is not in the cache"),
        (("evsys/tiny", "--backend", "nowhere"), "no backend is called 'nowhere'"),
        (("evsys/tiny", "--backend", "local", "--param", "devise=cpu"), "did you mean 'device'"),
        (
            ("evsys/tiny", "--backend", "local", "--client", "says"),
            "--client doesn't apply to a base model",
        ),
        (("sage", "--client", "says", "--renderer", "qwen3"), "--renderer doesn't apply to an API model"),
        ((".", "--param", "text=a"), "--param doesn't apply to a checkpoint"),
        (("saved", "--backend", "local"), "omit --backend"),
    ],
)
def test_what_cannot_be_scored_as_it_is_asked_is_refused_and_leaves_no_record(
    evsys, project, arguments, said
):
    (project / "saved").mkdir()
    (project / "saved/manifest.json").write_text("{}", encoding="utf-8")
    outcome = evsys("eval", arguments[0], "easy.jsonl", *arguments[1:])
    assert outcome.code == (3 if "nowhere" in arguments else 2)
    assert said in outcome.err
    assert not (project / ".evsys/evaluations").exists()


@pytest.mark.parametrize("by_folder", [False, True])
def test_a_run_stands_for_its_selected_checkpoint(evsys, tmp_path, by_folder):
    project = Project(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.evsys]\n", encoding="utf-8")
    project.tasks([(f"t{i:02d}", "say a", "a") for i in range(24)])
    metadata = "metadata:\n  benchmark: {name: val, path: tasks.jsonl, max_tokens: 4, run_every: 2}\n"
    arm = project.experiment(metadata=metadata).run().arms[0]
    result = Path(arm.run_dir) / "run_result.json"
    tree = json.loads(result.read_text(encoding="utf-8"))
    tree["run"]["selected_checkpoint"] |= {"step": 6, "checkpoint": "checkpoints/4"}
    (Path(arm.run_dir) / "checkpoints/6").rename(Path(arm.run_dir) / "checkpoints/4")
    result.write_text(json.dumps(tree), encoding="utf-8")
    named = str(arm.run_dir) if by_folder else "last/run-s0"
    outcome = evsys("eval", named, "tasks.jsonl", "--max-tokens", "4", "-q", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["run_id"].startswith("run-s0")


@pytest.mark.parametrize(
    ("named", "message"),
    [("last/run-s9", "has no run 'run-s9'"), ("nothing/of-the-kind", "an API model needs an address")],
)
def test_what_is_no_run_is_said(evsys, tmp_path, monkeypatch, named, message):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    (tmp_path / "pyproject.toml").write_text("[tool.evsys]\n", encoding="utf-8")
    Project(tmp_path).experiment().run()
    outcome = evsys("eval", named, "tasks.jsonl", "-q")
    assert outcome.code != 0
    assert message in outcome.err


@pytest.mark.usefixtures("project")
def test_history_lists_what_was_evaluated(evsys):
    assert evsys("eval", "sage", "easy.jsonl", "hard.jsonl", "--client", "says", "-q").code == 0
    header, line = evsys("history").out.splitlines()
    assert header.split() == ["evaluation", "status", "model", "scores"]
    assert line.split()[1:3] == ["completed", "sage"]
    assert "easy.mean_reward 1.000, hard.mean_reward 0.000" in line
    document = evsys("history", "--json").json
    validate_result(document, "history")
    (known,) = document["evaluations"]
    assert known["scores"] == {"easy.mean_reward": 1.0, "hard.mean_reward": 0.0}
    assert "No experiment on record" in evsys("history", "--status", "failed").out
