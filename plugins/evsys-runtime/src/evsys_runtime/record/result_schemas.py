"""The published shapes of results: what scripts and agents may rely on.

Made from the same classes that are written, so that they can't differ. Every field is always there; what isn't known is
null. `format` is 1 until a field changes its meaning or goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evsys.errors import StoreError
from evsys.types import ArmResult, Conclusion, ExperimentResult
from evsys_runtime.data.contamination import DataCheck
from evsys_runtime.record.audits import Audit
from evsys_runtime.record.encoding import as_tree
from evsys_runtime.record.files import FORMAT
from evsys_runtime.record.lookups import Lookups
from evsys_runtime.record.past import History, Reindexed, Shown
from evsys_runtime.record.plans import Comparing, Planned
from evsys_runtime.record.remembered import Context, Next, Why
from evsys_runtime.record.result_store import StoreInfo
from evsys_runtime.record.retraction import Retracting

__all__ = ["RESULTS", "read_as", "result_schema", "result_tree", "validate_result"]

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
}
"""run_result.json, conclusion.json, and what `evsys run`, `data check`, `cache why`, `cache info`, `history`, `show`,
`reindex`, `plan`, `compare`, `context`, `retract`, `audit`, `why` and `next` print with `--json`.
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


def result_tree(result: Any) -> dict[str, Any]:
    """A result as JSON values, `format` first: what a result file holds and `--json` prints.

    Final metrics of a run are numbers: one that wasn't finite is left out, with a warning in its place.
    """
    tree: dict[str, Any] = as_tree(result)
    for arm in (tree, *tree.get("arms", ())):
        run = arm.get("run")
        if isinstance(run, dict):
            odd = [name for name, value in run["metrics"].items() if value is None]
            run["metrics"] = {name: value for name, value in run["metrics"].items() if value is not None}
            run["warnings"] += [f"metric {name!r} wasn't finite at the end" for name in odd]
    return {"format": FORMAT, **tree}


def read_as[T](cls: type[T], tree: Mapping[str, Any]) -> T:
    """The object that was written as `tree`.

    Raises:
        ConfigError: the tree isn't of this shape; every problem with its path.
    """
    from evsys._plugins.structuring import structure

    return structure(cls, {key: value for key, value in tree.items() if key != "format"})


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
    """Paths that are in `full` and not in `tree`."""
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
