"""Who acts in rollouts: the checks of an `agent` block, in a run or in a benchmark entry."""

from __future__ import annotations

from importlib.util import find_spec

from evsys.errors import PLUGIN_FAILURES, Problem
from evsys_runtime.config.building import Built, Plugins
from evsys_runtime.config.model import AgentConfig

__all__ = ["check_agent"]


def check_agent(plugins: Plugins, agent: AgentConfig, path: str) -> Built:
    """Build a registered agent; of one by import path only its module is looked for."""
    if (agent.kind is None) == (agent.import_path is None):
        both = (
            "names both 'kind' and 'import_path'" if agent.kind else "names neither 'kind' nor 'import_path'"
        )
        return Built(problems=(Problem(path=path, message=f"the agent {both}", hint="give one of them"),))
    if agent.kind is not None:
        return plugins.build("agent", agent.kind, agent.params, path)
    wrong = _import_problem(str(agent.import_path))
    if wrong is None:
        return Built()
    return Built(problems=(Problem(path=f"{path}.import_path", message=wrong[0], hint=wrong[1]),))


def _import_problem(import_path: str) -> tuple[str, str] | None:
    """What is wrong with `module:Class` or `module.Class`, found without importing the module itself."""
    module, colon, attribute = import_path.partition(":")
    if not colon:
        module, _, attribute = import_path.rpartition(".")
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        return f"{import_path!r} is no import path", "write module:Class"
    try:
        found = find_spec(module)
    except PLUGIN_FAILURES as exc:
        return f"{module!r} can't be looked for: {type(exc).__name__}: {exc}", "correct the path"
    return None if found else (f"there is no module {module!r}", "a project's own agents are under src.")
