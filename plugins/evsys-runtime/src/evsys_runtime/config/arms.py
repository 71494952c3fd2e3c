"""Arms from plain trees: structured, their plugins built, their parts checked against each other.

Equal parts of arms are the same objects (see `expand`), so each distinct part is looked at once, however many arms
there are. Paths here start at the run: `$.algorithm.params`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import attrs

from evsys import structure
from evsys._plugins.models import is_pydantic
from evsys._plugins.shape import fields_of
from evsys.errors import PLUGIN_FAILURES, ConfigError, Problem
from evsys.optional import SupportsModelCheck, declared
from evsys.types import ModelSpec
from evsys_runtime.config import paths, trees
from evsys_runtime.config.agents import check_agent, is_harness
from evsys_runtime.config.asked_model import adapter_of, asked_model, model_spec
from evsys_runtime.config.building import BuildResult, Plugins, complaints
from evsys_runtime.config.harness import Harness, harness_of
from evsys_runtime.config.later import older_block
from evsys_runtime.config.model import (
    AgentConfig,
    DataConfig,
    ModelConfig,
    PluginSpec,
    RoleConfig,
    RunConfig,
)
from evsys_runtime.config.model.run import SourceConfig
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.roles import ROLES, check_role, role_problems
from evsys_runtime.config.sources import source_problems, source_warnings, weights_problems
from evsys_runtime.config.tasks import most_rows
from evsys_runtime.config.transforms import check_transform

__all__ = ["Arms"]

_MODEL_OPTIONS = ("init_from_checkpoint", "load_checkpoint_path", "renderer")
_COUNTED = 16
"""So many batches of rows are counted at most: where more are kept out of the training, the run finds that out."""
_LORA_OPTIONS = ("lora_rank", "lora_alpha", "target_modules")
_TYPES = get_type_hints(RunConfig)

type Problems = tuple[Problem, ...]


@attrs.define(eq=False)
class _Part:
    """One key of a run: its structured value, what was built from it, and the problems found in it."""

    raw: Any
    value: Any = None
    built: Any = None
    problems: Problems = ()

    @property
    def is_valid(self) -> bool:
        return self.value is not None and not self.problems


@attrs.define(eq=False)
class Arms:
    """Checks runs one by one, remembering what it has seen. `warnings` has the warnings about usable ones."""

    plugins: Plugins
    root: Path
    has_store: bool
    warnings: list[str] = attrs.field(factory=list)
    _parts: dict[tuple[str, int], _Part] = attrs.field(factory=dict)
    _shapes: dict[frozenset[str], Problems] = attrs.field(factory=dict)
    _pairs: dict[tuple[Any, ...], Problems] = attrs.field(factory=dict)
    _specs: dict[tuple[Any, ...], ModelSpec] = attrs.field(factory=dict)
    _counted: dict[tuple[int, int], int | None] = attrs.field(factory=dict)
    _options: dict[str, tuple[tuple[str, Any, str | Mapping[str, str]], ...]] = attrs.field(factory=dict)

    def check(self, tree: Mapping[str, Any]) -> tuple[RunConfig | None, list[Problem]]:
        """A run and its problems; without a `RunConfig` where the tree doesn't make one."""
        parts = {key: self._part(key, value) for key, value in tree.items() if key in _TYPES}
        problems = [problem for part in parts.values() for problem in part.problems]
        problems += self._shape(tree)
        problems += self._together(parts)
        if problems:
            return None, problems
        return RunConfig(**{key: part.value for key, part in parts.items()}), problems

    def backend(self, tree: Mapping[str, Any]) -> Any:
        """The backend object of a checked run."""
        return self._part("backend", tree["backend"]).built

    def algorithm(self, tree: Mapping[str, Any]) -> Any:
        """The algorithm object of a checked run."""
        return self._part("algorithm", tree["algorithm"]).built

    def harness(self, tree: Mapping[str, Any], run: RunConfig) -> Harness:
        """The harness of a checked run."""
        return harness_of(run, self.algorithm(tree))

    def follows(self, before: Mapping[str, Any], tree: Mapping[str, Any]) -> Problems:
        """The problems that keep a run from beginning with the final weights of another one, `before`."""
        backend, one, two = (
            self._part(key, of.get(key))
            for key, of in (("backend", tree), ("algorithm", before), ("algorithm", tree))
        )
        key = ("follows", id(backend.raw), id(one.raw), id(two.raw))
        return self._memo(key, lambda: _unchainable(backend, one, two))

    def unsteady(self, tree: Mapping[str, Any]) -> list[str]:
        """The backends of a checked run, those of its roles among them, that don't promise the same bits each time."""
        parts = [self._part("backend", tree["backend"])]
        roles = [self._part(name, tree[name]) for name in ROLES if tree.get(name) is not None]
        named = [(part.value.kind, part.built) for part in parts]
        named += [(on.kind, role.built) for role in roles if (on := role.value.own) is not None]
        return [kind for kind, built in named if "deterministic" not in getattr(built, "capabilities", ())]

    def _shape(self, tree: Mapping[str, Any]) -> Problems:
        """Keys missing or unknown."""
        keys = frozenset(tree)
        if keys not in self._shapes:
            found = _problems(lambda: structure(RunConfig, tree))
            odd = {f"$.{key}" for key in _TYPES if key not in keys}
            known = tuple(f"$.{key}" for key in keys if key in _TYPES)
            self._shapes[keys] = tuple(
                _explain_old_key(problem)
                for problem in found
                if problem.path in odd or not _is_below(problem.path, known)
            )
        return self._shapes[keys]

    def _part(self, key: str, raw: Any) -> _Part:
        if key == "name" and type(raw) is str:  # each arm has another
            return _Part(raw, raw)
        memo = (key, id(raw))
        part = self._parts.get(memo)
        if part is None:
            part = self._parts[memo] = self._look_at(key, raw)
        return part

    def _look_at(self, key: str, raw: Any) -> _Part:
        path = f"$.{key}"
        more: list[Problem] = []
        try:
            plain = _plugin_spec(raw) if _TYPES[key] is PluginSpec else None
            value: Any = plain or structure(_TYPES[key], raw, path=path)
            _bounds(key, value)
        except ConfigError as exc:
            return _Part(raw, None, None, (*exc.problems, *self._beside(key, raw, exc.problems)))
        except ValueError as exc:
            return _Part(raw, None, None, (Problem(path=path, message=str(exc)),))
        built = BuildResult()
        match value:
            case PluginSpec():
                built = self.plugins.build(key, value.kind, value.params, path)
                more += self._acting(value, f"{path}.params")
            case AgentConfig():
                built = check_agent(self.plugins, value, path)
                if is_harness(built.plugin):
                    more += self.plugins.named("rollout_engine", "harbor", path)
            case DataConfig():
                built = BuildResult(problems=tuple(self._data(value, path)))
            case ModelConfig():
                built = BuildResult(problems=tuple(self._model(value, path)))
            case RoleConfig():
                built = check_role(self.plugins, value, path, self.root)
        return _Part(raw, value, built.plugin, (*more, *built.problems))

    def _acting(self, spec: PluginSpec, path: str) -> list[Problem]:
        """The problems of an agent and an environment named by an algorithm's own params."""
        import_path, environment = spec.params.get("agent_import_path"), spec.params.get("environment")
        problems: list[Problem] = []
        harbor = [f"{path}.environment"] if environment is not None else []
        if isinstance(import_path, str) and import_path:
            place = f"{path}.agent_import_path"
            built = check_agent(self.plugins, AgentConfig(import_path=import_path), path)
            problems += [attrs.evolve(problem, path=place) for problem in built.problems]
            harbor += [place] if is_harness(built.plugin) else []
        if isinstance(environment, Mapping):
            problems += _problems(lambda: structure(PluginSpec, environment, path=f"{path}.environment"))
        for place in harbor[:1]:
            built = self.plugins.build("rollout_engine", "harbor", {}, place)
            problems += [attrs.evolve(problem, path=place) for problem in built.problems]
        return problems

    def _beside(self, key: str, raw: Any, problems: Sequence[Problem]) -> list[Problem]:
        """The problems of a part besides its refused keys and their absence."""
        path = f"$.{key}"
        rest = trees.remove_keys(raw, [paths.parse(problem.path)[1:] for problem in problems])
        if rest is raw:
            return []
        told = {path, *(problem.path for problem in problems)}
        return [problem for problem in self._look_at(key, rest).problems if problem.path not in told]

    def _data(self, data: DataConfig, path: str) -> list[Problem]:
        problems = self._source(data, path)
        for index, other in enumerate(data.replay.datasets if data.replay is not None else ()):
            problems += self._source(other, f"{path}.replay.datasets[{index}]")
        return problems

    def _source(self, data: SourceConfig, path: str) -> list[Problem]:
        problems = list(source_problems(data, path, self.root, has_store=self.has_store))
        for index, spec in enumerate(data.transforms):
            place = f"{path}.transforms[{index}]"
            problems += check_transform(self.plugins, spec.kind, spec.params, place, self.root)
        self.warnings += source_warnings(data, self.root, has_store=self.has_store)
        return problems

    def _model(self, model: ModelConfig, path: str) -> list[Problem]:
        problems = list(weights_problems(model, path, self.root))
        if model.renderer is not None:
            problems += self.plugins.named("renderer", model.renderer, f"{path}.renderer")
        return problems

    def _together(self, parts: Mapping[str, _Part]) -> list[Problem]:
        """What no part can know alone: does the backend do what the other parts ask?"""
        algorithm, backend, model = (parts.get(key) for key in ("algorithm", "backend", "model"))
        problems: list[Problem] = []
        if backend is not None and backend.built is not None:
            if algorithm is not None and algorithm.built is not None:
                problems += self._lacking(algorithm, backend)
            if model is not None and model.value is not None:
                if (
                    declared(backend.built, "honours") is not None
                ):  # one that says nothing is taken to honour all options
                    asked = self._unusual_options(algorithm, model)
                    problems += self._memo(
                        ("honours", asked, id(backend.raw)), lambda: _ignored_options(asked, backend)
                    )
                if not model.problems:
                    problems += self._model_problems(algorithm, backend, model)
        problems += self._small(algorithm, parts.get("data"))
        problems += self._roles(parts)
        agent = parts.get("agent")
        if (
            agent is not None
            and agent.raw is not None
            and algorithm is not None
            and algorithm.value is not None
        ):
            problems += _two_agents(algorithm.value)
        return problems

    def _small(self, algorithm: _Part | None, data: _Part | None) -> Problems:
        """An explicit batch that the rows can't fill."""
        trainer: Any = None if algorithm is None else algorithm.built
        if (
            algorithm is None
            or algorithm.value is None
            or data is None
            or data.value is None
            or data.problems
        ):
            return ()
        size = resolve(algorithm.value.params).get("batch_size")
        if not declared(trainer, "whole_batches", False) or not str(size).isdecimal():
            return ()
        rows = self._rows(data, _COUNTED * int(size))
        if rows is None:
            return ()
        return self._memo(
            ("small", id(algorithm.raw), rows), lambda: _row_count_problems(trainer, int(size), rows)
        )

    def _rows(self, data: _Part, enough: int) -> int | None:
        """At most how many rows there are; see `most_rows`. Read once, for all algorithms that train on them."""
        key = (id(data.raw), enough)
        if key not in self._counted:
            self._counted[key] = most_rows(data.value, self.root, self.plugins.registry, enough=enough)
        return self._counted[key]

    def _roles(self, parts: Mapping[str, _Part]) -> Problems:
        """The problems of second models together, besides those of each by itself."""
        algorithm, backend, model = (parts.get(key) for key in ("algorithm", "backend", "model"))
        named = {
            name: part for name in ROLES if (part := parts.get(name)) is not None and part.raw is not None
        }
        trainer: Any = None if algorithm is None else algorithm.built
        if algorithm is None or trainer is None or backend is None or backend.value is None:
            return ()
        wanted = bool(named) or bool(declared(trainer, "required_roles", ()))
        if not wanted or not all(part.is_valid for part in named.values()):
            return ()
        try:
            asked = asked_model(model.value, trainer) if model is not None and model.is_valid else None
        except PLUGIN_FAILURES:  # what it trains is asked, and told, with the algorithm
            return ()
        key = ("roles", id(algorithm.raw), id(backend.raw), asked, *(id(part.raw) for part in named.values()))
        roles = {name: (part.value, part.built) for name, part in named.items()}
        on = (backend.value, backend.built)
        return self._memo(key, lambda: role_problems(algorithm.value.kind, trainer, asked, on, roles))

    def _memo(self, key: tuple[Any, ...], look: Callable[[], Iterable[Problem]]) -> Problems:
        if key not in self._pairs:
            self._pairs[key] = tuple(look())
        return self._pairs[key]

    def _lacking(self, algorithm: _Part, backend: _Part) -> Problems:
        """The capabilities that the algorithm and its options in use need and the backend lacks."""
        kind, params = algorithm.value.kind, algorithm.value.params
        requires = declared(algorithm.built, "requires", ())
        if kind not in self._options:
            self._options[kind] = tuple(_needy_options(self.plugins.registry.config_of("algorithm", kind)))
        if not requires and not self._options[kind]:
            return ()
        needs = [(capability, "$.algorithm.kind") for capability in sorted(requires)]
        for key, default, capability in self._options[kind]:
            given = params.get(key, default)
            if given in (None, False) or given == default:
                continue
            if isinstance(capability, str):
                needs.append((capability, f"$.algorithm.params.{key}"))
            elif isinstance(given, str) and given in capability:
                needs.append((capability[given], f"$.algorithm.params.{key}"))
        memo = ("needs", tuple(needs), id(backend.raw))
        return self._memo(memo, lambda: _missing_capability(needs, algorithm, backend))

    def _unusual_options(self, algorithm: _Part | None, model: _Part) -> tuple[str, ...]:
        """Run options in use that a backend may not know what to do with."""
        asked = [f"model.{name}" for name in _MODEL_OPTIONS if getattr(model.value, name) is not None]
        if algorithm is not None and algorithm.value is not None:
            asked += [f"algorithm.params.{name}" for name in _LORA_OPTIONS if name in algorithm.value.params]
        return tuple(asked)

    def _model_problems(self, algorithm: _Part | None, backend: _Part, model: _Part) -> list[Problem]:
        """The problems of the model according to backend and algorithm, if they offer a check."""
        trainer: Any = algorithm.built if algorithm is not None else None
        judges = (
            [(backend, "backend", "$.model.name")] if isinstance(backend.built, SupportsModelCheck) else []
        )
        if algorithm is not None and isinstance(trainer, SupportsModelCheck):
            judges.append((algorithm, "algorithm", "$.algorithm.params"))
        try:
            spec = adapter_of(trainer)
        except PLUGIN_FAILURES as exc:
            message = f"the algorithm can't report its trained parameters: {type(exc).__name__}: {exc}"
            return [Problem(path="$.algorithm.params", message=message)]
        if not judges:
            return []
        same = (id(model.raw), spec.rank, spec.alpha, tuple(spec.targets))
        asked = self._specs.get(same)
        if asked is None:
            asked = self._specs[same] = model_spec(model.value, spec)
        problems: list[Problem] = []
        for judge, kind, path in judges:
            key = (kind, id(judge.raw), same)
            problems += self._memo(key, partial(_complaints, judge, kind, path, asked))
        return problems


