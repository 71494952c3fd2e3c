"""A rollout's settings as Harbor's trial config."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import RolloutError
from evsys.types import HarborTask, Message
from evsys_rollouts_harbor.addresses import connect_agent, names_no_model, with_address
from evsys_rollouts_harbor.api import (
    EnvironmentType,
    TrialAgentConfig,
    TrialConfig,
    TrialEnvironmentConfig,
    TrialTaskConfig,
    TrialVerifierConfig,
)
from evsys_rollouts_harbor.live import LiveRollout
from evsys_runtime.config.agents import load_object
from evsys_runtime.evaluation.agents import HarnessAgent
from evsys_runtime.evaluation.verify import TIMEOUT_SECONDS

__all__ = ["Settings", "environment_config", "instruction_text"]

_HERE = "evsys_rollouts_harbor"

BACKSTOP_SECONDS = 5.0
"""How long after its own deadline Harbor ends an agent of evsys that continues in spite of it."""

_AGENT_FIELDS = frozenset(
    "base_url env exclude_logs extra_allowed_hosts include_logs load_trajectory mcp_servers model_api_format "
    "model_api_key_name model_name override_setup_timeout_sec resume_trajectory skills skip_model_parsing".split()
)
"""Params of an agent of Harbor's that are settings of Harbor's and no arguments of its class."""

_ENVIRONMENT_FIELDS = frozenset(
    "cpu_enforcement_policy env extra_allowed_hosts extra_docker_compose force_build memory_enforcement_policy mounts "
    "override_cpus override_gpus override_memory_mb override_storage_mb override_tpu".split()
)
"""The same of an environment of Harbor's."""


@attrs.frozen(kw_only=True)
class Settings:
    """The settings of all trials of one run. `environment` is of `environment_config`; `harness` an agent of
    Harbor's, if it is one, with its params resolved.
    """

    stub: Path
    trials: Path
    environment: Mapping[str, Any]
    harness: HarnessAgent | None = None
    wave: bool = False

    def trial(self, live: LiveRollout) -> Any:
        """The config of one trial."""
        task = live.task
        return TrialConfig(
            task=TrialTaskConfig(path=Path(task.path) if task.path is not None else self.stub),
            trial_name=live.name,
            trials_dir=self.trials,
            agent=self._agent(live),
            environment=TrialEnvironmentConfig(**self._environment(live)),
            verifier=TrialVerifierConfig(
                import_path=f"{_HERE}.bridges:PolicyVerifier",
                # the policy's own deadline comes first, and says more
                override_timeout_sec=TIMEOUT_SECONDS + BACKSTOP_SECONDS,
            )
            if live.own_verifier
            else TrialVerifierConfig(),
            extra_instructions=[instruction_text(task, live.policy.system_prompt)]
            if task.path is None
            else [],
        )

    def _environment(self, live: LiveRollout) -> Mapping[str, Any]:
        """The agent's environment; programs that it starts there find the model by the usual variables."""
        if live.address is None or self.harness is None or not names_no_model(self.harness.params):
            return self.environment
        return {**self.environment, "env": {**live.address.env, **self.environment.get("env", {})}}

    def _agent(self, live: LiveRollout) -> Any:
        if self.harness is None:
            waiting = 60.0 if self.wave else 0.0  # for the others of its wave
            return TrialAgentConfig(
                import_path=f"{_HERE}.bridges:PolicyAgent",
                override_timeout_sec=live.timeout_seconds + BACKSTOP_SECONDS + waiting,
            )
        params = with_address(self.harness.params, live.address)
        if live.address is not None and names_no_model(self.harness.params):
            params = connect_agent(_class_of(self.harness), params, live.address)
        fields = {name: value for name, value in params.items() if name in _AGENT_FIELDS}
        own = _own_timeout(live.task.path)
        return TrialAgentConfig(
            import_path=self.harness.import_path,
            kwargs={name: value for name, value in params.items() if name not in _AGENT_FIELDS},
            override_timeout_sec=None if own else live.timeout_seconds,
            max_timeout_sec=live.timeout_seconds,
            **fields,
        )


def _class_of(harness: HarnessAgent) -> type:
    found: type = load_object(*harness.import_path.split(":"))
    return found


@lru_cache(maxsize=4096)
def _own_timeout(path: str | None) -> bool:
    """True where a task, and each step of it, says itself how long an agent may take."""
    if path is None:
        return False
    settings = tomllib.loads(Path(path, "task.toml").read_text(encoding="utf-8"))
    whole = "timeout_sec" in settings.get("agent", {})
    steps = settings.get("steps", [])
    return whole or (bool(steps) and all("timeout_sec" in step.get("agent", {}) for step in steps))


def environment_config(kind: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of Harbor's environment config.

    Args:
        kind: `null`, `bwrap`, the name of an environment of Harbor's, or `module:Class`.
        params: its parameters, resolved.

    Raises:
        RolloutError: there is none of this name.
    """
    if kind == "null":
        return {"import_path": f"{_HERE}.places:Nowhere", "kwargs": {"auto_mounting": True}}
    if kind == "bwrap":
        return {"import_path": f"{_HERE}.places:Bubblewrap", "kwargs": {"settings": dict(params)}}
    fields = {name: value for name, value in params.items() if name in _ENVIRONMENT_FIELDS}
    rest = {name: value for name, value in params.items() if name not in _ENVIRONMENT_FIELDS}
    if ":" in kind or "." in kind:
        module, _, attribute = kind.partition(":") if ":" in kind else kind.rpartition(".")
        return {"import_path": f"{module}:{attribute}", "kwargs": rest, **fields}
    known = [member.value for member in EnvironmentType]
    if kind not in known:
        raise RolloutError(
            f"no environment is called {kind!r}",
            hint=f"known: null, bwrap, Harbor's {', '.join(known)}, and your own as module:Class",
        )
    return {"type": kind, "kwargs": rest, **fields}


def instruction_text(task: HarborTask, system_prompt: str | None = None) -> str:
    """The instruction for an agent that takes one text: the system prompt, then the conversation, with the roles
    named if it has several messages.
    """
    told = task.instruction
    text = told if isinstance(told, str) else _conversation(told)
    return text if system_prompt is None else f"{system_prompt}\n\n{text}"


def _conversation(messages: Sequence[Message]) -> str:
    if len(messages) == 1:
        return messages[0].content
    return "\n\n".join(f"{message.role}: {message.content}" for message in messages)
