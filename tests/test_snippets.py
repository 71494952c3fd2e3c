"""Every snippet of every document does what it says: code runs, experiments are valid, commands are those that there are.

The blocks of a page are read in their order, as by somebody who follows it: code in one namespace, plugins in one registry,
commands in one folder. A block that can't be run says why in the line above it: `<!-- not run: why -->`.
"""

from __future__ import annotations

import configparser
import copy
import functools
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from house import ROOT, distributions
from ruamel.yaml import YAML
from small_project import Project
from snippets import Block, blocks, documents, marks

from evsys import Registry, protocols, use_registry
from evsys.errors import ConfigError
from evsys_runtime.config.validate import load_experiment
from evsys_verifiers_std.sandbox import no_sandbox

# Blocks of these are run or checked here. `text` is what something prints; without a language a block is a drawing.
LANGUAGES = {"", "bash", "ini", "json", "python", "text", "toml", "yaml"}

# Pages that a session of nox follows from beginning to end, installing what they install.
TUTORIALS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/tutorial").glob("*.md"))
SKILLS = "plugins/evsys-agents/src/evsys_agents/plugin/skills"
FOLLOWED = {
    **dict.fromkeys([*TUTORIALS, "examples/third_party_plugin/README.md"], "downstream"),
    f"{SKILLS}/set-up-research-project/SKILL.md": "agents",
}

EXAMPLES = ROOT / "examples"
NOT_COPIED = shutil.ignore_patterns(".evsys", "__pycache__", ".venv", ".pytest_cache", "dist")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def pages(*languages: str) -> Any:
    """The documents with blocks of these languages that are run here."""
    found = [
        path
        for path in documents()
        if name_of(path) not in FOLLOWED and any(block.reason is None for block in blocks(path, *languages))
    ]
    return pytest.mark.parametrize("path", found, ids=name_of)


def to_run(path: Path, *languages: str) -> list[Block]:
    return [block for block in blocks(path, *languages) if block.reason is None]


# --- all blocks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_every_block_says_its_language(path: Path):
    followed = name_of(path) in FOLLOWED
    strange = [f"{b}: {b.language}" for b in blocks(path) if b.language not in LANGUAGES and not followed]
    assert strange == [], f"languages that somebody checks: {sorted(LANGUAGES)}"


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_what_is_not_run_has_a_reason_and_a_block_below_it(path: Path):
    marked = [block for block in blocks(path) if block.reason is not None]
    assert [block.line - 1 for block in marked] == marks(path), "a mark belongs right above the block"
    assert [str(block) for block in marked if len(block.reason.split()) < 3] == []


@pytest.mark.parametrize(("page", "session"), FOLLOWED.items())
def test_a_followed_page_or_its_folder_is_named_by_its_session(page: str, session: str):
    source = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    body = source.split(f"def {session}(", 1)[1].split("\n@nox.session", 1)[0]
    assert str(Path(page).parent) in body


# --- Python -------------------------------------------------------------------------------------------------------------


def example_of(path: Path) -> str | None:
    """The example that a page is about."""
    found = re.fullmatch(r"(?:docs/examples/(\w+)\.md|examples/(\w+)/README\.md)", name_of(path))
    name = (found[1] or found[2]) if found else None
    return name if name and (EXAMPLES / name / "config.yaml").is_file() else None


