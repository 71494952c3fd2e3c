"""The harness of a run: its agent, the agent's environment, and a system prompt, from any block of the run.

A run that trains in rollouts is evaluated in the same harness, unless a benchmark entry names its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from evsys import Registry, structure
from evsys.optional import declared
from evsys_runtime.config.agents import check_agent, is_harness
from evsys_runtime.config.building import Plugins
from evsys_runtime.config.engines import engine_problems
from evsys_runtime.config.model import AgentConfig, BenchmarkConfig, PluginSpec, RunConfig
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.reading import Reader

__all__ = ["Harness", "check_harnesses", "harness_of", "run_harness"]


@attrs.frozen(kw_only=True)
class Harness:
    """An agent, an environment, and a system prompt as the file has them, `${NAME}` not replaced; None is the default of each.

    `max_turns` is the most answers of a rollout, None where nothing sets it. `trains` says whether the run trains in it, rather than being scored in it only.
    """

    agent: AgentConfig | None = None
    environment: PluginSpec | None = None
    system_prompt: str | None = None
    max_turns: int | None = None
    trains: bool = False

    def scoring(self, entry: BenchmarkConfig) -> BenchmarkConfig:
        """An entry with the parts of this harness that it does not name itself. Its `system_prompt: ""` represents none."""
        prompt = self.system_prompt if entry.system_prompt is None else entry.system_prompt
        return attrs.evolve(
            entry,
            agent=entry.agent or self.agent,
            environment=entry.environment or self.environment,
            system_prompt=prompt or None,
        )

    @property
    def parts(self) -> str:
        """The parts that differ from the defaults, in words; empty if none."""
        told = [
            "" if self.agent is None else f"the agent {_agent(self.agent)}",
            "" if self.environment is None else _place(self.environment),
            "" if self.system_prompt is None else f"the system prompt {self.system_prompt[:60]!r}",
        ]
        return ", ".join(filter(None, told))

    def departures(self, entry: BenchmarkConfig) -> Iterator[str]:
        """How an entry is scored otherwise than this harness trains, in words."""
        if not self.trains:
            return
        if entry.agent is not None and entry.agent != self.agent:
            yield f"with the agent {_agent(entry.agent)} and not {_agent(self.agent)}"
        if entry.environment is not None and entry.environment != self.environment:
            yield f"in {_place(entry.environment)} and not in {_place(self.environment)}"
        if entry.system_prompt is not None and (entry.system_prompt or None) != self.system_prompt:
            yield "with a system prompt of its own"


def harness_of(run: RunConfig, algorithm: Any) -> Harness:
    """The harness of a run.

    Args:
        run: its `agent` counts, and the `agent_import_path`, `environment`, `system_prompt` and `max_turns` in the
            params of its algorithm.
        algorithm: as it was built; its Config has the defaults of these params. They count only if its rows are
            tasks.

    Raises:
        ConfigError: the `environment` is neither a name nor a mapping with `kind` and `params`.
    """
    if declared(algorithm, "shape", "chat") != "task":
        return Harness(agent=run.agent)
    import_path, environment, prompt, turns = (
        run.algorithm.params.get(name, getattr(getattr(algorithm, "config", None), name, None))
        for name in ("agent_import_path", "environment", "system_prompt", "max_turns")
    )
    return Harness(
        agent=run.agent if import_path is None else AgentConfig(import_path=import_path),
        environment=_environment(environment),
        system_prompt=prompt,
        max_turns=turns,
        trains=True,
    )


def run_harness(registry: Registry, run: RunConfig) -> Harness:
    """As `harness_of`, of an algorithm built for this."""
    return harness_of(run, registry.build("algorithm", run.algorithm.kind, resolve(run.algorithm.params)))


def check_harnesses(
    harnesses: Iterable[Harness],
    judged: Any,
    entries: Sequence[BenchmarkConfig],
    reader: Reader,
    plugins: Plugins,
) -> None:
    """Warn of entries scored otherwise than runs train, and report engines that cannot run what runs act in.

    Args:
        harnesses: of all runs.
        judged: `metadata.benchmark` as the file has it.
        entries: made from it, in its order.
        reader: reports.
        plugins: builds engines and agents.
    """
    if not entries:  # then no run is compared with any, however many there are
        return
    for harness in {repr(one): one for one in harnesses}.values():
        for index, entry in enumerate(entries):
            place = f"$.metadata.benchmark[{index}]" if isinstance(judged, list) else "$.metadata.benchmark"
            if departures := list(harness.departures(entry)):
                reader.report.warn(
                    f"benchmark {entry.label!r} is scored {', '.join(departures)}, unlike the rollouts of the training"
                )
            scored, named = harness.scoring(entry), entry.engine_spec
            if scored == entry or named.kind == "auto":
                continue
            engine = plugins.build("rollout_engine", named.kind, named.params, f"{place}.engine").plugin
            agent = check_agent(plugins, scored.agent, place).plugin if scored.agent is not None else None
            reader.add_all([*engine_problems(engine, scored, (), harness=is_harness(agent), place=place)])


def _environment(named: Any) -> PluginSpec | None:
    if named is None or isinstance(named, PluginSpec):
        return named
    tree = named if isinstance(named, Mapping) else {"kind": named}
    return structure(PluginSpec, tree, path="$.run.algorithm.params.environment")


def _agent(agent: AgentConfig | None) -> str:
    return repr((agent and (agent.kind or agent.import_path)) or "chat")


def _place(environment: PluginSpec | None) -> str:
    return "no environment" if environment is None else f"the environment {environment.kind!r}"
