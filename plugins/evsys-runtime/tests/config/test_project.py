import sys
import textwrap
from pathlib import Path

import pytest

from evsys import Registry, current_registry, use_registry
from evsys.errors import ConfigError, PluginConflictError, PluginLoadError
from evsys_runtime.config.project import import_project_code, project_registry
from evsys_runtime.config.validate import load_experiment


def write(root: Path, **files: str) -> Path:
    (root / "src").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / "src" / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
    return root


VERIFIER = """
    from evsys import register_verifier

    @register_verifier("mine")
    def mine(model_output, expected, params):
        return {}
"""


def test_what_a_module_prints_goes_to_standard_error_and_is_printed_once(tmp_path: Path, capsys):
    write(tmp_path, loud="print('hello')\n")
    import_project_code(tmp_path, empty())
    import_project_code(tmp_path, empty())
    sys.stdout.write("answer")
    assert capsys.readouterr() == ("answer", "hello\n")


@pytest.mark.parametrize("code", ["sys.exit(0)", "sys.exit()", "raise SystemExit('no key')"])
def test_a_module_that_exits_when_it_is_imported_is_named_with_its_line(tmp_path: Path, code: str):
    write(tmp_path, leaves=f"import sys\n{code}\n")
    with pytest.raises(
        PluginLoadError, match=r"leaves\.py:2: the project's code can't be imported: SystemExit"
    ):
        import_project_code(tmp_path, empty())


def empty() -> Registry:
    return Registry(entry_points=())


def scores(registry: Registry) -> float:
    return registry.get("verifier", "mine")("", None, {})


# --- its code --------------------------------------------------------------------------------------------------------


def test_a_project_without_code_is_fine(tmp_path: Path):
    assert import_project_code(tmp_path, empty()) == ()


@pytest.mark.parametrize("init", [True, False])
def test_every_module_of_src_is_imported_and_registers_in_the_registry_of_the_project(
    tmp_path: Path, init: bool
):
    write(
        tmp_path,
        verifiers=VERIFIER.format(1.0),
        _private="raise RuntimeError",
        test_it="raise RuntimeError",
        conftest="raise RuntimeError",
    )
    (tmp_path / "src" / "not-a-module.py").write_text("raise RuntimeError", encoding="utf-8")
    (tmp_path / "src" / "pack").mkdir()
    (tmp_path / "src" / "pack" / "__init__.py").write_text("", encoding="utf-8")
    if init:
        write(tmp_path, __init__="LOADED = True")
    registry = empty()
    assert import_project_code(tmp_path, registry) == ("src", "src.pack", "src.verifiers")
    assert scores(registry) == 1.0
    assert not [entry for entry in current_registry().entries() if entry.local]


def test_modules_are_those_that_the_user_imports(tmp_path: Path):
    write(tmp_path, verifiers=VERIFIER.format(1.0), other="from src.verifiers import mine")
    registry = empty()
    import_project_code(tmp_path, registry)
    import src.verifiers

    assert src.verifiers.mine is registry.get("verifier", "mine")
    assert sys.modules["src.other"].mine is src.verifiers.mine


def test_a_second_registry_gets_the_same_plugins(tmp_path: Path):
    write(tmp_path, verifiers=VERIFIER.format(1.0))
    first, second = empty(), empty()
    import_project_code(tmp_path, first)
    import_project_code(tmp_path, second)
    import_project_code(tmp_path, second)
    assert first.get("verifier", "mine") is second.get("verifier", "mine")


def test_what_the_user_imported_before_is_registered_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, verifiers=VERIFIER.format(1.0))
    monkeypatch.syspath_prepend(str(tmp_path))
    with use_registry(empty()):
        import src.verifiers

        registry = empty()
        import_project_code(tmp_path, registry)
        assert registry.get("verifier", "mine") is src.verifiers.mine
        fresh = project_registry()
        assert "mine" not in [entry.name for entry in fresh.entries("verifier")]


