"""`evsys models` as a person or a program calls it."""

import json
import shutil

import pytest
from click.testing import CliRunner

from evsys_backend_local.commands import models
from evsys_backend_local.models.byte_tokenizer import write_byte_tokenizer


@pytest.fixture
def run():
    def invoke(*arguments):
        return CliRunner().invoke(models, list(map(str, arguments)), catch_exceptions=False)

    return invoke


@pytest.fixture
def home(families, tmp_path):
    folder = tmp_path / "qwen2"
    shutil.copytree(families / "qwen2", folder)
    write_byte_tokenizer(folder)
    return folder


def test_check_says_what_a_folder_is_and_that_it_runs(run, home):
    result = run("check", home)
    assert result.exit_code == 0
    assert "Qwen2 (Qwen2ForCausalLM)" in result.stdout
    assert result.stdout.rstrip().endswith("yes")


def test_check_of_a_model_that_does_not_run_ends_with_the_code_of_a_wrong_configuration(run, home):
    config = json.loads((home / "config.json").read_text(encoding="utf-8"))
    (home / "config.json").write_text(
        json.dumps({**config, "architectures": ["Gemma2ForCausalLM"]}), encoding="utf-8"
    )
    result = run("check", home)
    assert result.exit_code == 2
    assert "problem" in result.stdout
    assert "Tinker protocol" in result.stdout
    document = run("check", home, "--json")
    assert document.exit_code == 2
    told = json.loads(document.stdout)
    assert (told["supported"], told["format"]) == (False, 1)
    assert "Gemma2ForCausalLM" in told["problems"][0]


def test_check_estimates_memory_for_the_context_that_is_asked_for(run, home):
    told = json.loads(run("check", home, "--context", 64, "--json").stdout)
    assert told["training"]["context"] == 64
    assert told["training"]["lora_bytes"] > 0
    assert told["path"] == str(home)
    assert run("check", home, "--context", 0).exit_code == 2


def test_list_gives_back_what_a_killed_fetch_was_replacing(run, tmp_path, monkeypatch):
    monkeypatch.setenv("EVSYS_CACHE", str(tmp_path))
    left = tmp_path / "models" / ".mine-12345678"
    (left / "model").mkdir(parents=True)
    (left / "model.old").mkdir()
    (left / "model.old" / "manifest.json").write_text('{"name": "mine", "complete": true}', encoding="utf-8")
    (left / "evsys-lock").write_text("mine", encoding="utf-8")
    result = run("list")
    assert "mine: what replaced this model was killed" in result.stderr
    assert "mine " in result.stdout
    assert run("list").stderr == ""


def test_export_merges_prints_the_folder_and_tells_its_progress_apart(run, home, tmp_path):
    result = run("export", home / "adapter", tmp_path / "out", "--base", home, "--dtype", "bfloat16")
    assert result.exit_code == 0
    assert result.stdout.strip() == str(tmp_path / "out")
    assert "merging" in result.stderr
    told = json.loads(run("export", home, tmp_path / "out", "--force", "--json").stdout)
    assert told["merged"] == "nothing"
    assert told["folder"] == str(tmp_path / "out")
    assert json.loads(run("check", tmp_path / "out", "--json").stdout)["supported"]


def test_kernel_prints_the_measured_kernels_and_the_fastest(run, tmp_path, monkeypatch):
    from evsys_backend_local import kernels

    monkeypatch.setenv("EVSYS_CACHE", str(tmp_path))
    monkeypatch.setattr(kernels, "candidates", lambda: ("Haswell",))
    monkeypatch.setattr(kernels, "_measure", {None: 0.02, "Haswell": 0.01}.__getitem__)
    lines = run("kernel").output.splitlines()
    assert lines[1:3] == ["default  20.0 ms", "Haswell  10.0 ms"]
    assert lines[3].startswith("Later commands use Haswell; noted in ")
    assert json.loads(run("kernel", "--json").output)["kernel"] == "Haswell"