def _two_agents(algorithm: PluginSpec) -> Iterable[Problem]:
    if algorithm.params.get("agent_import_path") is not None:
        message = "'agent' and the algorithm's 'agent_import_path' both name the agent"
        yield Problem(path="$.agent", message=message, hint="keep one of them")


def _unchainable(backend: _Part, one: _Part, two: _Part) -> Iterable[Problem]:
    honours = declared(backend.built, "honours")  # one that says nothing is taken to honour all options
    start = "init_from_checkpoint"
    loads = "resume" in getattr(backend.built, "capabilities", ())
    ignores = honours is not None and not {start, f"model.{start}"} & set(honours)
    if backend.built is not None and (ignores or not loads):
        message = (
            f"backend {backend.value.kind!r} can't begin with the weights of another run, as a stage does"
        )
        yield Problem(path="$.backend.kind", message=message, hint="choose another backend")
    if one.built is None or two.built is None:
        return
    try:
        before, after = (adapter_of(part.built) for part in (one, two))
    except PLUGIN_FAILURES:  # what it trains is asked, and told, with the algorithm
        return
    for name, theirs, ours in (
        ("lora_rank", before.rank, after.rank),
        ("lora_alpha", before.alpha, after.alpha),
        ("target_modules", tuple(before.targets), tuple(after.targets)),
    ):
        if theirs != ours:
            message = f"it starts from weights trained with {name} {theirs!r}, and has {ours!r}"
            hint = "give all stages the same"
            yield Problem(path=f"$.algorithm.params.{name}", message=message, hint=hint)


