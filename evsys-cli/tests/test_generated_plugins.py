"""What `evsys new-plugin` writes works: a package of every kind is tested, checked from both doors, and run."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from evsys.protocols import KINDS
from evsys_cli.scaffold.existing_package import add_plugins
from evsys_cli.scaffold.plugin_names import PluginNames, names_in, names_of
from evsys_cli.scaffold.plugin_package import write_plugin_package
from evsys_conformance.budget import HEAVY
from evsys_conformance.checks.distribution import DistributionConformance

PLUGINS = {
    # The names are difficult on purpose: words of Python, numbers of samples, both kinds of dashes.
    "agent": ["lambda"],
    "algorithm": ["row_balanced"],
    "backend": ["bigram"],
    "callback": ["patience"],
    "command": ["ends"],
    "data_store": ["csv-folder"],
    "deployer": ["copy"],
    "environment": ["with"],
    "inference_client": ["any"],
    "launcher": ["async"],
    "log_store": ["log-store"],
    "loss": ["class"],
    "metric": ["share_solved", "best@k", "steady^k"],
    "plugin": ["times"],
    "renderer": ["bytes"],
    "rollout_engine": ["try"],
    "researcher": ["steps"],
    "search": ["shuffled"],
    "transform": ["none"],
    "verifier": ["score"],
}

SHARED = [
    "metric:share_solved",
    "transform:none",
    "agent:lambda",
    "metric:steady^k",
    "algorithm:row_balanced",
]
"""Those that come in one distribution, to which the last two are added later."""

EXPERIMENT = """
version: 1
name: generated
data_store: {kind: csv-folder, params: {folder: data}}
log_store: {kind: log-store, params: {path: all-records.jsonl}}
callbacks: [{kind: patience, params: {benchmark: val, metric: share_solved, patience: 4}}]
metadata:
  success_metric: val.share_solved
  benchmark:
    - name: val
      path: tasks.jsonl
      engine: try
      num_samples: 2
      max_tokens: 4
      run_every: 2
      metrics: [share_solved, "best@2", "steady^2"]
    - name: baseline
      path: tasks.jsonl
      engine: try
      max_tokens: 4
      agent: {kind: chat}
      inference: {kind: any, params: {answers: {"3": "It is 3."}}}
run:
  data:
    dataset_name: train
    transforms:
      - {kind: none, params: {column: prompt}}
      - {kind: jsonl_to_chat, params: {user: prompt, assistant: answer}}
  model: {name: evsys/tiny, renderer: bytes}
  agent: {kind: lambda, params: {reviews: 1}}
  algorithm: {kind: row_balanced, params: {learning_rate: 0.1, steps: 40, batch_size: 4, lora_rank: 4}}
  backend: {kind: bigram}
