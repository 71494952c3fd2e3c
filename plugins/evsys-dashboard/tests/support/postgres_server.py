"""A PostgreSQL server of the tests' own, in a temporary folder, reached by a Unix socket alone."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["postgres_programs", "running_postgres"]

UNSAFE = "fsync=off synchronous_commit=off full_page_writes=off listen_addresses='' max_connections=200"
"""Nothing need survive a power cut, and nothing of it is on the network."""


def postgres_programs() -> Path | None:
    """The folder of `initdb` and `pg_ctl`, as Debian or the path has them; None without PostgreSQL."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = debian[-1] if debian else shutil.which("initdb")
    return None if found is None else Path(found).parent


@contextmanager
def running_postgres() -> Iterator[str]:
    """Its URL. PostgreSQL refuses to run as root: then it runs as the user `postgres`, which its package makes."""
    programs = postgres_programs()
    assert programs is not None
    as_user = ["runuser", "-u", "postgres", "--"] if os.name == "posix" and os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="evsys-pg-", dir="/tmp"))  # the path of a socket is short
    if as_user:
        shutil.chown(folder, "postgres")

    def run(*command: str) -> None:
        done = subprocess.run([*as_user, *command], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    data = str(folder / "data")
    options = " ".join(f"-c {setting}" for setting in UNSAFE.split())
    try:
        run(
            str(programs / "initdb"),
            "-D",
            data,
            "-U",
            "evsys",
            "--auth=trust",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C",
        )
        run(
            str(programs / "pg_ctl"),
            "-D",
            data,
            "-w",
            "-l",
            str(folder / "log"),
            "-o",
            f"{options} -k {folder}",
            "start",
        )
        try:
            yield f"postgresql://evsys@/postgres?host={folder}"
        finally:
            run(str(programs / "pg_ctl"), "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
