"""`backend.params` of `tinker`: the address of the server and the patience with it. The trained parts are set by
the algorithm.
"""

from __future__ import annotations

from typing import Literal

import attrs

from evsys import option
from evsys_backend_tinker.providers import PROVIDERS, Provider

__all__ = ["DUMMY_KEY", "Deadlines", "TinkerConfig"]

DUMMY_KEY = "tml-not-a-key"
"""For servers that want none: the client refuses to start without one of this form."""


@attrs.frozen(kw_only=True)
class Deadlines:
    """Seconds after which a call is given up, by kind. A server that pauses for capacity may take its time."""

    connect: float = option(60.0, "Opening a session.", gt=0)
    create: float = option(900.0, "Making a model, or loading it from a state.", gt=0)
    train: float = option(3600.0, "One forward, backward or optimiser call.", gt=0)
    save: float = option(900.0, "Saving a state, or a snapshot to sample from.", gt=0)
    sample: float = option(3600.0, "One sampling call.", gt=0)
    close: float = option(10.0, "Ending the session.", gt=0)


@attrs.frozen(kw_only=True)
class TinkerConfig:
    """The address of the server, and the patience with it. The trained parts are set by the algorithm."""

    provider: Literal["tinker", "evsys", "skyrl", "open-rl", "fireworks"] = option(
        "tinker",
        "A preset of the address and the key; `tinker` is the hosted service or what the environment names. `validate` refuses "
        "`fireworks` and says why.",
    )
    base_url: str | None = option(None, "The server's address; by default the provider's.")
    api_key_env: str | None = option(
        None, "The environment variable that holds the key; by default the provider's."
    )
    tokenizer: str | None = option(
        None,
        "A model in the cache, or the absolute path of a folder with tokenizer.json, where the server offers no tokenizer and "
        "the model's name isn't in the cache.",
    )
    ttl: int | None = option(
        604_800,
        "Seconds that a state stays on the server, from 1 hour to 10 years; null keeps it until it is deleted.",
        ge=3600,
        le=315_360_000,
    )
    final_ttl: int | None = option(
        None,
        "The same for the last state of a run, set when the run ends, and for its best one; null keeps them until they are deleted.",
        ge=3600,
        le=315_360_000,
    )
    keep_states: int | None = option(
        None,
        "Older states than the last so many are deleted on the server, but for the best one; null deletes none.",
        ge=1,
    )
    replay_steps: int = option(
        200,
        "If the server loses a model, it is recreated from the last state and at most this many optimiser steps are "
        "repeated; 0 ends the run instead.",
        ge=0,
    )
    samples_at_once: int = option(
        256, "Sampling calls under way at once, of all runs of this process that use the same server.", ge=1
    )
    dead_after: float = option(
        120.0, "Seconds without an answer after which a server is taken to be down.", gt=0
    )
    deadlines: Deadlines = attrs.field(
        factory=Deadlines, metadata={"help": "Seconds after which a call is given up, by kind."}
    )
    telemetry: bool = option(
        False, "Let the client report its use, and the text and place of every exception, to the server."
    )

    @property
    def preset(self) -> Provider:
        """The preset of the provider."""
        return PROVIDERS[self.provider]
