"""A PostgreSQL server of the bench's own, as it is set up by default."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["running_postgres"]


@contextmanager
def running_postgres() -> Iterator[str | None]:
    """Its URL; None where PostgreSQL isn't installed. It refuses to run as root: then it runs as the user `postgres`."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = debian[-1] if debian else shutil.which("initdb")
    if found is None:
        yield None
        return
    programs = Path(found).parent
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="evsys-pg-", dir="/tmp"))  # the path of a socket is short
    if as_user:
        shutil.chown(folder, "postgres")

    def run(program: str, *arguments: str) -> None:
        command = [*as_user, str(programs / program), "-D", str(folder / "data"), *arguments]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)

    try:
        run("initdb", "-U", "evsys", "--auth=trust", "--encoding=UTF8", "--locale=C")
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", f"-c listen_addresses='' -k {folder}", "start")
        try:
            yield f"postgresql://evsys@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