def test_two_projects_in_one_process_keep_their_own_code(tmp_path: Path):
    one, two = (
        write(tmp_path / "one", verifiers=VERIFIER.format(1.0)),
        write(tmp_path / "two", verifiers=VERIFIER.format(2.0)),
    )
    first, second, again = empty(), empty(), empty()
    import_project_code(one, first)
    module = sys.modules["src.verifiers"]
    import_project_code(two, second)
    assert (scores(first), scores(second)) == (1.0, 2.0)
    assert sys.modules["src.verifiers"] is not module
    import_project_code(one, again)
    assert scores(again) == 1.0
    assert sys.modules["src.verifiers"] is module
    assert [part for part in sys.path if part in {str(one), str(two)}] == [str(one)]


def test_a_stranger_called_src_does_not_get_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stranger = write(tmp_path / "stranger", __init__="", verifiers="raise RuntimeError")
    monkeypatch.syspath_prepend(str(stranger))
    import src  # noqa: F401 - the stranger's

    project = write(tmp_path / "project", verifiers=VERIFIER.format(3.0))
    registry = empty()
    import_project_code(project, registry)
    assert scores(registry) == 3.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nraise RuntimeError('boom')\n", r"src/broken\.py:2: the project's code can't be imported: RuntimeError: boom; correct it"),
        ("x = 1\n\ndef f(:\n", r"src/broken\.py:3: the project's code can't be imported: SyntaxError"),
        ("import nothing_like_it\n", r"src/broken\.py:1: .*ModuleNotFoundError: .*; install what it needs: pip install nothing_like_it"),
        ("from src.missing import x\n", r"src/broken\.py:1: .*ModuleNotFoundError: .*; correct it"),
        ("import json\njson.loads('{')\n", r"src/broken\.py:2: the project's code can't be imported: JSONDecodeError"),
    ],
)  # fmt: skip
def test_an_error_in_the_code_names_file_and_line(tmp_path: Path, text: str, message: str):
    write(tmp_path, broken=text)
    with pytest.raises(PluginLoadError, match=message):
        import_project_code(tmp_path, empty())
    assert "src.broken" not in sys.modules


def test_corrected_code_is_imported_on_the_next_try(tmp_path: Path):
    write(tmp_path, __init__="", verifiers="raise RuntimeError('boom')")
    with pytest.raises(PluginLoadError):
        import_project_code(tmp_path, empty())
    write(tmp_path, verifiers=VERIFIER.format(4.0) + "    # corrected\n")
    registry = empty()
    import_project_code(tmp_path, registry)
    assert scores(registry) == 4.0


def test_two_plugins_of_one_name_are_a_conflict(tmp_path: Path):
    write(tmp_path, one=VERIFIER.format(1.0), two=VERIFIER.format(2.0))
    with pytest.raises(PluginConflictError, match="'mine' is registered twice"):
        import_project_code(tmp_path, empty())


# --- together --------------------------------------------------------------------------------------------------------


def test_an_experiment_uses_the_plugins_of_its_project(project: Path, registry: Registry):
    write(
        project,
        transforms="""
            import attrs
            from evsys import register_transform

            @register_transform("halve")
            class Halve:
                @attrs.frozen(kw_only=True)
                class Config:
                    keep: float = 0.5

                def __init__(self, **kw):
                    self.keep = kw["keep"]

                def __call__(self, rows):
                    return rows
        """,
    )
    text = """
name: x
run:
  data: {path: data/train.jsonl, transforms: [{kind: halve, params: {keep: 0.25}}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft}
  backend: {kind: mock}
"""
    config = project / "config.yaml"
    config.write_text(text, encoding="utf-8")
    plan = load_experiment(config, registry=registry)
    assert plan.registry.find("transform", "halve").local
    config.write_text(text.replace("keep", "kep"), encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"transforms\[0\]\.params\.kep: unknown key 'kep'; did you mean 'keep'"
    ):
        load_experiment(config, registry=registry)


def test_by_default_the_registry_holds_what_was_registered_here_and_the_project_adds_to_its_own(
    tmp_path: Path,
):
    write(tmp_path, verifiers=VERIFIER.format(1.0))
    (tmp_path / ".evsys").mkdir()
    here = empty()
    here.register("verifier", "elsewhere", lambda model_output, expected, params: 1.0)
    with use_registry(here):
        registry = project_registry()
        import_project_code(tmp_path, registry)
    assert [entry.name for entry in here.entries("verifier")] == ["elsewhere"]
    assert {entry.name for entry in registry.entries("verifier") if entry.local} == {"elsewhere", "mine"}