def _row_count_problems(trainer: Any, size: int, rows: int) -> Iterable[Problem]:
    trained = trainer.rows_trained(rows)
    if trained < size:
        have = "1 row is" if trained == 1 else f"{trained} rows are"
        hint = f"set it to at most {trained}, or leave it out" if trained else "give it rows"
        message = f"{have} fewer than one batch of {size}"
        yield Problem(path="$.algorithm.params.batch_size", message=message, hint=hint)


def _plugin_spec(raw: Any) -> PluginSpec | None:
    """The spec that a tree plainly is, made without going through the converter: thousands of arms differ in it."""
    if type(raw) is not dict or raw.keys() != {"kind", "params"}:
        return None
    kind, params = raw["kind"], raw["params"]
    return PluginSpec(kind=kind, params=params) if type(kind) is str and type(params) is dict else None


def _bounds(key: str, value: Any) -> None:
    """Refuse a value out of the bounds of its key, with a `ValueError`, as making the whole run would."""
    attribute = attrs.fields_dict(RunConfig)[key]
    if attribute.validator is not None:
        attribute.validator(None, attribute, value)


def _explain_old_key(problem: Problem) -> Problem:
    """A problem of an unknown key, with what became of the key if an older format had it."""
    wrong = older_block(problem.path.removeprefix("$."))
    return problem if wrong is None else attrs.evolve(problem, message=wrong[0], hint=wrong[1])


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or (path.startswith(root) and path[len(root)] in ".[") for root in roots)


