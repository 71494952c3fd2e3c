"""Arms from plain trees: structured, their plugins built, their parts checked against each other.

Equal parts of arms are the same objects (see `expand`), so each distinct part is looked at once, however many arms
there are. Paths here start at the run: `$.algorithm.params`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_type_hints

import attrs

from evsys import structure
from evsys._plugins.shape import fields_of, is_pydantic
from evsys.errors import ConfigError, Problem
from evsys.types import LoraSpec, ModelSpec
from evsys_runtime.config import files, tasks
from evsys_runtime.config.building import Built, Plugins
from evsys_runtime.config.later import LATER_IN_RUN, NOT_YET, later_keys
from evsys_runtime.config.model import AgentConfig, DataConfig, ModelConfig, PluginSpec, RunConfig

__all__ = ["Arms", "check_agent"]

_MODEL_OPTIONS = ("init_from_checkpoint", "load_checkpoint_path", "renderer")
_LORA_OPTIONS = ("lora_rank", "lora_alpha", "target_modules")
_TYPES = get_type_hints(RunConfig)

type Problems = tuple[Problem, ...]


@attrs.frozen(eq=False)
class _Part:
    """One key of a run: its structured value, what was built from it, and the problems found in it."""

    raw: Any
    value: Any = None
    built: Any = None
    problems: Problems = ()


@attrs.define(eq=False)
class Arms:
    """Checks runs one by one, remembering what it has seen."""

    plugins: Plugins
    root: Path
    has_store: bool
    _parts: dict[tuple[str, int], _Part] = attrs.field(factory=dict)
    _shapes: dict[frozenset[str], Problems] = attrs.field(factory=dict)
    _pairs: dict[tuple[Any, ...], Problems] = attrs.field(factory=dict)
    _options: dict[str, tuple[tuple[str, Any, str], ...]] = attrs.field(factory=dict)

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

    def _shape(self, tree: Mapping[str, Any]) -> Problems:
        """Keys that are missing or unknown."""
        keys = frozenset(tree)
        if keys not in self._shapes:
            found = _problems(lambda: structure(RunConfig, tree))
            odd = {f"$.{key}" for key in _TYPES if key not in keys}
            known = tuple(f"$.{key}" for key in keys if key in _TYPES)
            self._shapes[keys] = tuple(
                problem for problem in found if problem.path in odd or not _under(problem.path, known)
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
        later = list(_later(key, raw)) if key in LATER_IN_RUN else []
        if any(problem.path == path for problem in later):
            return _Part(raw, None, None, tuple(later))
        try:
            value = structure(_TYPES[key], raw, path=path)
            _bounds(key, value)
        except ConfigError as exc:
            return _Part(raw, None, None, (*later, *exc.problems))
        except ValueError as exc:
            return _Part(raw, None, None, (*later, Problem(path=path, message=str(exc))))
        built = Built()
        match value:
            case PluginSpec():
                built = self.plugins.build(key, value.kind, value.params, path)
            case AgentConfig():
                built = check_agent(self.plugins, value, path)
            case DataConfig():
                built = Built(problems=tuple(self._data(value, path)))
            case ModelConfig():
                built = Built(problems=tuple(self._model(value, path)))
        return _Part(raw, value, built.plugin, (*later, *built.problems))

    def _data(self, data: DataConfig, path: str) -> list[Problem]:
        problems = list(_source_problems(data, path, self.root, has_store=self.has_store))
        for index, spec in enumerate(data.transforms):
            place = f"{path}.transforms[{index}]"
            problems += self.plugins.build("transform", spec.kind, spec.params, place).problems
        return problems

    def _model(self, model: ModelConfig, path: str) -> list[Problem]:
        problems = []
        if model.init_from_checkpoint and model.load_checkpoint_path:
            message = "'init_from_checkpoint' and 'load_checkpoint_path' both say where the weights come from"
            hint = "keep 'load_checkpoint_path' to go on with the optimiser's state, the other to start it afresh"
            problems.append(Problem(path=f"{path}.load_checkpoint_path", message=message, hint=hint))
        if model.renderer is not None:
            problems += self.plugins.named("renderer", model.renderer, f"{path}.renderer")
        for key in ("init_from_checkpoint", "load_checkpoint_path"):
            name = getattr(model, key)
            wrong = files.missing(name, self.root, folder=True) if name and "://" not in name else None
            if wrong:
                problems.append(Problem(path=f"{path}.{key}", message=wrong[0], hint=wrong[1]))
        return problems

    def _together(self, parts: Mapping[str, _Part]) -> list[Problem]:
        """What no part can know alone: does the backend do what the other parts ask?"""
        algorithm, backend, model = (parts.get(key) for key in ("algorithm", "backend", "model"))
        problems: list[Problem] = []
        if backend is not None and backend.built is not None:
            if algorithm is not None and algorithm.built is not None:
                problems += self._lacking(algorithm, backend)
            if model is not None and model.value is not None:
                if hasattr(backend.built, "honours"):  # one that says nothing is taken to honour all options
                    seeded = "seed" in parts and parts["seed"].value is not None
                    asked = self._asked(algorithm, model, seeded=seeded)
                    problems += self._memo(
                        ("honours", asked, id(backend.raw)), lambda: _ignored(asked, backend)
                    )
                if hasattr(backend.built, "validate_model") and not model.problems:
                    problems += self._validated_model(algorithm, backend, model)
        agent = parts.get("agent")
        if (
            agent is not None
            and agent.raw is not None
            and algorithm is not None
            and algorithm.value is not None
        ):
            problems += _two_agents(algorithm.value)
        return problems

    def _memo(self, key: tuple[Any, ...], look: Callable[[], Iterable[Problem]]) -> Problems:
        if key not in self._pairs:
            self._pairs[key] = tuple(look())
        return self._pairs[key]

    def _lacking(self, algorithm: _Part, backend: _Part) -> Problems:
        needs = tuple(self._needed(algorithm))
        if not needs:
            return ()
        return self._memo(("needs", needs, id(backend.raw)), lambda: _not_offered(needs, algorithm, backend))

    def _needed(self, algorithm: _Part) -> Iterable[tuple[str, str]]:
        """(capability, path of what asks for it): the algorithm as such, and options of it that are in use."""
        kind, params = algorithm.value.kind, algorithm.value.params
        for capability in sorted(getattr(algorithm.built, "requires", ())):
            yield capability, "$.algorithm.kind"
        if kind not in self._options:
            self._options[kind] = tuple(_needy_options(self.plugins.registry.config_of("algorithm", kind)))
        for key, default, capability in self._options[kind]:
            given = params.get(key, default)
            if given not in (None, False) and given != default:
                yield capability, f"$.algorithm.params.{key}"

    def _asked(self, algorithm: _Part | None, model: _Part, *, seeded: bool) -> tuple[str, ...]:
        """Run options that are set, and that a backend may not know what to do with."""
        asked = [f"model.{name}" for name in _MODEL_OPTIONS if getattr(model.value, name) is not None]
        if algorithm is not None and algorithm.value is not None:
            asked += [f"algorithm.params.{name}" for name in _LORA_OPTIONS if name in algorithm.value.params]
        return (*asked, "seed") if seeded else tuple(asked)

    def _validated_model(self, algorithm: _Part | None, backend: _Part, model: _Part) -> Problems:
        """What the backend itself says of the model."""
        lora = getattr(algorithm.built, "lora", None) if algorithm is not None else None
        try:
            spec = lora() if callable(lora) else LoraSpec()
        except Exception as exc:
            message = f"the algorithm can't say what it trains: {type(exc).__name__}: {exc}"
            return (Problem(path="$.algorithm.params", message=message),)
        key = ("model", id(model.raw), id(backend.raw), repr(spec))
        return self._memo(key, lambda: _model_problems(model.value, spec, backend))


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
    except Exception as exc:
        return f"{module!r} can't be looked for: {type(exc).__name__}: {exc}", "correct the path"
    return None if found else (f"there is no module {module!r}", "a project's own agents are under src.")


def _two_agents(algorithm: PluginSpec) -> Iterable[Problem]:
    if algorithm.params.get("agent_import_path") is not None:
        message = "'agent' and the algorithm's 'agent_import_path' both say who acts"
        yield Problem(path="$.agent", message=message, hint="keep one of them")


def _later(key: str, raw: Any) -> Iterable[Problem]:
    return [Problem(path=place, message=NOT_YET, hint=hint) for place, hint in later_keys("run", {key: raw})]


def _bounds(key: str, value: Any) -> None:
    """Refuse a value out of the bounds of its key, with a `ValueError`, as making the whole run would."""
    attribute = attrs.fields_dict(RunConfig)[key]
    if attribute.validator is not None:
        attribute.validator(None, attribute, value)


def _under(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or (path.startswith(root) and path[len(root)] in ".[") for root in roots)


def _problems(make: Callable[[], Any]) -> Problems:
    try:
        make()
    except ConfigError as exc:
        return exc.problems
    return ()


def _needy_options(config: type | None) -> Iterable[tuple[str, Any, str]]:
    """(key, default, capability) of each field that declares `requires` in its metadata."""
    if config is None or is_pydantic(config):
        return
    for field in fields_of(config):
        if "requires" in field.metadata:
            yield field.key, field.default, field.metadata["requires"]


def _not_offered(needs: Iterable[tuple[str, str]], algorithm: _Part, backend: _Part) -> Iterable[Problem]:
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


def _ignored(asked: tuple[str, ...], backend: _Part) -> Iterable[Problem]:
    honours = backend.built.honours
    for option in asked:
        if option not in honours and option.rpartition(".")[2] not in honours:
            message = f"backend {backend.value.kind!r} would ignore {option}"
            yield Problem(path=f"$.{option}", message=message, hint="leave it out, or choose another backend")


def _model_problems(model: ModelConfig, lora: LoraSpec, backend: _Part) -> Iterable[Problem]:
    spec = ModelSpec(
        name=model.name,
        lora=lora,
        renderer=model.renderer,
        init_from_checkpoint=model.init_from_checkpoint,
        load_checkpoint_path=model.load_checkpoint_path,
    )
    try:
        complaints = [str(complaint) for complaint in backend.built.validate_model(spec)]
    except Exception as exc:
        complaints = [f"backend {backend.value.kind!r} can't judge the model: {type(exc).__name__}: {exc}"]
    return [Problem(path="$.model.name", message=complaint) for complaint in complaints]


def _source_problems(data: DataConfig, path: str, root: Path, *, has_store: bool) -> Iterable[Problem]:
    reference = [key for key in ("dataset_id", "dataset_name") if getattr(data, key) is not None]
    sources = [key for key in ("path", "rows", "hf_dataset") if getattr(data, key) is not None]
    if len(reference) > 1:
        yield Problem(
            path=f"{path}.dataset_name",
            message="both 'dataset_id' and 'dataset_name' are given",
            hint="keep one",
        )
    if len(sources) > 1:
        message = f"{' and '.join(map(repr, sources))} both name the rows"
        yield Problem(path=f"{path}.{sources[1]}", message=message, hint="keep one")
    elif not sources and not reference:
        yield Problem(
            path=path, message="names no rows", hint="give 'path', 'rows', 'dataset_id' or 'hf_dataset'"
        )
    needed = {"in_memory": "rows", "hf_dataset": "hf_dataset"}.get(data.source_kind or "", "path")
    if data.source_kind and sources and needed not in sources:
        message = f"source_kind {data.source_kind!r} needs {needed!r}, and {sources[0]!r} is given"
        yield Problem(
            path=f"{path}.source_kind", message=message, hint="leave 'source_kind' out, or correct it"
        )
    if data.rows is not None and not data.rows:
        yield Problem(path=f"{path}.rows", message="there are no rows")
    if data.hf_dataset is not None and find_spec("datasets") is None:
        message = "reading Hugging Face datasets needs the package 'datasets'"
        yield Problem(path=f"{path}.hf_dataset", message=message, hint="pip install 'evsys-sdk[hf]'")
    if data.path is not None and not reference:
        yield from _path_problems(data, data.path, path, root)
    if data.dataset_id and not data.path and not has_store:
        cached = root / ".evsys" / "cache" / "datasets" / data.dataset_id / "manifest.json"
        if not cached.is_file():
            message = f"the dataset {data.dataset_id!r} isn't in the project's cache, and no 'data_store' is configured"
            yield Problem(
                path=f"{path}.dataset_id", message=message, hint="add a 'data_store', or a 'path' as fallback"
            )


def _path_problems(data: DataConfig, name: str, path: str, root: Path) -> Iterable[Problem]:
    wrong = files.missing(name, root)
    suffix = Path(name).suffix.lower()
    if wrong is None and data.source_kind is None and suffix not in tasks.suffixes():
        known = ", ".join(sorted(tasks.suffixes()))
        wrong = (
            f"no format is known for the suffix {suffix!r}",
            f"known are {known}; or name it with 'source_kind'",
        )
    if wrong is not None:
        yield Problem(path=f"{path}.path", message=wrong[0], hint=wrong[1])
