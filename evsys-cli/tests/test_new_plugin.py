"""`evsys new-plugin` on the command line: what it writes where, and what it refuses."""

import ast
import re
import tomllib

import pytest

from evsys.protocols import KINDS
from evsys_cli.scaffold.plugin_package import Author


def pyproject(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_becomes_a_package_whose_entry_point_is_there(evsys, tmp_path, kind):
    outcome = evsys("new-plugin", kind, "first-try", "--json")
    assert outcome.code == 0, outcome.err
    folder = tmp_path / "evsys-first-try"
    assert outcome.json["directory"] == outcome.json["distribution"] == "evsys-first-try"
    assert (outcome.json["kind"], outcome.json["package"]) == (kind, "evsys_first_try")
    assert sorted(outcome.json["files"]) == sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    assert set(outcome.json["files"]) >= {
        *(".gitignore", "LICENSE", "README.md", "pyproject.toml"),
        *("src/evsys_first_try/__init__.py", "src/evsys_first_try/py.typed"),
    }
    assert [name for name in outcome.json["files"] if name.startswith("tests/test_")]
    project = pyproject(folder)
    assert project["entry-points"].keys() == {KINDS[kind]}
    module, _, attribute = project["entry-points"][KINDS[kind]]["first-try"].partition(":")
    path = folder / "src" / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = {getattr(node, "name", None) for node in ast.walk(tree)}
    assert not attribute or attribute in defined


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_nothing_that_is_written_is_left_to_be_filled_in(evsys, tmp_path, kind):
    evsys("new-plugin", kind, "first-try")
    for path in (tmp_path / "evsys-first-try").rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not re.search(
                r"\$\{?[a-z_]+|NotImplementedError|^\s+(pass|\.\.\.)$", text, re.MULTILINE
            ), path
            assert not text or (text.endswith("\n") and not text.endswith("\n\n")), path


def test_it_depends_on_the_core_that_is_installed_and_on_little_else(evsys, tmp_path):
    evsys("new-plugin", "verifier", "first-try")
    assert pyproject(tmp_path / "evsys-first-try")["dependencies"] == ["evsys-core~=0.1", "attrs>=24.2"]
    evsys("new-plugin", "renderer", "second-try")
    assert pyproject(tmp_path / "evsys-second-try")["dependencies"] == ["evsys-core~=0.1"]


def test_a_name_with_k_is_a_family_of_metrics(evsys, tmp_path):
    assert evsys("new-plugin", "metric", "best@k").code == 0
    project = pyproject(tmp_path / "evsys-best-at-k")
    assert project["entry-points"]["evsys.metrics"] == {"best@k": "evsys_best_at_k:BestAtKMetric"}


def test_the_next_steps_are_told(evsys):
    outcome = evsys("new-plugin", "verifier", "first-try", "--directory", "a folder/mine")
    assert "wrote a folder/mine/README.md" in outcome.out
    assert outcome.out.splitlines()[-4:] == [
        "  cd 'a folder/mine'",
        "  uv pip install --editable . --group dev",
        "  pytest",
        "  evsys conformance evsys-first-try",
    ]


def test_an_empty_folder_is_taken(evsys, tmp_path):
    (tmp_path / "mine").mkdir()
    assert evsys("new-plugin", "verifier", "first-try", "--directory", "mine").code == 0


@pytest.mark.parametrize("kept", ["evsys-first-try/notes.txt", "evsys-first-try"])
def test_what_is_there_is_left_alone(evsys, tmp_path, kept):
    path = tmp_path / kept
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    outcome = evsys("new-plugin", "verifier", "first-try")
    assert outcome.code == 2
    assert "--directory" in outcome.err
    assert sorted(tmp_path.rglob("*")) == before
    assert path.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("data-store", "x"), "unknown kind 'data-store'; did you mean 'data_store'?"),
        (("widget", "x"), "unknown kind 'widget'; kinds: algorithm, backend"),
        (("verifier", "MyThing"), "'my-thing' is one"),
        (("verifier", "exact_match"), "evsys-verifiers-std already provides verifier 'exact_match'"),
        (("metric", "pass@k"), "evsys-verifiers-std already provides metric 'pass@k'"),
        (("command", "run"), "'evsys run' is already a command"),
        (("command", "resume"), "'evsys resume' is already a command"),
        (("verifier", "x", "--author", "<nobody>"), "is not a valid author"),
        (("verifier", "x", "--author", " "), "is not a valid author"),
    ],
)
def test_what_is_refused_writes_nothing(evsys, tmp_path, arguments, said):
    outcome = evsys("new-plugin", *arguments, "--json")
    assert outcome.code == 2
    assert said in outcome.json["error"]["message"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("author", "person", "holder"),
    [
        (
            'Ada "the first" \\ Lovelace',
            {"name": 'Ada "the first" \\ Lovelace'},
            'Ada "the first" \\ Lovelace',
        ),
        ("山田 <y@example.org>", {"name": "山田", "email": "y@example.org"}, "山田"),
        ("<y@example.org>", {"email": "y@example.org"}, "y@example.org"),
    ],
)
def test_the_author_stands_in_metadata_and_licence(evsys, tmp_path, author, person, holder):
    assert evsys("new-plugin", "verifier", "first-try", "--author", author).code == 0
    assert pyproject(tmp_path / "evsys-first-try")["authors"] == [person]
    licence = (tmp_path / "evsys-first-try/LICENSE").read_text(encoding="utf-8")
    assert re.search(rf"^Copyright \(c\) \d{{4}} {re.escape(holder)}$", licence, re.MULTILINE)


