"""The parts of a task's image that a sandbox without images can follow: folders, variables, copied files.

A sandbox shows this machine's own programs. A task that installs others, or starts from an image with contents of
its own, would run in another place than its author meant, and its score would say nothing; so it is refused.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import attrs

from evsys.errors import RolloutError

__all__ = ["Image", "read_image"]

_IGNORED = frozenset(
    {"ARG", "CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "SHELL", "STOPSIGNAL"}
)
_OFFICIAL = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*(?::[\w.-]+)?(?:@sha256:[0-9a-f]+)?")
"""An image without an owner: a plain system or language, which this machine is too."""

_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)


@attrs.frozen(kw_only=True)
class Image:
    """`copies` are pairs of a path on this machine and one inside."""

    workdir: str | None = None
    env: dict[str, str] = attrs.field(factory=dict)
    copies: tuple[tuple[Path, str], ...] = ()


def read_image(folder: Path, *, docker_image: str | None, ignore: bool) -> Image:
    """Read the image that a task's `environment/` folder and its setting `docker_image` require.

    Args:
        folder: the task's `environment/`, which needn't be there.
        docker_image: the image that the task names.
        ignore: follow the supported lines, and leave the rest out.

    Raises:
        RolloutError: it needs an image; says which line does.
    """
    if (folder / "docker-compose.yaml").is_file() and not ignore:
        raise _refusal(folder / "docker-compose.yaml", "it is made of several containers")
    if docker_image is not None and not ignore and not _OFFICIAL.fullmatch(docker_image):
        raise _refusal(folder.parent / "task.toml", f"it starts from the image {docker_image}")
    file = folder / "Dockerfile"
    return _image_of(file, ignore=ignore) if file.is_file() else Image()


def _image_of(file: Path, *, ignore: bool) -> Image:
    workdir: str | None = None
    env: dict[str, str] = {}
    copies: list[tuple[Path, str]] = []
    starts = 0
    for line, keyword, rest in _instructions(file.read_text(encoding="utf-8")):
        where = f"{file}:{line}"
        starts += keyword == "FROM"
        if keyword == "WORKDIR":
            workdir = str(PurePosixPath(workdir or "/", rest.strip().strip("\"'")))
        elif keyword == "ENV":
            env.update(_variables(rest))
        elif keyword in {"COPY", "ADD"} and "--from" not in rest and "://" not in rest:
            copies += _copies(rest, file.parent, workdir or "/")
        elif ignore or keyword in _IGNORED or (keyword, rest.strip()) == ("USER", "root"):
            continue
        elif keyword != "FROM":
            raise _refusal(where, f"it has {keyword} {_shortened(rest)}")
        elif starts > 1 or not _OFFICIAL.fullmatch(rest.split()[0]):
            raise _refusal(where, f"it starts from {_shortened(rest)}")
    return Image(workdir=workdir, env=env, copies=tuple(copies))


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, keyword in capitals, the rest) of each instruction, with continued lines joined."""
    held, start = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#") or (not line.strip() and not held):
            continue
        start = start or number
        if line.rstrip().endswith("\\"):
            held += line.rstrip()[:-1] + " "
            continue
        found = _INSTRUCTION.fullmatch(held + line)
        if found:
            yield start, found[1].upper(), found[2]
        held, start = "", 0


def _variables(text: str) -> dict[str, str]:
    words = shlex.split(text)
    if words and "=" not in words[0]:  # the older form: one name, and all that follows
        return {words[0]: " ".join(words[1:])}
    return dict(word.partition("=")[::2] for word in words)


def _copies(text: str, folder: Path, workdir: str) -> list[tuple[Path, str]]:
    words = [word for word in _words(text) if not word.startswith("--")]
    *sources, target = words
    place = PurePosixPath(workdir, target)
    into = target.endswith(("/", ".")) or len(sources) > 1
    copies = []
    for source in sources:
        base = folder.resolve()
        for path in sorted(base.glob(source.lstrip("/"))) if source not in {".", "./"} else [base]:
            if not path.resolve().is_relative_to(base):
                raise RolloutError(f"{folder / 'Dockerfile'} copies {source}, which is outside its folder")
            single = path.is_file() and into
            copies.append((path, str(place / path.name) if single else str(place)))
    return copies


def _words(text: str) -> list[str]:
    """The arguments of an instruction, in either of its forms."""
    plain = re.sub(r"--\S+\s+", "", text).strip()
    return [str(word) for word in json.loads(plain)] if plain.startswith("[") else shlex.split(text)


def _refusal(where: str | Path, why: str) -> RolloutError:
    return RolloutError(
        f"environment 'bwrap' runs this machine's own programs, and the task wants an image: {where}: {why}",
        hint="name an environment that has images, such as docker, or set image: ignore in its params",
    )


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else f"{flat[:57]}..."
