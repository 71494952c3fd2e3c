"""What a sandbox without images makes of a Dockerfile."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys.errors import RolloutError
from evsys_rollouts_harbor.images import Image, _instructions, read_image

PLAIN = """\
# syntax=docker/dockerfile:1
FROM ubuntu:24.04

WORKDIR /place
ENV A=1 B="two words"
ENV OLD one two
COPY data.txt extra.txt ./
COPY --chown=root ["folder", "/data"]
EXPOSE 80
CMD ["sleep", \\
     "infinity"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "environment"
    (folder / "folder").mkdir(parents=True)
    for name in ("data.txt", "extra.txt", "folder/inner.txt"):
        (folder / name).write_text(name, encoding="utf-8")
    return folder


def read(folder: Path, text: str | None, *, docker_image: str | None = None, ignore: bool = False) -> Image:
    if text is not None:
        (folder / "Dockerfile").write_text(text, encoding="utf-8")
    return read_image(folder, docker_image=docker_image, ignore=ignore)


def test_folders_variables_and_copies_are_followed(folder):
    image = read(folder, PLAIN)
    assert image.workdir == "/place"
    assert image.env == {"A": "1", "B": "two words", "OLD": "one two"}
    assert image.copies == (
        (folder / "data.txt", "/place/data.txt"),
        (folder / "extra.txt", "/place/extra.txt"),
        (folder / "folder", "/data"),
    )


def test_the_whole_folder_may_be_copied(folder):
    assert read(folder, "FROM debian\nWORKDIR /w\nCOPY . .\n").copies == ((folder, "/w"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FROM debian\nRUN apt-get install -y \\\n  jq\n", "Dockerfile:2: it has RUN apt-get install -y jq"),
        ("FROM someone/special\n", "Dockerfile:1: it starts from someone/special"),
        ("FROM registry.example/debian\n", "Dockerfile:1: it starts from registry.example/debian"),
        ("FROM debian AS a\nFROM debian\n", "Dockerfile:2: it starts from debian"),
        ("FROM debian\nCOPY --from=a /x /y\n", "Dockerfile:2: it has COPY --from=a /x /y"),
        ("FROM debian\nADD https://example.com/x /y\n", "Dockerfile:2: it has ADD"),
        ("FROM debian\nUSER somebody\n", "Dockerfile:2: it has USER somebody"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_its_line_unless_it_is_to_be_ignored(folder, text, said):
    with pytest.raises(RolloutError) as caught:
        read(folder, text)
    assert said in str(caught.value)
    assert "set image: ignore" in str(caught.value)
    assert read(folder, text, ignore=True).copies == ()


def test_an_image_of_its_own_is_refused_and_a_plain_one_is_not(folder):
    with pytest.raises(RolloutError, match="it starts from the image someone/special:1"):
        read(folder, None, docker_image="someone/special:1")
    assert read(folder, None, docker_image="python:3.12-slim") == Image()
    assert read(folder, None, docker_image="someone/special:1", ignore=True) == Image()


def test_several_containers_are_refused(folder):
    (folder / "docker-compose.yaml").write_text("services: {}\n", encoding="utf-8")
    with pytest.raises(RolloutError, match="several containers"):
        read(folder, None)


def test_nothing_outside_the_folder_is_copied(folder):
    (folder / "link").symlink_to(folder.parent)
    with pytest.raises(RolloutError, match="outside its folder"):
        read(folder, "FROM debian\nCOPY link /x\n")


@given(st.text())
def test_any_text_is_cut_into_instructions_with_lines_that_grow(text):
    lines = [line for line, _, _ in _instructions(text)]
    assert lines == sorted(set(lines))