"""


LOADED = """
import json, sys
from evsys import Registry
wrong = [str(error) for _, error in Registry(allow=sys.argv[1:]).check() if error is not None]
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
sys.exit("; ".join(wrong) or 0)
"""


class Lab:
    """A folder with a package of every kind, as good as installed: their metadata is on the path of a subprocess."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "site"
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        self.packages: list[Path] = []
        self.plugins: list[PluginNames] = []
        self.distributions: list[str] = []
        for kind, plugins in PLUGINS.items():
            for name in plugins:
                if f"{kind}:{name}" not in SHARED:
                    target = folder / f"package_{len(self.packages)}"
                    self.plugins.append(names_of(kind, name))
                    write_plugin_package(self.plugins[-1:], target)
                    self._install(target)
        self._write_shared(folder / "shared")

    def _write_shared(self, target: Path) -> None:
        shared = [names_in("several-kinds", *one.split(":")) for one in SHARED]
        write_plugin_package(shared[:3], target)
        add_plugins(shared[3:], target)
        self.plugins += shared
        self._install(target)

    def _install(self, package: Path) -> None:
        project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        info = self.site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        requirements = [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
        lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {project['version']}"]
        (info / "METADATA").write_text("\n".join([*lines, *requirements, ""]), encoding="utf-8")
        points = [
            f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
            for group, entries in project["entry-points"].items()
        ]
        (info / "entry_points.txt").write_text("\n".join(points), encoding="utf-8")
        self.packages.append(package)
        self.distributions.append(project["name"])

    def python(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(map(str, [self.site, *(package / "src" for package in self.packages)]))
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd or self.folder,
            env={**os.environ, "PYTHONPATH": path, "MYPYPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            encoding="utf-8",
            timeout=110,
            check=False,
        )


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("generated"))


def test_every_kind_is_among_them():
    assert PLUGINS.keys() == KINDS.keys()


def checks_of(lab: Lab, *arguments: str) -> list[dict]:
    """The shared checks that a run of pytest made, all of which and all else have passed."""
    done = lab.python(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "--import-mode=importlib"),
        *("-c", "pytest.ini", "--evsys-report=report.json"),
        *arguments,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((lab.folder / "report.json").read_text(encoding="utf-8"))["checks"]


def test_their_tests_pass_and_subclass_the_checks_of_each_kind(lab: Lab):
    checks = checks_of(lab, *(str(package / "tests") for package in lab.packages))
    assert {check["kind"] for check in checks} == KINDS.keys()


def test_the_shared_checks_pass_by_name(lab: Lab):
    # What they import is looked at in one process below; the check takes one for each distribution.
    others = ("-k", f"not {DistributionConformance.test_loading_it_imports_nothing_heavy.__name__}")
    checks = checks_of(lab, *others, *(f"--evsys-conformance={name}" for name in lab.distributions))
    wanted = {f"{names.distribution}/{names.name}" for names in lab.plugins}
    assert {check["plugin"] for check in checks if check["kind"]} == wanted


def test_loading_them_imports_nothing_heavy(lab: Lab):
    done = lab.python("-c", LOADED, *lab.distributions)
    assert done.returncode == 0, done.stderr
    modules = set(json.loads(done.stdout))
    assert modules >= {names.top_package for names in lab.plugins}
    assert modules & set(HEAVY) == set()


def test_an_experiment_runs_with_them(lab: Lab, tmp_path: Path):
    (tmp_path / "data").mkdir()
    rows = "".join(f"say  {i},{i}\n" for i in range(8))
    (tmp_path / "data/train.csv").write_text(f"prompt,answer\n{rows}", encoding="utf-8")
    tasks = [
        {
            "task_id": f"t{i}",
            "instruction": f"say {i}",
            "verifier": {"name": "score", "expected": i, "params": {"tolerance": 0.5}},
        }
        for i in range(12)
    ]
    (tmp_path / "tasks.jsonl").write_text(
        "".join(json.dumps(task) + "\n" for task in tasks), encoding="utf-8"
    )
    (tmp_path / "config.yaml").write_text(EXPERIMENT, encoding="utf-8")
    done = lab.python("-m", "evsys_cli.main", "run", "config.yaml", "--json", "--full", cwd=tmp_path)
    assert done.returncode in {0, 1}, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])["result"]
    (arm,) = result["arms"]
    assert arm["status"] == "completed", arm
    assert arm["warnings"] == []
    records = (tmp_path / "all-records.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(records[-1])["event"] == "experiment_finished"
    assert "hasn't got better" in arm["run"]["stop_reason"]
    last = {one["benchmark"]: one["metrics"] for one in arm["evaluations"]}
    assert last["val"]["share_solved"]["value"] > 0
    assert last["val"]["steady^2"]["value"] <= last["val"]["best@2"]["value"]
    assert last["baseline"]["mean_reward"]["value"] == 1 / 12
    assert (Path(result["directory"]) / "times.csv").is_file()
    counted = lab.python("-m", "evsys_cli.main", "ends", "--json", cwd=tmp_path)
    assert json.loads(counted.stdout)["experiments"] == {result["status"]: 1}


def test_they_are_strictly_typed(lab: Lab):
    pytest.importorskip("mypy", reason="the session `types` runs this test with mypy")
    folders = [str(package / name) for package in lab.packages for name in ("src", "tests")]
    config = str(lab.packages[0] / "pyproject.toml")
    done = lab.python(
        *("-m", "mypy", "--config-file", config, "--namespace-packages", "--explicit-package-bases"), *folders
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        f"in {sum(len(list(package.rglob('*.py'))) for package in lab.packages)} source files" in done.stdout
    )
