"""The ten-minute page shows what is written today, and whoever follows a page notices when it doesn't come out."""

import subprocess
import sys
from pathlib import Path

import pytest
from house import ROOT
from literate import PageError, Step, differs, follow, steps_of

from evsys_cli.scaffold.plugin_names import names_of
from evsys_cli.scaffold.plugin_package import write_plugin_package

PAGE = ROOT / "docs/tutorial/first-plugin.md"


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    write_plugin_package([names_of("verifier", "close-enough")], tmp_path)
    return tmp_path


def test_the_plugin_that_the_page_shows_is_the_one_that_is_written(generated: Path):
    source = generated / "src/evsys_close_enough/verifier.py"
    (shown,) = [step.printed for step in steps_of(PAGE.read_text(encoding="utf-8")) if "cat src" in step.text]
    assert shown == source.read_text(encoding="utf-8")


def test_the_page_changes_a_file_that_is_written_and_adds_others(generated: Path):
    written = {path.relative_to(generated).as_posix() for path in generated.rglob("*") if path.is_file()}
    paths = [step.path for step in steps_of(PAGE.read_text(encoding="utf-8")) if step.path is not None]
    assert [path for path in paths if path in written] == ["src/evsys_close_enough/verifier.py"]
    assert [path for path in paths if path not in written] == [
        "tests/test_partial.py",
        "config.yaml",
        "numbers.jsonl",
        "held_out.jsonl",
    ]


def test_blocks_are_commands_files_and_outputs():
    page = (
        "Text.\n\n```bash\ncd a\n```\n\nIt says:\n\n```text\nyes\n```\n\n"
        '```python title="a/b.py"\nx = 1\n```\n\n```bash\nls\n```\n'
    )
    assert steps_of(page) == [
        Step(3, "cd a\n", printed="yes\n"),
        Step(13, "x = 1\n", path="a/b.py"),
        Step(17, "ls\n"),
    ]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```python\nx = 1\n```\n", "line 1: a python block without a title, and not behind commands"),
        ("```bash\nls\n```\n\n```text\na\n```\n\n```text\nb\n```\n", "line 9: a text block"),
        ('```python hl_lines="1"\nx = 1\n```\n', "only `title` may stand"),
    ],
)
def test_a_block_of_no_meaning_is_refused(page: str, said: str):
    with pytest.raises(PageError, match=said):
        steps_of(page)


@pytest.fixture
def page(tmp_path: Path):
    """Writes a page and follows it in a folder of its own."""

    def write_and_follow(text: str) -> int:
        path, folder = tmp_path / "page.md", tmp_path / "folder"
        path.write_text(text, encoding="utf-8")
        folder.mkdir()
        return follow(path, folder)

    return write_and_follow


def test_one_shell_runs_all_commands_and_files_are_written_where_it_is(page, tmp_path: Path):
    steps = page(
        "```bash\nmkdir sub && cd sub\nNAME='it is $1'\n```\n\n"
        '```text title="deep/file.txt"\n$NAME `ls` "é"\n```\n\n'
        '```bash\ncat deep/file.txt\necho "$NAME"\n```\n\n```text\n$NAME `ls` "é"\nit is $1\n```\n'
    )
    assert steps == 3
    assert (tmp_path / "folder/sub/deep/file.txt").is_file()


def test_a_shell_begins_without_the_environment_of_whoever_follows(page, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VIRTUAL_ENV", "somewhere")
    assert page('```bash\necho "<$VIRTUAL_ENV>"\n```\n\n```text\n<>\n```\n') == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```bash\necho a\n```\n\n```text\nb\n```\n", r"page.md:1: these commands print something else:\n.*\n.*\n.*\n-b\n\+a"),
        ("Text.\n\n```bash\necho out of luck\nfalse\necho on\n```\n", r"page.md:3: these commands ended with 1:\nout of luck"),
        ("```bash\nfalse | true\n```\n\n```text\n```\n", "ended with 1"),
        ("```bash\necho a\n```\n\n```text\nb\n```\n\n```bash\nfalse\n```\n", "page.md:1: these commands print something else"),
        ("Nothing.\n", "has no steps"),
    ],
)  # fmt: skip
def test_what_differs_is_told(page, text: str, said: str):
    with pytest.raises(PageError, match=said):
        page(text)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\n", "a  \n\n", True),
        ("12 passed in ...s\n", "12 passed in 0.31s\n", True),
        ("...\nlast\n", "one\ntwo\nlast\n", True),
        ("a...\n", "ba\n", False),
        ("a\n", "a\nb\n", False),
        ("a.c\n", "abc\n", False),
        ("", "a\n", False),
    ],
)
def test_three_dots_stand_for_any_text_and_nothing_else_does(shown: str, printed: str, same: bool):
    assert (differs(shown, printed) is None) is same


def test_as_a_script_it_ends_with_what_happened(tmp_path: Path):
    script = ROOT / "tests/support/literate.py"
    for text, code in (("```bash\ntrue\n```\n", 0), ("```bash\nfalse\n```\n", 1)):
        (tmp_path / "page.md").write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(script), "page.md", "."],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
