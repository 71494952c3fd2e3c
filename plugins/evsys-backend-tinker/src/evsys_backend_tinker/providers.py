"""Servers that speak the Tinker protocol: where each is, where its key is, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

__all__ = ["PROVIDERS", "Provider"]


@attrs.frozen(kw_only=True)
class Provider:
    """A preset of `backend.params`.

    Attributes:
        base_url: its address; None leaves it to the client, which asks `TINKER_BASE_URL` and then takes the hosted
            service.
        api_key_env: the environment variable that holds the key.
        needs_key: False if any key is accepted, so that none need be set.
        deterministic: the same requests give the same bits, if the engine behind it does.
        top_prompt_logprobs: it gives the likeliest tokens of a prompt's positions.
        own_lora: it takes `lora_alpha` and single layers as `target_modules`, which the protocol has no place for.
        own_losses: losses in addition to those of every such server.
        batches: it computes sampling calls together if announced as a batch.
        one_seed: a call for several samples takes one seed, from which the server derives that of each sample.
        unsupported: why the official client can't train there; None if it can.
    """

    base_url: str | None = None
    api_key_env: str = "TINKER_API_KEY"
    needs_key: bool = True
    deterministic: bool = False
    top_prompt_logprobs: bool = False
    own_lora: bool = False
    own_losses: tuple[str, ...] = ()
    batches: bool = False
    one_seed: bool = False
    unsupported: str | None = None


PROVIDERS: Mapping[str, Provider] = {
    "tinker": Provider(top_prompt_logprobs=True),
    "evsys": Provider(
        base_url="http://127.0.0.1:8410",
        api_key_env="EVSYS_SERVE_KEY",
        needs_key=False,
        deterministic=True,
        own_lora=True,
        own_losses=("dro", "gspo"),
        batches=True,
        one_seed=True,
    ),
    "skyrl": Provider(base_url="http://127.0.0.1:8000", needs_key=False),
    "open-rl": Provider(base_url="http://127.0.0.1:8000", needs_key=False),
    "fireworks": Provider(
        api_key_env="FIREWORKS_API_KEY",
        unsupported="Fireworks' trainers need Fireworks' own client: keys, data types and checkpoints differ from those of the "
        "Tinker client",
    ),
}
"""By name. `tinker` is the hosted service, or what the client's own environment variables name."""
