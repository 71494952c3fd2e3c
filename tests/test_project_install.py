"""A project of `evsys init-project`, installed by pip as its README says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = """
import importlib.util, json
import src
names = ["agents", "algorithms", "data", "experiments", "metrics", "transforms", "verifiers"]
print(json.dumps([src.__file__, [name for name in names if importlib.util.find_spec(name) is not None]]))
"""


def run(*command: object, cwd: Path) -> str:
    env = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow  # pip fetches setuptools
def test_an_editable_install_makes_src_importable_and_nothing_else(tmp_path):
    run(Path(sys.executable).with_name("evsys"), "init-project", "lab", cwd=tmp_path)
    lab, environment = tmp_path / "lab", tmp_path / "environment"
    code = {f"src/{name}.py": "" for name in ("agents", "algorithms", "metrics", "transforms", "verifiers")}
    for name, text in code.items():  # evsys isn't in that environment
        (lab / name).write_text(text, encoding="utf-8")
    run(sys.executable, "-m", "venv", environment, cwd=tmp_path)
    python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", lab, cwd=tmp_path)
    file, others = json.loads(run(python, "-c", CHECK, cwd=tmp_path))
    assert Path(file) == lab / "src/__init__.py"
    assert others == []


def test_a_script_imports_its_own_project_though_another_one_is_installed(tmp_path):
    for name in ("installed", "own"):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / ".evsys").mkdir()
        (tmp_path / name / "src/__init__.py").write_text("", encoding="utf-8")
    script = tmp_path / "own/experiments/run.py"
    script.parent.mkdir()
    script.write_text("from evsys_sdk import Experiment\nimport src\nprint(src.__file__)\n", encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}  # where an editable install leads to
    found = {}
    for name, path in (("own", script), ("installed", tmp_path / "script.py")):
        path.write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, path],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        found[name] = Path(done.stdout.strip())
    assert found == {name: tmp_path / name / "src/__init__.py" for name in found}
