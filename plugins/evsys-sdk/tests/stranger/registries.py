"""Registries, Configs and schemas in Python."""

from typing import Any, assert_type

import attrs

from evsys import (
    HookManager,
    PluginEntry,
    boundary,
    errors,
    protocols,
    schema_for_config,
    structure,
    types,
    unstructure,
)
from evsys_sdk import (
    ChatMessagesRow,
    LoraSpec,
    Message,
    PromptExample,
    Registry,
    VerifierSpec,
    current_registry,
    option,
    schema_for,
    use_registry,
)


@attrs.frozen(kw_only=True)
class Params:
    """Params of something."""

    rate: float = option(1e-3, "How fast.", gt=0, lt=1)
    words: tuple[str, ...] = option((), "Which words.")
    weights: dict[str, float] = option(attrs.Factory(dict[str, float]), "How much each counts.")
    limit: int | None = option(None, "How many; all without.", ge=1)
    mode: str = option("fast", "How.", choices=("fast", "slow"))


def names(kind: str) -> list[str]:
    """What is installed of a kind."""
    registry = Registry(deny=["some-distribution"])
    with use_registry(registry) as inside:
        assert_type(inside, Registry)
        assert_type(current_registry(), Registry)
    entries = registry.entries(kind)
    assert_type(entries, list[PluginEntry])
    return [entry.qualified for entry in entries]


def broken() -> list[str]:
    """What is wrong with each plugin that is broken."""
    return [f"{entry}: {error.message}" for entry, error in current_registry().check() if error is not None]


def read(tree: dict[str, Any]) -> Params:
    """Params from plain values."""
    params = structure(Params, tree, path="$.params")
    assert_type(params, Params)
    assert_type(params.limit, int | None)
    assert unstructure(params)["rate"] == params.rate
    assert_type(schema_for_config(Params), dict[str, Any])
    assert_type(schema_for("algorithm", "sft"), dict[str, Any])
    return params


async def hear() -> list[str]:
    """A manager of one's own."""
    hooks = HookManager()
    with boundary("plugin", "somebody/something"):
        assert_type(await hooks.emit("evsys_experiment_started", experiment_id="a"), list[Any])
    assert_type(protocols.PROTOCOL_VERSIONS, tuple[int, ...])
    assert issubclass(errors.ConfigError, errors.EvsysError)
    return hooks.warnings


rows = (
    ChatMessagesRow(messages=(Message(role="user", content="a"), Message(role="assistant", content="b"))),
    PromptExample(prompt=(Message(role="user", content="a"),)),
)
assert_type(rows[0].rejected, tuple[Message, ...] | None)
assert_type(VerifierSpec(name="exact_match", expected="b").expected, Any)
assert_type(LoraSpec(rank=None).targets, tuple[str, ...])
assert_type(types.Failure(boundary="run", message="", error_type="").hint, str | None)