def _problems(make: Callable[[], Any]) -> Problems:
    try:
        make()
    except ConfigError as exc:
        return exc.problems
    return ()


def _needy_options(config: type | None) -> Iterable[tuple[str, Any, str | Mapping[str, str]]]:
    """(key, default, capability) of each field that declares `requires` in its metadata: a capability, or one by value."""
    if config is None or is_pydantic(config):
        return
    for field in fields_of(config):
        if "requires" in field.metadata:
            yield field.key, field.default, field.metadata["requires"]


def _missing_capability(
    needs: Iterable[tuple[str, str]], algorithm: _Part, backend: _Part
) -> Iterable[Problem]:
    offered: frozenset[str] = getattr(backend.built, "capabilities", frozenset())
    for capability, path in needs:
        if capability in offered or capability.partition(":")[0] in offered:
            continue
        if path == "$.algorithm.kind":
            asking, path = f"algorithm {algorithm.value.kind!r}", "$.backend.kind"
        else:
            asking = f"the option {path.removeprefix('$.')}"
        message = f"{asking} needs {capability!r}, which backend {backend.value.kind!r} doesn't offer"
        yield Problem(path=path, message=message, hint="choose another backend, or leave it out")


def _ignored_options(asked: tuple[str, ...], backend: _Part) -> Iterable[Problem]:
    honours = backend.built.honours
    for option in asked:
        if option not in honours and option.rpartition(".")[2] not in honours:
            message = f"backend {backend.value.kind!r} would ignore {option}"
            yield Problem(path=f"$.{option}", message=message, hint="leave it out, or choose another backend")


def _complaints(judge: _Part, kind: str, path: str, model: ModelSpec) -> list[Problem]:
    unable = f"{kind} {judge.value.kind!r} can't judge the model"
    return complaints(lambda: judge.built.validate_model(model), path, unable)
