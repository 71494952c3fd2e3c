"""A page that is followed to the letter: its commands are run in order, its files written, its outputs compared.

    python literate.py PAGE FOLDER

Commands stand in blocks of `bash`, which all run in one shell that begins in FOLDER, so that `cd` and `source` last. A
block with `title="PATH"` is a file. A block behind commands, in any other language, is what they print on standard output;
`...` in it stands for any text. What differs ends the process with a message.
"""

import difflib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_SECONDS = 600
_NOT_FRESH = {"PYTHONHOME", "PYTHONPATH", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "VIRTUAL_ENV"}
"""What a reader's fresh shell doesn't have."""
_FENCED = re.compile(r"^```(?P<language>\w+)(?P<about>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_END_OF_FILE = "end of a file of the page"
_MARK = "=== block of the page at line "


class PageError(Exception):
    """A page that isn't as this module reads it, or doesn't come out as it says."""


@dataclass(frozen=True)
class Step:
    """A file to write or commands to run. `line` is where its block begins; `printed` is what the page shows of it."""

    line: int
    text: str
    path: str | None = None
    printed: str | None = None


def steps_of(page: str) -> list[Step]:
    """The steps of a page.

    Raises:
        PageError: a block is none of those that there may be.
    """
    steps: list[Step] = []
    for block in _FENCED.finditer(page):
        line = page.count("\n", 0, block.start()) + 1
        title = re.fullmatch(r'\s+title="([^"]+)"', block["about"])
        if block["about"] and title is None:
            raise PageError(
                f"line {line}: only `title` may stand behind a block's language: {block['about']!r}"
            )
        if title is not None:
            steps.append(Step(line, block["body"], path=title[1]))
        elif block["language"] == "bash":
            steps.append(Step(line, block["body"]))
        elif steps and steps[-1].path is None and steps[-1].printed is None:
            last = steps.pop()
            steps.append(Step(last.line, last.text, printed=block["body"]))
        else:
            raise PageError(
                f"line {line}: a {block['language']} block without a title, and not behind commands"
            )
    return steps


def script_of(steps: list[Step]) -> str:
    """One script for one shell, which marks on standard output where the commands of a block begin."""
    parts = ["set -eo pipefail\n"]
    for step in steps:
        parts.append(f"echo '{_MARK}{step.line}'\n")
        if step.path is None:
            parts.append(step.text)
        else:
            folder = Path(step.path).parent.as_posix()
            parts.append(
                f"mkdir -p '{folder}'\ncat > '{step.path}' <<'{_END_OF_FILE}'\n{step.text}{_END_OF_FILE}\n"
            )
    return "".join(parts)


def outputs_of(output: str) -> dict[int, str]:
    """What each block printed, by its line."""
    pieces = re.split(rf"^{re.escape(_MARK)}(\d+)\n", output, flags=re.MULTILINE)
    return {int(line): text for line, text in zip(pieces[1::2], pieces[2::2], strict=True)}


def differs(shown: str, printed: str) -> str | None:
    """How an output isn't what the page shows, or None where it is."""
    wanted, found = (
        "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) for text in (shown, printed)
    )
    pattern = ".*".join(map(re.escape, wanted.split("...")))
    if re.fullmatch(pattern, found, re.DOTALL):
        return None
    return "\n".join(
        difflib.unified_diff(wanted.splitlines(), found.splitlines(), "page", "output", lineterm="")
    )


def follow(page: Path, folder: Path) -> int:
    """Follow a page in a folder; returns how many steps it has.

    Raises:
        PageError: a command failed, or printed something else.
    """
    steps = steps_of(page.read_text(encoding="utf-8"))
    if not steps:
        raise PageError(f"{page} has no steps")
    done = subprocess.run(
        ["bash", "-c", script_of(steps)],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if name not in _NOT_FRESH},
            "NO_COLOR": "1",
            "EVSYS_LOOKS": "off",  # what was run on this machine before is not on the page
        },
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    outputs = outputs_of(done.stdout)
    for step in steps:
        if step.line in outputs and step.printed is not None:
            difference = differs(step.printed, outputs[step.line])
            if difference is not None and (done.returncode == 0 or step.line != max(outputs)):
                raise PageError(f"{page}:{step.line}: these commands print something else:\n{difference}")
    if done.returncode != 0:
        line = max(outputs)
        raise PageError(f"{page}:{line}: these commands ended with {done.returncode}:\n{outputs[line]}")
    return len(steps)


if __name__ == "__main__":
    try:
        steps = follow(Path(sys.argv[1]), Path(sys.argv[2]))
    except PageError as exc:
        sys.exit(str(exc))
    sys.stdout.write(f"{sys.argv[1]}: {steps} steps, all as the page says\n")
