"""The optional members of plugins and of what a `RunContext` carries, as protocols. No plugin needs any of them.

A member is offered if it is there: `isinstance(plugin, SupportsCollapse)` for methods, `declared(plugin, "free", False)` for
values. Names that no protocol here has are the plugin's own. The conformance suite reports a member whose name is nearly one of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal

from evsys.optional.evaluation import (
    SupportsCounterexample,
    SupportsEvaluationEstimate,
    SupportsKeep,
    SupportsMetricFacts,
    SupportsMonitoring,
    SupportsOracle,
    SupportsReadMetrics,
    SupportsResearchFacts,
    SupportsResults,
    SupportsReuse,
    SupportsRolloutTime,
    SupportsSelection,
    SupportsSize,
    SupportsSpace,
    SupportsTaskValue,
    SupportsTransformFacts,
    SupportsVersions,
    SupportsWorkCheck,
)
from evsys.optional.models import (
    SupportsBackendFacts,
    SupportsClientFacts,
    SupportsEstimate,
    SupportsKeepState,
    SupportsPreflight,
    SupportsPromptLogprobs,
    SupportsSamplingCost,
    SupportsSwitch,
    SupportsText,
    SupportsTrainingCost,
    SupportsUsage,
)
from evsys.optional.training import (
    SupportsCollapse,
    SupportsForesight,
    SupportsLora,
    SupportsMeasure,
    SupportsMeasureSchedule,
    SupportsModelCheck,
    SupportsPreview,
    SupportsRoleCheck,
    SupportsRoles,
    SupportsRowsTrained,
    SupportsTrainingFacts,
)

__all__ = [
    "OFFERED",
    "OptionalMember",
    "SupportsBackendFacts",
    "SupportsClientFacts",
    "SupportsCollapse",
    "SupportsCounterexample",
    "SupportsEstimate",
    "SupportsEvaluationEstimate",
    "SupportsForesight",
    "SupportsKeep",
    "SupportsKeepState",
    "SupportsLora",
    "SupportsMeasure",
    "SupportsMeasureSchedule",
    "SupportsMetricFacts",
    "SupportsModelCheck",
    "SupportsMonitoring",
    "SupportsOracle",
    "SupportsPreflight",
    "SupportsPreview",
    "SupportsPromptLogprobs",
    "SupportsReadMetrics",
    "SupportsResearchFacts",
    "SupportsResults",
    "SupportsReuse",
    "SupportsRoleCheck",
    "SupportsRoles",
    "SupportsRolloutTime",
    "SupportsRowsTrained",
    "SupportsSamplingCost",
    "SupportsSelection",
    "SupportsSize",
    "SupportsSpace",
    "SupportsSwitch",
    "SupportsTaskValue",
    "SupportsText",
    "SupportsTrainingCost",
    "SupportsTrainingFacts",
    "SupportsTransformFacts",
    "SupportsUsage",
    "SupportsVersions",
    "SupportsWorkCheck",
    "declared",
    "members",
    "misspelt",
]

type OptionalMember = Literal[
    "activate",
    "active",
    "after_collapse",
    "blocking",
    "cacheable",
    "check_work",
    "concurrent_arms",
    "control_tokens",
    "counterexample",
    "deterministic",
    "digest",
    "direction",
    "dropped",
    "estimate",
    "facts",
    "fingerprint",
    "foreseen",
    "free",
    "goes_back",
    "health",
    "honours",
    "judgements",
    "keep",
    "keep_state",
    "lora",
    "max_length",
    "measure",
    "measures",
    "monitored",
    "needs_samples",
    "oracle",
    "pending",
    "preflight",
    "preview",
    "prompt_logprobs",
    "pull_version",
    "read_back",
    "read_metrics",
    "required_roles",
    "requires",
    "resolve",
    "results",
    "reward_range",
    "roles",
    "rollout_seconds",
    "rows_trained",
    "sampling_cost",
    "selects",
    "shape",
    "simulated",
    "size",
    "special_tokens",
    "streaming",
    "submits_ahead",
    "task_value",
    "told_usage",
    "training_cost",
    "uses",
    "uses_context",
    "validate_model",
    "validate_roles",
    "validate_space",
    "value_range",
    "warnings",
    "whole_batches",
]
"""Every optional member, so that type checkers find an invalid name."""

_NEARLY = 0.82
"""The least similarity of a misspelt name to the right one, as `difflib` measures it."""

OFFERED: Mapping[str, tuple[type, ...]] = {
    "algorithm": (
        *(
            SupportsLora,
            SupportsRoles,
            SupportsRoleCheck,
            SupportsTrainingFacts,
            SupportsModelCheck,
            SupportsPreview,
        ),
        *(SupportsRowsTrained, SupportsForesight, SupportsMeasure, SupportsMeasureSchedule, SupportsCollapse),
    ),
    "backend": (SupportsBackendFacts, SupportsModelCheck, SupportsPreflight),
    "inference_client": (SupportsPromptLogprobs, SupportsSamplingCost, SupportsUsage, SupportsReuse),
    "transform": (SupportsTransformFacts,),
    "data_store": (SupportsVersions,),
    "verifier": (SupportsReuse, SupportsOracle, SupportsCounterexample),
    "metric": (SupportsMetricFacts, SupportsTaskValue),
    "rollout_engine": (SupportsWorkCheck, SupportsRolloutTime, SupportsReuse),
    "renderer": (SupportsText,),
    "callback": (SupportsMonitoring,),
    "deployer": (SupportsSwitch,),
    "search": (SupportsKeep, SupportsSpace, SupportsSize),
    "researcher": (SupportsResearchFacts,),
}
"""The optional protocols of each kind of plugin."""


def members(protocol: type) -> frozenset[str]:
    """The names of a protocol's members."""
    own = vars(protocol)
    return frozenset(name for name in (*own, *protocol.__annotations__) if not name.startswith("_"))


def declared(owner: object, name: OptionalMember, default: Any = None) -> Any:
    """The value of an optional member, or the default; one that `__getattr__` gives counts. Type checkers know the names."""
    return getattr(owner, name, default)


def misspelt(kind: str, plugin: type) -> dict[str, str]:
    """Public members of a plugin class whose names are nearly those of optional members, and these names.

    Args:
        kind: of plugin.
        plugin: its class. Its own members and those that it inherits count; a name it also spells right doesn't.
    """
    known = {name for protocol in OFFERED.get(kind, ()) for name in members(protocol)}
    own = {name for cls in plugin.__mro__ for name in vars(cls) if not name.startswith("_")}
    found = {}
    for name in sorted(own - known):
        for near in get_close_matches(name, known - own, n=1, cutoff=_NEARLY):
            found[name] = near
    return found
