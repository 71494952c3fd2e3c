"""What is committed is about the product: no machine's paths, no hosts by chance, nothing left to do."""

import getpass
import re
import socket
import subprocess
from pathlib import Path

import pytest
from house import ROOT

# Hosts that files may name: standards, papers, and names reserved for examples.
HOSTS = {
    *("127.0.0.1", "localhost", "example.com", "example.org", "json-schema.org", "www.apache.org"),
    *("arxiv.org", "doi.org", "huggingface.co", "github.com", "keepachangelog.com", "semver.org", "yaml.org"),
    *(
        "docs.astral.sh",
        "nox.thea.codes",
        "peps.python.org",
        "www.w3.org",
        "docs.python.org",
        "aclanthology.org",
        "joschu.net",
        "thinkingmachines.ai",
        "tinker-docs.thinkingmachines.ai",
        "openreview.net",
        "protobuf.dev",
        "agent-plugins.org",
    ),
}

BINARY = {".npz", ".npy", ".safetensors", ".gguf", ".png", ".svg", ".bin", ".gz", ".zip"}


def tracked() -> list[Path]:
    """Files that are or would be committed; every file of a checkout without git."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout, so what is tracked is unknown")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and path.suffix not in BINARY]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    found = {}
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        found[name] = path.read_bytes().decode("utf-8", errors="surrogateescape")
    assert "pyproject.toml" in found
    return found


def lines_with(pattern: str, texts: dict[str, str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:160]}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if re.search(pattern, line)
    ]


def test_no_path_of_a_machine_is_tracked(texts: dict[str, str]):
    folders = {str(ROOT), str(Path.home())} - {"/"}
    places = [re.escape(folder) for folder in sorted(folders)]
    homes = rf"(?<![\w.\-/])/(?:{'root'}|{'work'}|home/\w+|Users/\w+)/"
    assert lines_with("|".join([*(rf"{place}\b" for place in places), homes]), texts) == []


def test_no_name_of_a_machine_is_tracked(texts: dict[str, str]):
    names = {name for name in (socket.gethostname(), socket.getfqdn()) if len(name) > 8 and name not in HOSTS}
    for name in names - {getpass.getuser()}:
        assert lines_with(rf"\b{re.escape(name)}\b", texts) == []


def test_only_known_hosts_are_named(texts: dict[str, str]):
    hosts = {
        (name, host)
        for name, text in texts.items()
        for host in re.findall(r"(?:https?|wss?)://(?:[^\s/@]+@)?([\w.-]+[\w])", text)
    }
    reserved = (".example", ".invalid", ".test")
    unknown = {
        (name, host)
        for name, host in hosts
        if "." in host and host not in HOSTS and not host.endswith(reserved)
    }
    assert unknown == set()


def test_nothing_is_left_to_do(texts: dict[str, str]):
    assert lines_with(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b", texts) == []


def test_no_lock_file_is_tracked(texts: dict[str, str]):
    assert [name for name in texts if name.endswith("uv.lock")] == []


def test_text_files_are_utf8_with_one_last_newline(texts: dict[str, str]):
    odd = [name for name, text in texts.items() if "\ufffd" in text or re.search("[\udc80-\udcff]", text)]
    assert odd == []
    sources = {name: text for name, text in texts.items() if name.endswith((".py", ".toml", ".md", ".yml"))}
    assert [name for name, text in sources.items() if text and not text.endswith("\n")] == []
    assert [name for name, text in sources.items() if text.endswith("\n\n")] == []
