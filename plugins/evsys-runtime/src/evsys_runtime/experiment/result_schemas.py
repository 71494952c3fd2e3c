"""The published shapes of results: what scripts and agents may rely on.

Made from the same classes written, so that they can't differ. Every field is always there; what isn't known is
null. `format` is 1 until a field changes its meaning or goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evsys.errors import StoreError
from evsys.types import ArmResult, Conclusion, ExperimentResult
from evsys_record import History, result_tree
from evsys_record.audits import Audit
from evsys_record.citations import Retracting
from evsys_record.files import FORMAT
from evsys_record.lookups import Lookups
from evsys_record.past import Reindexed, Shown
from evsys_record.result_trees import read_as
from evsys_record.wait_result import Waited
from evsys_runtime.data.contamination import DataCheck
from evsys_runtime.data.result_store import StoreInfo
from evsys_runtime.experiment.command_results import (
    Described,
    Launched,
    Previewed,
    Requested,
    Status,
    Validated,
)
from evsys_runtime.experiment.estimate.results import Comparing, Planned
from evsys_runtime.experiment.insight.results import Context, Next, Why

__all__ = ["RESULTS", "result_schema", "validate_result"]

RESULTS: Mapping[str, type] = {
    "run_result": ArmResult,
    "conclusion": Conclusion,
    "experiment_result": ExperimentResult,
    "data_check": DataCheck,
    "cache_why": Lookups,
    "cache_info": StoreInfo,
    "history": History,
    "show": Shown,
    "reindex": Reindexed,
    "plan": Planned,
    "compare": Comparing,
    "context": Context,
    "retract": Retracting,
    "audit": Audit,
    "why": Why,
    "next": Next,
    "wait": Waited,
    "status": Status,
    "request": Requested,
    "validate": Validated,
    "preview": Previewed,
    "launch": Launched,
    "schema": Described,
}
"""run_result.json, conclusion.json, and what `evsys run`, `data check`, `cache why`, `cache info`, `history`, `show`,
`reindex`, `plan`, `compare`, `context`, `retract`, `audit`, `why`, `next`, `wait`, `status`, `validate`, `data preview` and `schema` print
with `--json`; `request` is printed by `pause`, `unpause`, `stop`, `extend` and `set`, and `launch` is the first line of `run`.
"""


def result_schema(name: str) -> dict[str, Any]:
    """JSON Schema 2020-12 of a result: closed, every property required.

    Raises:
        StoreError: there is no such result.
    """
    from evsys import schema_for_config

    schema = schema_for_config(_type(name))
    for part in (schema, *schema.get("$defs", {}).values()):
        if "properties" in part:
            part["required"] = list(part["properties"])
    schema["properties"] = {"format": {"const": FORMAT}, **schema["properties"]}
    schema["required"] = ["format", *schema["required"]]
    return schema


def validate_result(tree: Mapping[str, Any], name: str) -> None:
    """Check a result: its format, its types, no field too many and none too few.

    Raises:
        StoreError: it isn't a result of this name.
        ConfigError: types are wrong, or there are unknown fields; every problem with its path.
    """
    if tree.get("format") != FORMAT:
        raise StoreError(f"a {name} has format {FORMAT}, this one {tree.get('format')!r}")
    absent = sorted(_absent(result_tree(read_as(_type(name), tree)), tree, "$"))
    if absent:
        raise StoreError(f"a {name} lacks {', '.join(absent)}", hint="what isn't known is null, never absent")


def _absent(full: Any, tree: Any, path: str) -> list[str]:
    """Paths in `full` and not in `tree`."""
    if isinstance(full, Mapping) and isinstance(tree, Mapping):
        missing = [f"{path}.{key}" for key in full if key not in tree]
        return missing + [
            found for key in tree if key in full for found in _absent(full[key], tree[key], f"{path}.{key}")
        ]
    if isinstance(full, list) and isinstance(tree, list | tuple):
        pairs = enumerate(zip(full, tree, strict=True))
        return [found for place, (a, b) in pairs for found in _absent(a, b, f"{path}[{place}]")]
    return []


def _type(name: str) -> type:
    if name not in RESULTS:
        raise StoreError(f"no result is called {name!r}", hint=f"known: {', '.join(RESULTS)}")
    return RESULTS[name]
