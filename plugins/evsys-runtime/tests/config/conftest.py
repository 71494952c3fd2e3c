"""A small project and a registry whose plugins are defined here, so that nothing installed decides a test."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
from task_files import task, write_tasks

from evsys import Registry
from evsys.errors import ConfigError
from evsys_runtime.config.validate import load_experiment


def field(default: Any = attrs.NOTHING, help: str = "", **rest: Any) -> Any:
    metadata = {"help": help, **rest.pop("metadata", {})}
    return attrs.field(default=default, metadata=metadata, **rest)


class Plugin:
    Config: ClassVar[Any] = None

    def __init__(self, **fields: Any) -> None:
        self.fields = fields


class Trainer(Plugin):
    """Trains."""

    @attrs.frozen(kw_only=True)
    class Config:
        """What is trained."""

        learning_rate: float = field(1e-4, validator=attrs.validators.gt(0))
        lora_rank: int = field(32, validator=attrs.validators.ge(1))
        batch_size: int = field(4, validator=attrs.validators.ge(1))
        notes: str = field("")
        steps: int | None = field(None)
        warmup_steps: int = field(0)
        lr_schedule: str = "linear"
        schedule_steps: int | None = None

    async def train(self, ctx):
        raise NotImplementedError


class Reinforcer(Trainer):
    """Needs more of a backend."""

    requires = frozenset({"custom_loss"})

    @attrs.frozen(kw_only=True)
    class Config:
        learning_rate: float = field(1e-5)
        kl_coef: float = field(0.0, metadata={"requires": "reference_logprobs"})
        teacher: str = field("base", metadata={"requires": {"ema": "averaged_weights"}})
        agent_import_path: str | None = field(None)


class Bench(Plugin):
    """A backend that can do most things."""

    capabilities = frozenset({"custom_loss", "deterministic", "resume"})

    @attrs.frozen(kw_only=True)
    class Config:
        device: str = field("cpu")
        api_key: str | None = field(None)
        port: int | None = field(None)

    async def prepare(self, model, run_dir, seed, restore=None):
        raise NotImplementedError

    async def teardown(self, client):
        raise NotImplementedError


class Remote(Bench):
    """A backend that can do little, and says so."""

    capabilities = frozenset({"resume", "reference_logprobs"})
    honours = frozenset({"lora_rank"})

    @staticmethod
    def validate_model(model):
        return (
            []
            if model.name.startswith("evsys/")
            else [f"there is no model {model.name!r}; known: evsys/tiny"]
        )


class Passing(Plugin):
    @attrs.frozen(kw_only=True)
    class Config:
        column: str = field("text")

    def __call__(self, rows):
        return rows


class Mean(Plugin):
    direction = "max"

    def compute(self, task_rewards):
        return 0.0


class Loss(Mean):
    direction = "min"


class Undirected:
    def compute(self, task_rewards):
        return 0.0


class PassAtK(Mean):
    @attrs.frozen(kw_only=True)
    class Config:
        k: int = field()
        pass_threshold: float = field(1.0)

    def __init__(self, **fields: Any) -> None:
        self.needs_samples = fields["k"]


class Exact(Plugin):
    @attrs.frozen(kw_only=True)
    class Config:
        strip: bool = field(True)

    def __call__(self, model_output, expected, params):
        return 1.0

    def check(self, expected):
        if expected is None:
            raise ValueError("nothing is expected")


class Engine(Plugin):
    honours = frozenset({"num_samples", "max_tokens"})

    async def run(self, tasks, policy, limits):
        raise NotImplementedError


class Acting(Plugin):
    async def run(self, task, model, tools, ctx):
        return ""


class Store(Plugin):
    async def pull(self, ref):
        return []


class Listener(Plugin):
    pass


class Watching(Plugin):
    @attrs.frozen(kw_only=True)
    class Config:
        monitor: str = field()
        judgements: int | None = field(None)

    @property
    def monitored(self):
        return (self.fields["monitor"],)

    @property
    def judgements(self):
        return self.fields.get("judgements")


PLUGINS = {
    ("algorithm", "sft"): Trainer,
    ("algorithm", "reinforce"): Reinforcer,
    ("backend", "mock"): Bench,
    ("backend", "remote"): Remote,
    ("transform", "jsonl_to_chat"): Passing,
    ("metric", "mean_reward"): Mean,
    ("metric", "pass_rate"): Mean,
    ("metric", "nll"): Loss,
    ("metric", "odd"): Undirected,
    ("metric", "pass@k"): PassAtK,
    ("verifier", "exact_match"): Exact,
    ("verifier", "plain"): lambda model_output, expected, params: 1.0,
    ("rollout_engine", "direct"): Engine,
    ("agent", "chat"): Acting,
    ("data_store", "local"): Store,
    ("callback", "local_logger"): Listener,
    ("callback", "watching"): Watching,
}


@pytest.fixture
def registry() -> Registry:
    registry = Registry(entry_points=())
    for (kind, name), plugin in PLUGINS.items():
        registry.register(kind, name, plugin)
    return registry


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".evsys").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text('{"messages": []}\n', encoding="utf-8")
    write_tasks(tmp_path / "data" / "val.jsonl", [task(name) for name in "abcdefghijkl"])
    write_tasks(tmp_path / "data" / "test.jsonl", [task(name) for name in "mnopqrstuvwx"])
    return tmp_path


RUN = """\
run:
  data: {path: data/train.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: sft}
  backend: {kind: mock}
"""


@pytest.fixture
def load(project: Path, registry: Registry) -> Callable[..., Any]:
    """Writes an experiment file into the project and loads it."""

    def load_text(text: str, *overrides: str, name: str = "exp.yaml") -> Any:
        (project / name).write_text(text, encoding="utf-8")
        return load_experiment(project / name, overrides=overrides, registry=registry)

    return load_text


@pytest.fixture
def problems(load: Callable[..., Any], project: Path) -> Callable[..., list[str]]:
    """The problems of an experiment file, one text each, without the folder."""

    def found(text: str, *overrides: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load(text, *overrides)
        return [str(problem).replace(f"{project}/", "") for problem in caught.value.problems]

    return found
