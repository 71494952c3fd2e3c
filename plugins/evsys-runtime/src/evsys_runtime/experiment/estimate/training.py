"""How long each arm will train: its rows read and rendered as a run reads them, and nothing trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any

import attrs

from evsys.errors import EvsysError, boundary
from evsys.optional import declared
from evsys.types import RunResult
from evsys_record.hashing import digest
from evsys_runtime.accounting.prices import PriceList
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.data.dataset import MaterializedDataset
from evsys_runtime.data.load import load_dataset
from evsys_runtime.data.parse import Shape
from evsys_runtime.data.workspace import Workspace
from evsys_runtime.experiment.estimate.results import PlannedArm
from evsys_runtime.experiment.estimate.second_models import second_models_usd
from evsys_runtime.experiment.insight.evidence import Evidence
from evsys_runtime.experiment.preflight.data_check import data_key
from evsys_runtime.experiment.state.resolved_tree import resolved_run
from evsys_runtime.experiment.state.seeds import seeds_of
from evsys_runtime.rendering.resolve import load_renderer
from evsys_runtime.training.algorithm import BaseAlgorithm
from evsys_runtime.training.params import resolve_batch_size, resolve_steps

__all__ = ["Trainings"]

_NO_DATA = "rows weren't read (--no-data)"


@attrs.frozen(kw_only=True)
class _Rows:
    """Rows left to train on, and the tokens that a pass over all of them takes; None where no one knows."""

    rows: int
    tokens: int | None
    dropped: dict[str, int]


class Trainings:
    """The trainings of a plan.

    Args:
        plan: a valid plan.
        evidence: what is on record.
        prices: of models.
        read_rows: False leaves the rows alone, and what follows from them unknown.

    Attributes:
        fingerprints: of the rows of each arm read.
    """

    def __init__(
        self,
        plan: Plan,
        evidence: Evidence,
        prices: PriceList,
        *,
        read_rows: bool = True,
    ) -> None:
        self._plan = plan
        self._evidence = evidence
        self._prices = prices
        self._read_rows = read_rows
        self.fingerprints: dict[str, str] = {}
        self._datasets: dict[str, MaterializedDataset] = {}
        self._data_keys: dict[Hashable, str] = {}
        self._rendered: dict[Hashable, _Rows] = {}

    def arms(self) -> list[PlannedArm]:
        """Every arm, or each stage of it, with its repeats together.

        Raises:
            DataError, StoreError: rows can't be read.
        """
        repeats = Counter(arm.label for arm in self._plan.arms)
        first = {arm.label: arm for arm in reversed(self._plan.arms)}
        return [self._arm(first[name], count) for name, count in repeats.items()]

    def rows_of(self, arm: ArmConfig, algorithm: Any) -> MaterializedDataset:
        """The rows of an arm; arms that share them share the object.

        Raises:
            DataError, StoreError: they can't be read.
        """
        return self._dataset(arm, algorithm)[0]

    def _arm(self, arm: ArmConfig, runs: int) -> PlannedArm:
        registry, unknown = self._plan.registry, list[str]()
        if arm.weights_of is not None:
            return self._evaluation_only(arm, runs)
        algorithm = self._plan.resolver.built("algorithm", arm.run.algorithm)
        found = self._rows(arm, algorithm, unknown) if self._read_rows else None
        if found is None:
            unknown.append(_NO_DATA)
        if getattr(type(algorithm), "total_steps", None) is BaseAlgorithm.total_steps:
            steps, tokens = _steps_and_tokens(getattr(algorithm, "config", None), found)
        else:
            steps = tokens = None
            unknown.append(f"algorithm {arm.run.algorithm.kind} doesn't estimate its steps before it runs")
        seconds, cost = self._training_costs(arm, steps, tokens, unknown)
        beside = second_models_usd(registry, arm.run, steps, lambda role: self._like(arm, role))
        for role, amount in beside.items():
            cost = None if cost is None or amount is None else cost + amount
            if amount is None:
                unknown.append(f"no record shows the cost of the {role}")
        return PlannedArm(
            arm=arm.label,
            stage=None if arm.stage is None else arm.stage.label,
            runs=runs,
            algorithm=registry.find("algorithm", arm.run.algorithm.kind).qualified,
            model=arm.run.model.name,
            backend=registry.find("backend", arm.run.backend.kind).qualified,
            rows=None if found is None else found.rows,
            dropped={} if found is None else found.dropped,
            steps=steps,
            trained_tokens=tokens,
            seconds=seconds,
            cost_usd=cost,
            second_models=beside,
            purpose=arm.purpose,
            unknown=tuple(unknown),
        )

    def _evaluation_only(self, arm: ArmConfig, runs: int) -> PlannedArm:
        """Runs that only score."""
        registry = self._plan.registry
        return PlannedArm(
            arm=arm.label,
            runs=runs,
            algorithm=registry.find("algorithm", arm.run.algorithm.kind).qualified,
            model=arm.run.model.name,
            backend=registry.find("backend", arm.run.backend.kind).qualified,
            steps=0,
            trained_tokens=0,
            seconds=0.0,
            cost_usd=0.0,
            purpose=arm.purpose,
        )

    def _rows(self, arm: ArmConfig, algorithm: Any, unknown: list[str]) -> _Rows:
        kind = arm.run.algorithm.kind
        data, key = self._dataset(arm, algorithm)
        rendered = _rendering_key(key, arm, algorithm)
        found = self._rendered.get(rendered)
        if found is None:
            found = _Rows(rows=len(data), tokens=None, dropped=dict(data.dropped))
            show = declared(algorithm, "preview")
            if show is not None:
                try:
                    renderer = load_renderer(
                        arm.run.model.name, renderer=arm.run.model.renderer, registry=self._plan.registry
                    )
                except EvsysError as error:
                    unknown.append(f"tokens aren't counted: {error.message}")
                    return found
                left_out: dict[str, int] = Counter()
                with boundary("algorithm", kind):
                    lengths, trains = [], False
                    for row in show(iter(data), renderer, left_out):
                        lengths.append(sum(len(tokens) - 1 for tokens, _ in row.sequences))
                        trains = trains or any(any(weights) for _, weights in row.sequences)
                found = _training_rows(algorithm, lengths, {**data.dropped, **left_out})
                if lengths and not trains:  # prompts alone: what is trained, the model says on the way
                    found = attrs.evolve(found, tokens=None)
            self._rendered[rendered] = found
        if found.tokens is None:
            unknown.append(f"algorithm {kind} makes its tokens on the way")
        return found

    def _dataset(self, arm: ArmConfig, algorithm: Any) -> tuple[MaterializedDataset, str]:
        """The rows of an arm, and the key by which arms share them."""
        shape: Shape = declared(algorithm, "shape", "chat")
        seed = seeds_of(self._plan, arm)("data")
        alike = id(arm.run.data), shape, seed  # arms share the very block, as a rule
        if alike not in self._data_keys:
            self._data_keys[alike] = data_key(arm, shape, seed)
        key = self._data_keys[alike]
        if key not in self._datasets:
            self._datasets[key] = load_dataset(
                arm.run.data,
                shape=shape,
                project_root=self._plan.project_root,
                registry=self._plan.registry,
                pull=Workspace(self._plan.project_root).find_dataset,
                seed=seed,
                resolve=resolve,
            )
        self.fingerprints[arm.label] = self._datasets[key].fingerprint
        return self._datasets[key], key

    def _training_costs(
        self, arm: ArmConfig, steps: int | None, tokens: int | None, unknown: list[str]
    ) -> tuple[float | None, float | None]:
        """Seconds and US dollars of one training: by the newest like it on record, and by the model's price.

        By tokens; where they come on the way by steps, and then what rollouts and those that judge them cost isn't known.
        """
        seconds = None
        for run in self._like(arm):
            whole, part = (run.usage.trained_tokens, tokens) if tokens is not None else (run.steps, steps)
            if whole and part is not None and run.usage.seconds:
                seconds = run.usage.seconds * part / whole
                break
        cost = self._cost(arm, tokens)
        if seconds is None and (steps is not None or tokens is not None):
            unknown.append("no similar run is on record to estimate its duration from")
        if cost is None and tokens is None:
            unknown.append("what it costs isn't known before its tokens are")
        elif cost is None:
            unknown.append(f"no price of training {arm.run.model.name} is known")
        return seconds, cost

    def _cost(self, arm: ArmConfig, tokens: int | None) -> float | None:
        if tokens is None:
            return None
        if declared(self._plan.registry.get("backend", arm.run.backend.kind), "free", False):
            return 0.0
        price = self._prices.models.get(arm.run.model.name)
        if price is not None and price.training is not None:
            return tokens * price.training / 1e6
        for run in self._like(arm):
            used = run.usage
            if used.trained_tokens and used.cost_usd is not None and not used.without_price:
                beside = sum(took.cost_usd or 0.0 for took in run.roles.values())
                return (used.cost_usd - beside) * tokens / used.trained_tokens
        return None

    def _like(self, arm: ArmConfig, role: str | None = None) -> Iterator[RunResult]:
        """Completed runs of this algorithm, model and backend, and with the same second model in a role, the newest first."""
        if self._evidence.is_empty:
            return
        ours = resolved_run(self._plan.resolver, arm)
        for past in self._evidence.arms_trained_as(ours):
            same = role is None or past.run.get(role) == ours.get(role)
            for run in past.runs if same else ():
                result = None if run.folder is None else self._evidence.result(past.directory, run.folder)
                if result is not None and result.run is not None and result.status == "completed":
                    yield result.run


def _rendering_key(data: str, arm: ArmConfig, algorithm: Any) -> Hashable:
    """The facts that an arm's rendered rows depend on: arms with equal ones share them.

    An algorithm that doesn't declare which of its params matter, or a subclass of one that does, may depend on all
    of them.
    """
    model = arm.run.model
    names = vars(type(algorithm)).get("preview_params")
    params = (
        digest(arm.tree.get("algorithm"))
        if names is None
        else repr([getattr(algorithm.config, name) for name in sorted(names)])
    )
    return data, model.name, model.renderer, type(algorithm), params


def _steps_and_tokens(config: Any, rows: _Rows | None) -> tuple[int | None, int | None]:
    """Steps and trained tokens by the params and the rows; None if unknown."""
    if rows is None and getattr(config, "steps", None) is None:
        return None, None
    number = None if rows is None else rows.rows
    steps, limit = resolve_steps(config, number or 1)
    taken = resolve_batch_size(config, number) * steps if limit is None else limit
    if rows is None or rows.tokens is None or not rows.rows:
        return steps, None
    return steps, round(rows.tokens * taken / rows.rows)


def _training_rows(algorithm: Any, lengths: list[int], dropped: dict[str, int]) -> _Rows:
    """Rows kept out of the training aren't passed; which ones is drawn, so their tokens are those of the mean row."""
    trained = declared(algorithm, "rows_trained", lambda rows: rows)(len(lengths))
    tokens = sum(lengths)
    if trained != len(lengths):
        dropped = {**dropped, "kept out of the training": len(lengths) - trained}
        tokens = round(tokens * trained / len(lengths))
    return _Rows(rows=trained, tokens=tokens, dropped=dropped)
