"""What tests of the client need: the client itself, a server of ours in a process of its own, and a proxy that breaks things."""

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "support"))
SERVED = "test_served_"


def pytest_configure(config: pytest.Config) -> None:
    """Let the client leave connections for the garbage collector, which comes in any test, or after the last one."""
    if find_spec("tinker") is not None:
        config.addinivalue_line("filterwarnings", "ignore:unclosed:ResourceWarning")
        config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnraisableExceptionWarning")
        warnings.filterwarnings("ignore", message="unclosed", category=ResourceWarning)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what needs the client where it isn't installed."""
    missing = find_spec("tinker") is None
    for item in items:
        if item.path.parent != HERE or not item.path.name.startswith(SERVED):
            continue
        if missing:
            item.add_marker(
                pytest.mark.skip(reason="tinker isn't installed; `nox -s tinker` runs these tests")
            )


class ServerProcess:
    """A server in a process of its own; it can be killed and started again at the same address, on the same folder."""

    def __init__(self, backend: str, folder: Path) -> None:
        self.backend = backend
        self.folder = folder
        self.port = 0
        self.base_url = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [
            sys.executable,
            str(HERE / "support" / "serve.py"),
            self.backend,
            str(self.folder),
            str(self.port),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.base_url = self._process.stdout.readline().strip()
        assert self.base_url, "the server didn't start"
        self.port = int(self.base_url.rpartition(":")[2])

    def kill(self) -> None:
        """End it without a word."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Start servers of ours; they end with the test."""
    started: list[ServerProcess] = []

    def start(backend: str = "mock", name: str = "server") -> ServerProcess:
        server = ServerProcess(backend, tmp_path / name)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def mock_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of the mock backend that all tests share, so none of them kills it."""
    yield from _lasting("mock", tmp_path_factory)


@pytest.fixture(scope="session")
def local_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The same of the local backend."""
    yield from _lasting("local", tmp_path_factory)


def _lasting(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(backend, tmp_path_factory.mktemp(backend))
    server.start()
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and addresses of whoever runs the tests are none of theirs."""
    for name in ("TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_CREDENTIAL_CMD", "EVSYS_SERVE_KEY"):
        monkeypatch.delenv(name, raising=False)
