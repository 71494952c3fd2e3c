"""Servers and clients as processes of their own, which can be killed and started again."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

__all__ = ["Client", "Server", "free_port"]

CLIENT = """
import evsys_dashboard.push.pusher as pushing
from evsys_cli.main import main

pushing.BATCH_BYTES = 5_000
push = pushing.Pusher.push

def announced(self):
    print("batch", flush=True)
    return push(self)

pushing.Pusher.push = announced
raise SystemExit(main())
"""
"""`evsys sync` in small batches, each of which it announces."""


class Side:
    """A process that is started again after each kill."""

    def __init__(self, command: list[str], folder: Path, **environment: str) -> None:
        self.command = [sys.executable, *command]
        self.folder = folder
        self.environment = {**os.environ, **environment}

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


class Server(Side):
    """`evsys dashboard serve` on a port that stays the same."""

    def __init__(self, folder: Path, database: str, port: int) -> None:
        serve = ["dashboard", "serve", "--listen", f"127.0.0.1:{port}", "--json"]
        directory = ["--directory", str(folder / "team")]
        super().__init__(["-m", "evsys_cli.main", *serve, *directory], folder, EVSYS_DATABASE=database)
        self.address = f"http://127.0.0.1:{port}"

    def start(self) -> None:
        """Returns once it listens."""
        super().start()
        assert json.loads(self.process.stdout.readline())["url"] == self.address


class Client(Side):
    """`evsys sync` of a record, in small batches."""

    def __init__(self, folder: Path, record: Path, address: str, key: str) -> None:
        environment = {"EVSYS_API_URL": address, "EVSYS_API_KEY": key}
        super().__init__(["-c", CLIENT, "sync", str(record)], folder, **environment)
        self.start()

    def batches(self, count: int) -> bool:
        """Wait until it has begun so many batches; False if there are fewer."""
        return [self.process.stdout.readline() for _ in range(count)] == ["batch\n"] * count

    def ended(self) -> int:
        """Wait for its end; the exit code."""
        self.process.communicate()
        return self.process.returncode


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return bound.getsockname()[1]