@pytest.mark.parametrize("text", ["", "a\nb", "Ada <ada>", "Ada <a@b> more", "a\x7fb"])
def test_what_is_no_author_is_refused(text):
    with pytest.raises(ValueError, match="is not a valid author"):
        Author.parse(text)


def test_without_an_author_the_authors_hold_the_copyright(evsys, tmp_path):
    evsys("new-plugin", "verifier", "first-try")
    assert "authors" not in pyproject(tmp_path / "evsys-first-try")
    licence = (tmp_path / "evsys-first-try/LICENSE").read_text(encoding="utf-8")
    assert "The authors of evsys-first-try" in licence


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_kind_that_no_experiment_can_use_is_warned_of(evsys, kind):
    outcome = evsys("new-plugin", kind, "first-try")
    assert outcome.code == 0
    keys = {"deployer": "$.deploy"}
    expected = (
        f"no experiment can use a {kind} yet, since {keys[kind]} is not in this version"
        if kind in keys
        else ""
    )
    assert expected in outcome.err
    assert ("warning" in outcome.err) == (kind in keys)


# --- several plugins in one distribution --------------------------------------------------------------------------------


def test_several_kinds_share_a_distribution(evsys, tmp_path):
    outcome = evsys(
        *("new-plugin", "--distribution", "my-words", "--add", "verifier:near", "--add", "metric:near"),
        "--json",
    )
    assert outcome.code == 0, outcome.err
    assert outcome.json["plugins"] == [
        {"kind": "verifier", "name": "near", "package": "my_words.near_verifier"},
        {"kind": "metric", "name": "near", "package": "my_words.near_metric"},
    ]
    folder = tmp_path / "my-words"
    assert pyproject(folder)["entry-points"] == {
        "evsys.metrics": {"near": "my_words.near_metric:NearMetric"},
        "evsys.verifiers": {"near": "my_words.near_verifier:NearVerifier"},
    }
    assert sorted(outcome.json["files"]) == sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def test_a_kind_is_added_to_a_distribution_with_changes_of_its_author(evsys, tmp_path):
    evsys("new-plugin", "verifier", "near")
    folder = tmp_path / "evsys-near"
    path = folder / "pyproject.toml"
    own = (
        path.read_text(encoding="utf-8").replace("0.1.0", "0.2.0  # own").replace("attrs>=24.2", "attrs>=25")
    )
    path.write_text(own, encoding="utf-8")
    before = {each: each.read_bytes() for each in (folder / "src").rglob("*.py")}
    outcome = evsys(
        "new-plugin", "--distribution", "evsys-near", "--add", "verifier:far", "--add", "command:near"
    )
    assert outcome.code == 0, outcome.err
    text = path.read_text(encoding="utf-8")
    assert 'version = "0.2.0  # own"' in text
    assert pyproject(folder)["dependencies"] == ["evsys-core~=0.1", "attrs>=25", "click>=8.1"]
    assert pyproject(folder)["entry-points"] == {
        "evsys.commands": {"near": "evsys_near.near_command.command:command"},
        "evsys.verifiers": {
            "far": "evsys_near.far_verifier:FarVerifier",
            "near": "evsys_near:NearVerifier",
        },
    }
    assert {each: each.read_bytes() for each in before} == before
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert (
        readme.index("### The verifier `far`")
        < readme.index("### The command `near`")
        < readme.index("## Dev")
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("verifier",), "missing NAME"),
        (("--add", "metric:x"), "write KIND NAME, or --distribution NAME --add KIND:NAME"),
        (("--distribution", "x"), "write KIND NAME, or --distribution NAME --add KIND:NAME"),
        (("--distribution", "My_Words", "--add", "metric:x"), "is not a valid distribution name"),
        (("--distribution", "evsys-std", "--add", "metric:x"), "is a distribution of evsys itself"),
        (("--distribution", "x", "--add", "metric"), "isn't of the form KIND:NAME"),
        (("--distribution", "x", "--add", "metric:x", "--add", "metric:x"), "the metric 'x' is given twice"),
        (("--distribution", "x", "--add", "metric:pass@k"), "already provides metric 'pass@k'"),
        (("--distribution", "x", "--add", "widget:x"), "unknown kind 'widget'"),
    ],
)
def test_additions_that_are_refused_write_nothing(evsys, tmp_path, arguments, said):
    outcome = evsys("new-plugin", *arguments, "--json")
    assert outcome.code == 2
    assert said in outcome.json["error"]["message"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("dependencies = [\n", "dependencies = [ # mine\n", "isn't laid out"),
        ('"near" = ', '"far" = ', "already has the verifier far"),
        ("[project]", "[project", "is not empty"),
    ],
)
def test_a_distribution_that_cannot_be_added_to_is_left_alone(evsys, tmp_path, old, new, said):
    evsys("new-plugin", "verifier", "near")
    path = tmp_path / "evsys-near/pyproject.toml"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    more = ("--add", "verifier:far", "--add", "command:far")
    outcome = evsys("new-plugin", "--distribution", "evsys-near", *more, "--json")
    assert outcome.code == 2
    assert said in outcome.json["error"]["message"]
    assert {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()} == before
