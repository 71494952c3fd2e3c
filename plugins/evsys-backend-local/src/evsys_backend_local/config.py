"""The fields of `backend: {kind: local}`, and what the backend offers on each device."""

from __future__ import annotations

import attrs

from evsys import option
from evsys_backend_local.engine.devices import Device
from evsys_backend_local.engine.limits import MAX_CONTEXT, MAX_TREE_ROWS, PREFIX_CACHE_MB

__all__ = ["CAPABILITIES", "CPU_ROWS", "GPU_ROWS", "LocalConfig", "capabilities_of"]

CAPABILITIES = frozenset(
    {
        "averaged_weights",
        "concurrent_runs",
        "custom_loss",
        "deterministic",
        "full_finetune",
        "loss_fns:cispo",
        "loss_fns:cross_entropy",
        "loss_fns:dro",
        "loss_fns:importance_sampling",
        "loss_fns:ppo",
        "prompt_logprobs",
        "resume",
        "top_logprobs",
        "top_prompt_logprobs",
    }
)

#: Rows of a micro-batch: on a CPU they stay in its caches; a GPU wants more to do at a time.
CPU_ROWS, GPU_ROWS = 256, 2048


@attrs.frozen(kw_only=True)
class LocalConfig:
    """The settings of the model on this machine. The trained parts are set by the algorithm."""

    device: Device = option(
        "auto",
        "The computing library: numpy on the CPU (`cpu`), or torch on a GPU (`cuda`), which torch must be installed for. `auto` is the GPU "
        "where torch is installed and finds one, else the CPU.",
    )
    workers: int | None = option(
        None,
        "Worker threads; by default one a CPU, on a GPU one. Results depend on it in the last bits.",
        ge=1,
    )
    micro_batch_rows: int | None = option(
        None,
        f"Tokens that a worker computes at a time; bounds memory. By default {CPU_ROWS}, on a GPU {GPU_ROWS}.",
        ge=32,
        le=MAX_TREE_ROWS,
        source="local-engine measurements: 256 to 512",
    )
    max_length: int | None = option(
        None, "Longest sequence in tokens; by default the model's context.", ge=8, le=MAX_CONTEXT
    )
    coalesce: bool | None = option(
        None,
        "Answer sample calls that arrive while a batch is sampled together, after it. Faster where calls come at different "
        "times, such as agents with many turns; results then depend on timing in the last bits. By default where the run "
        "isn't `deterministic`.",
    )
    prefix_cache_mb: int = option(
        PREFIX_CACHE_MB,
        "Memory for the keys and values of prompts, kept from one sample call to the next: a turn of a conversation computes "
        "only what it adds. Changes no result; 0 keeps nothing.",
        ge=0,
    )


def capabilities_of(*, on_gpu: bool) -> frozenset[str]:
    """Capabilities by device: torch doesn't promise the same bits on every GPU and in every version."""
    return CAPABILITIES - {"deterministic"} if on_gpu else CAPABILITIES
