"""Distributions without an installer."""

import pytest

from evsys.protocols import KINDS


def lay_down(folder, distribution, entries):
    """Lay down the metadata of a distribution: what an installer leaves behind, and all that the registry reads."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", encoding="utf-8"
    )
    groups = {}
    for kind, name, value in entries:
        groups.setdefault(KINDS[kind], []).append(f"{name} = {value}")
    text = "".join(f"[{group}]\n" + "\n".join(lines) + "\n" for group, lines in groups.items())
    (info / "entry_points.txt").write_text(text, encoding="utf-8")


@pytest.fixture(scope="session")
def install():
    """Call `install(folder, distribution, [(kind, name, "module:attribute"), ...])`."""
    return lay_down
