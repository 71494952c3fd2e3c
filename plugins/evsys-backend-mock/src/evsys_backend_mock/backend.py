"""`backend.kind: mock`: real algorithms over a tiny numeric model, in milliseconds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys.errors import ConfigError, Problem

if TYPE_CHECKING:
    from evsys.protocols import Renderer, Tokenizer, TrainingClient
    from evsys.types import Checkpoint, ModelSpec
    from evsys_backend_mock.model import LowRankModel
    from evsys_backend_mock.state import Saved

__all__ = ["MockBackend"]


_LOW_RANK_ONLY = Problem(
    path="$.algorithm.params.lora_rank",
    message="the mock backend trains low-rank matrices only",
    hint="set it to a number",
)


@attrs.frozen(kw_only=True)
class MockConfig:
    """The mock has no settings: what is trained belongs to the algorithm."""


class MockBackend:
    """Trains a small parametric model for any `model.name`.

    It runs everything that a real backend runs (losses, optimiser, checkpoints, sampling with logprobs) with exact
    gradients and the same bits each time. Its results say nothing about the named model.
    """

    name: ClassVar[str] = "mock"
    Config: ClassVar[type] = MockConfig
    simulated: ClassVar[bool] = True
    free: ClassVar[bool] = True  # nothing that it does is paid for
    capabilities: frozenset[str] = frozenset(
        {
            "averaged_weights",
            "custom_loss",
            "loss_fns:cross_entropy",
            "loss_fns:importance_sampling",
            "loss_fns:ppo",
            "loss_fns:cispo",
            "loss_fns:dro",
            "resume",
            "prompt_logprobs",
            "top_logprobs",
            "top_prompt_logprobs",
            "concurrent_runs",
            "deterministic",
        }
    )
    # `target_modules` is among them so that a file rehearsed here runs elsewhere with one word changed: the mock's one
    # layer represents whichever are named.
    honours: frozenset[str] = frozenset(
        {
            "deterministic",
            "init_from_checkpoint",
            "load_checkpoint_path",
            "lora_alpha",
            "lora_rank",
            "renderer",
            "target_modules",
        }
    )

    def __init__(self, **fields: Any) -> None:
        self.config = MockConfig(**fields)

    @staticmethod
    def validate_model(model: ModelSpec) -> Iterable[Problem]:
        """The problems of a model known before it is prepared."""
        return [_LOW_RANK_ONLY] if model.lora.rank is None else []

    async def prepare(
        self, model: ModelSpec, run_dir: Path, seed: int, restore: Checkpoint | None = None
    ) -> TrainingClient:
        """A training client for `model`.

        Weights come from `restore`, else from the checkpoint folder that the model names (with its optimiser for
        `load_checkpoint_path`, without for `init_from_checkpoint`), else they are untrained and depend on `seed`.

        Raises:
            ConfigError: the model asks for all weights to be trained.
            BackendError: a checkpoint doesn't fit.
        """
        from evsys_backend_mock.client import MockTrainingClient
        from evsys_backend_mock.model import LowRankModel
        from evsys_backend_mock.vocabulary import Vocabulary

        if model.lora.rank is None:
            raise ConfigError([_LOW_RANK_ONLY])
        tokenizer, renderer = _rendering(model)
        vocabulary = Vocabulary.create(model.name, size=tokenizer.vocab_size, end_ids=tokenizer.eos_token_ids)
        fresh = LowRankModel.create(vocabulary, rank=model.lora.rank, alpha=model.lora.alpha, seed=seed)
        start, version = _starting_point(fresh, model, restore)
        return MockTrainingClient(
            start,
            tokenizer=tokenizer,
            renderer=renderer,
            seed=seed,
            capabilities=self.capabilities,
            version=version,
        )

    async def teardown(self, client: TrainingClient | None) -> None:
        """Close the client."""
        from evsys_backend_mock.client import MockTrainingClient

        if isinstance(client, MockTrainingClient):
            client.close()


def _starting_point(fresh: LowRankModel, model: ModelSpec, restore: Checkpoint | None) -> tuple[Saved, int]:
    """The state that training begins with, weights alone if it doesn't continue, and the number of steps behind it."""
    from evsys_backend_mock.state import FILE, Saved, read_state

    if restore is not None:
        path = restore.directory / str(restore.state.get("file", FILE))
        goes_on, version = restore.with_optimizer, restore.step
    elif model.load_checkpoint_path is not None:
        path, goes_on, version = Path(model.load_checkpoint_path) / FILE, True, 0
    elif model.init_from_checkpoint is not None:
        path, goes_on, version = Path(model.init_from_checkpoint) / FILE, False, 0
    else:
        return Saved.beginning(fresh), 0
    saved = read_state(path, fresh)
    return saved if goes_on else Saved.beginning(saved.model), version


def _rendering(model: ModelSpec) -> tuple[Tokenizer, Renderer]:
    """The named model's own tokenizer and template where they are to be had, else bytes."""
    from evsys_runtime import load_renderer, load_tokenizer

    name = model.name
    try:
        tokenizer = load_tokenizer(name)
    except ConfigError:  # no model of this name on this machine
        name = "evsys/tiny"
        tokenizer = load_tokenizer(name)
    return tokenizer, load_renderer(name, renderer=model.renderer)
