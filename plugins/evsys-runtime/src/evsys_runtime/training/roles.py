"""Second models of a run, as an algorithm gets them: there, and with the tokens of the trained model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from evsys.errors import AlgorithmError, ConfigError, EvsysError, Problem
from evsys.optional import declared
from evsys_runtime.rendering.tokenizers import load_tokenizer

if TYPE_CHECKING:
    from evsys.protocols import Tokenizer, TrainingClient
    from evsys.types import ModelSpec, RunContext

__all__ = ["PROBE", "role_client", "same_tokenizers"]

_WHY = "logprobs of the same text's tokens can't be compared; choose a model of the same family"


def same_tokenizers(model: ModelSpec, roles: Mapping[str, ModelSpec]) -> Iterable[str]:
    """The problems known before anything is prepared: a role whose tokenizer isn't the model's.

    A model that isn't on this machine is checked when the run starts.
    """
    others = {name: role for name, role in roles.items() if role.name != model.name}
    ours = _offline(model.name) if others else None
    for name, role in others.items():
        theirs = _offline(role.name)
        if ours is not None and theirs is not None and _fingerprint(ours) != _fingerprint(theirs):
            yield f"{name} {role.name!r} has another tokenizer than {model.name!r}: {_WHY}"


def role_client(ctx: RunContext, name: str) -> TrainingClient:
    """The client of a role that an algorithm can't do without.

    Raises:
        AlgorithmError: the run names none.
        ConfigError: its tokenizer isn't the model's.
    """
    client: TrainingClient | None = getattr(ctx.clients, name)
    if client is None:
        raise AlgorithmError(
            f"the run has no {name}", hint=f"give the run `{name}: {{model: {{name: ...}}}}`"
        )
    if _fingerprint(client.tokenizer) != _fingerprint(ctx.clients.policy.tokenizer):
        message = f"the {name} has another tokenizer than {ctx.model.name!r}: {_WHY}"
        raise ConfigError([Problem(path=f"$.run.{name}.model.name", message=message)])
    return client


def _offline(model: str) -> Tokenizer | None:
    try:
        return load_tokenizer(model)
    except EvsysError:  # its backend says what is wrong with it
        return None


PROBE = "The quick brown fox, 12 345.678 times: naïve façade 東京 \U0001f600\n\tdef f(x): return x**2\n"
"""A text that hardly two tokenizers cut alike."""


def _fingerprint(tokenizer: Tokenizer) -> object:
    """What equal tokenizers share: their own hash, else the tokens of a text."""
    own = declared(tokenizer, "fingerprint")
    return own or (tokenizer.vocab_size, tuple(tokenizer.eos_token_ids), tuple(tokenizer.encode(PROBE)))