@pytest.fixture
def folder(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder: the example that the page is about, or a small project."""
    example = example_of(path)
    if example is None:
        Project(tmp_path).config()
        name_data(tmp_path)
    else:
        shutil.copytree(EXAMPLES / example, tmp_path, dirs_exist_ok=True, ignore=NOT_COPIED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def name_data(folder: Path) -> None:
    """The rows and tasks of the small project as the dataset `letters/v1` and the benchmark `val`."""
    for file, named in (
        ("train.jsonl", "data/datasets/letters/v1/train.jsonl"),
        ("tasks.jsonl", "data/validation/val/tasks.jsonl"),
    ):
        (folder / named).parent.mkdir(parents=True)
        shutil.copyfile(folder / file, folder / named)


@pytest.fixture
def run_code(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the code of a page as one module, and gives the registry that it has filled."""

    def run(path: Path) -> Registry:
        module = ModuleType("evsys_page")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        with use_registry(Registry()) as registry:
            for block in to_run(path, "python"):
                exec(compile(block.code, str(block), "exec"), vars(module))
        return registry

    return run


@pages("python")
def test_code_runs_and_registers_plugins_that_keep_their_contracts(path: Path, folder: Path, run_code: Any):
    registry = run_code(path)
    assert [str(error) for entry, error in registry.check() if error and entry.local] == []


# --- experiments --------------------------------------------------------------------------------------------------------

BASE: dict[str, Any] = {
    "version": 1,
    "name": "snippet",
    "metadata": {"benchmark": {"name": "val", "path": "tasks.jsonl", "max_tokens": 4}},
    "run": {
        "data": {"path": "train.jsonl", "transforms": [{"kind": "jsonl_to_chat"}]},
        "model": {"name": "evsys/tiny"},
        "algorithm": {"kind": "sft", "params": {"learning_rate": 0.01, "steps": 2, "batch_size": 2}},
        "backend": {"kind": "mock"},
    },
}
# Where a piece of an experiment belongs that isn't at the top of the file.
PLACES = {
    "algorithm": "run",
    "agent": "run",
    "backend": "run",
    "data": "run",
    "model": "run",
    "benchmark": "metadata",
}

ROW = {
    "prompt": "say a",
    "completion": "a",
    "question": "2 + 2?",
    "Question": "2 + 2?",
    "answer": "four",
    "text": "hi",
    "category": "age_limit",
    "query": "hi",
    "tool": "T",
    "topic": "t",
    "source": "s",
    "label": "l",
    "lang": "cs",
    "score": 1.0,
    "raw": "",
    "meta": {"lang": "cs"},
    "instruction": "say a",
    "verifier": {"name": "exact_match", "expected": "a"},
}


def whole(tree: Any, base: dict[str, Any]) -> dict[str, Any]:
    """A whole experiment of what a block shows of one, `base` around it."""
    if isinstance(tree, dict) and "version" in tree:
        return tree
    made = copy.deepcopy(base)
    if isinstance(tree, list):  # transforms; what comes out of the last one is not a concern of theirs
        made["run"]["data"]["transforms"] = [*tree, {"kind": "jsonl_to_chat"}]
        return made
    for key, value in tree.items():
        if key == "matrix":
            varied = made.pop("run", None) or made.get("base_run") or made["matrix"]["base_run"]
            made |= {"matrix": value, "base_run": varied}
        elif key in {"run", "metadata"}:
            made[key] |= value
        else:
            (made[PLACES[key]] if key in PLACES else made)[key] = value
    for chain, said_there in (("stages", ("data", "algorithm")), ("continual", ("data",))):
        for run in ("run", "base_run") if chain in tree else ():
            made[run] = {key: value for key, value in made.get(run, {}).items() if key not in said_there}
    return {key: value for key, value in made.items() if value != {}}


def paths(tree: Any) -> Iterator[str]:
    """The files that an experiment reads, by their paths or by the names of datasets and benchmarks."""
    if isinstance(tree, dict):
        if "dataset_name" in tree:
            name, _, version = tree["dataset_name"].partition("/")
            yield f"data/datasets/{name}/{version or 'v1'}/train.jsonl"
        for key, value in tree.items():
            yield from [value] if key == "path" and isinstance(value, str) else paths(value)
            yield from named_benchmarks(value) if key == "benchmark" else ()
    if isinstance(tree, list):
        for item in tree:
            yield from paths(item)


def named_benchmarks(entries: Any) -> Iterator[str]:
    """The tasks of the entries that have a name and nothing else to find them by."""
    for entry in entries if isinstance(entries, list) else [entries]:
        if isinstance(entry, dict) and "name" in entry and not {"path", "id"} & set(entry):
            kind = "benchmark" if entry.get("split") == "test" else "validation"
            yield f"data/{kind}/{entry['name']}/tasks.jsonl"


def provide(folder: Path, name: str) -> None:
    """A file of rows that have a column for everybody, where there is none."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return
    rows = [
        ROW | {"task_id": f"t{number}", "prompt": f"say {number}", "instruction": f"say {number}"}
        for number in range(200)
    ]
    if path.suffix == ".csv":
        rows = [{key: value for key, value in row.items() if isinstance(value, str)} for row in rows]
        text = "".join(",".join(line) + "\n" for line in [rows[0], *(row.values() for row in rows)])
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")


@pages("yaml")
def test_experiments_and_pieces_of_them_are_valid(path: Path, folder: Path, run_code: Any):
    yaml = YAML(typ="safe", pure=True)
    base = yaml.load((folder / "config.yaml").read_text(encoding="utf-8")) if example_of(path) else BASE
    registry = Registry() if example_of(path) else run_code(path)  # an example has its code in `src/` already
    if example_of(path) is None:
        # The small project's files have fewer rows and tasks than many a page needs.
        (folder / "train.jsonl").unlink()
        shutil.rmtree(folder / "data")
        provide(folder, "train.jsonl")
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src/transforms.py").touch()
    with (folder / "src/transforms.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef clean(row):\n    return row\n")
    for block in to_run(path, "yaml"):
        tree = whole(yaml.load(block.code), base)
        for name in paths(tree):
            provide(folder, name)
        file = folder / f"block-{block.line}.yaml"
        file.write_text(json.dumps(tree), encoding="utf-8")
        assert_valid(file, registry, str(block))


def assert_valid(file: Path, registry: Registry, where: str) -> None:
    """Nothing is wrong with an experiment, but that a machine may have to fetch its model first."""
    wrong: list[str] = []
    try:
        plan = load_experiment(file, registry=registry)
        assert plan.arms or plan.search, where
    except ConfigError as exc:
        wrong += [str(problem) for problem in exc.problems if "run `evsys models fetch" not in str(problem)]
    assert wrong == [], where


# --- commands -----------------------------------------------------------------------------------------------------------

DISTRIBUTIONS = {
    dist.name: dist.pyproject["project"].get("optional-dependencies", {}) for dist in distributions()
}
ELSEWHERE = {"cd", "git", "mkdir", "source"}
"""Commands of a reader's own machine, which nothing here could prove wrong."""
PLACEHOLDER = re.compile(r"\bmy[-_]|\.\.\.|YOUR|DIST|FILE|NAME|PATH")


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command of a block, comments left out."""
    for line in block.code.replace("\\\n", " ").splitlines():
        for command in line.partition(" #")[0].split("&&"):
            words = shlex.split(command.partition(" > ")[0], comments=True)
            if words:
                yield words


@pages("bash")
def test_commands_are_those_that_there_are_and_do_their_work(path: Path, folder: Path):
    if example_of(path) is None or name_of(path).startswith("docs/"):
        shutil.copytree(EXAMPLES, folder / "examples", ignore=NOT_COPIED)
        plugins = [block.code for block in to_run(path, "python") if "@register_" in block.code]
        if plugins:
            (folder / "src").mkdir(exist_ok=True)
            (folder / "src/of_the_page.py").write_text("\n\n".join(plugins), encoding="utf-8")
    for block in to_run(path, "bash"):
        for words in commands(block):
            check_command(words, folder, str(block))


def check_command(words: list[str], folder: Path, where: str) -> None:
    match words:
        case ["uv", "run", *rest]:
            check_command(rest, folder, where)
        case ["uvx", "nox", *rest] | ["nox", *rest]:
            check_sessions(rest, where)
        case ["pip", "install", *rest] | ["uv", "pip", "install", *rest]:
            check_requirements(rest, where)
        case ["uv", "sync" | "venv", *_]:
            pass
        case ["evsys", *rest]:
            check_evsys(rest, folder, where)
        case ["pytest", *rest]:
            check_pytest(rest, where)
        case [name, *_]:
            assert name in ELSEWHERE, f"{where}: nothing checks {name!r}; mark the block, or teach this test"


def check_sessions(words: list[str], where: str) -> None:
    defined = re.findall(
        r"^@nox\.session.*\ndef (\w+)", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    named = [following for word, following in itertools.pairwise(words) if word == "-s"]
    assert set(named) <= set(defined), where


def check_requirements(words: list[str], where: str) -> None:
    for word in words:
        name, extra = re.fullmatch(r"([\w.-]*)(?:\[(\w+)\])?.*", word).groups()
        if name.startswith("evsys"):
            assert name in DISTRIBUTIONS, f"{where}: there is no {name}"
            assert extra is None or extra in DISTRIBUTIONS[name], f"{where}: {name} has no extra {extra!r}"


def check_evsys(words: list[str], folder: Path, where: str) -> None:
    """Run a command of ours, with less work where other tests have all of it.

    The examples are run by `tests/examples/`, so here they are validated with the options of the run; other runs are short
    ones. The suite is run by its own tests. Of a command that names something of the reader's its help is asked for.
    """
    if words[0] == "run":
        short = ["--quiet"] if where.startswith(SKILLS) else ["--dry", "--quiet"]  # agents read what they ran
        words = ["validate", *words[1:]] if is_example(words, where) else [*words, *short]
    elif words[0] == "conformance" or any(PLACEHOLDER.search(word) for word in words):
        assert words[0] != "conformance" or PLACEHOLDER.search(words[1]) or words[1] in DISTRIBUTIONS, where
        check_options(words, where)
        return
    done = evsys(*words, folder=folder)
    assert done.returncode == 0, f"{where}: evsys {' '.join(words)}\n{done.stdout}{done.stderr}"


def check_options(words: list[str], where: str) -> None:
    """The help of a command lists the options that it is given; a command of commands knows the one that is named."""
    asked = help_of(*words[:1])
    if "COMMAND [ARGS]" in asked.stdout:
        asked = help_of(*words[:2])
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    assert asked.returncode == 0, f"{where}: {asked.stderr}"
    assert [option for option in options if option not in re.findall(r"--[\w-]+", asked.stdout)] == [], where


@functools.cache
def help_of(*words: str) -> subprocess.CompletedProcess[str]:
    """What a command says of itself, which many pages ask for."""
    return evsys(*words, "--help", folder=ROOT)


def evsys(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evsys_cli.main", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def is_example(words: list[str], where: str) -> bool:
    named = words[1].startswith("examples/") or example_of(ROOT / where.partition(":")[0]) is not None
    return named and words[1].endswith("config.yaml")


def check_pytest(words: list[str], where: str) -> None:
    asked = [word.partition("=")[0] for word in words if word.startswith("--")]
    assert [option for option in asked if option not in pytest_options()] == [], where


@functools.cache
def pytest_options() -> set[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(re.findall(r"--[\w-]+", done.stdout))


@pytest.mark.parametrize(
    "command",
    [
        "evsys rnu config.yaml",
        "evsys list --al",
        "evsys run examples/nowhere/config.yaml",
        "evsys conformance evsys-nowhere",
        "evsys conformance my-package --jsno",
        "evsys models fetsh my-model",
        "evsys models check my-model --from-fiel x",
        "pytest --evsys-conform my-package",
        "nox -s tset",
        "pip install 'evsys-sdk[everything]'",
        "uv pip install evsys-nothing",
        "uv run make",
    ],
)
def test_a_command_that_there_is_not_is_found(command: str, tmp_path: Path):
    with pytest.raises(AssertionError):
        check_command(shlex.split(command), tmp_path, "README.md:1")


def test_blocks_are_read_with_their_marks_languages_and_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    page = tmp_path / "page.md"
    page.write_text(
        "* item\n\n  ```python\n  if 1:\n      x = 2\n  ```\n\n<!-- not run: no such machine -->\n```bash\na\n```\n"
        "```yaml title='x'\nb: 1\n```\n\n<!-- not run: nothing follows -->\n\n```\ndrawn\n```\n",
        encoding="utf-8",
    )
    read = [(block.line, block.language, block.code, block.reason) for block in blocks(page)]
    assert read == [
        (3, "python", "if 1:\n    x = 2\n", None),
        (9, "bash", "a\n", "no such machine"),
        (12, "yaml", "b: 1\n", None),
        (18, "", "drawn\n", None),
    ]
    assert marks(page) == [8, 16]
    assert [block.language for block in blocks(page, "bash", "yaml")] == ["bash", "yaml"]


@pytest.mark.parametrize(
    "tree", [{"algorithm": {"kind": "sft", "params": {"step": 3}}}, [{"kind": "fliter"}]]
)
def test_a_piece_of_an_experiment_that_is_wrong_is_found(
    tree: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Project(tmp_path)
    file = tmp_path / "block.yaml"
    file.write_text(json.dumps(whole(tree, BASE)), encoding="utf-8")
    with pytest.raises(ConfigError):
        load_experiment(file, registry=Registry())


# --- other languages ----------------------------------------------------------------------------------------------------


@pages("json", "toml", "ini")
def test_documents_and_settings_are_right(path: Path, folder: Path, run_code: Any):
    registry = run_code(path)
    for block in to_run(path, "json"):
        check_json(json.loads(block.code), registry)
    for block in to_run(path, "toml"):
        groups = tomllib.loads(block.code).get("project", {}).get("entry-points", {})
        assert set(groups) <= {*protocols.KINDS.values(), "evsys.skills"}, str(block)
    for block in to_run(path, "ini"):
        configparser.ConfigParser().read_string(block.code)


def check_json(tree: Any, registry: Registry) -> None:
    """A verifier that a document names can be made from the params that it gives."""
    if isinstance(tree, dict):
        if {"name", "expected"} <= set(tree):
            params = tree.get("params")
            if tree["name"] == "code_tests" and no_sandbox() is not None:  # check its params all the same
                params = {**(params or {}), "allow_unsandboxed": True}
            registry.build("verifier", tree["name"], params)
        for value in tree.values():
            check_json(value, registry)
