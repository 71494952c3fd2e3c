"""The search `optuna`: Optuna's samplers, asked again from the history each time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys.types import SearchAxis
from evsys_search_optuna import evolution
from evsys_search_optuna.values import is_number, key_of, rounded

__all__ = ["Optuna"]

TRIES = 20
"""Samples in a row that were all tried before, after which values are drawn evenly."""

DRAWS = 1_000
"""Even draws in a row that were all tried before, after which a space counts as used up."""


class Optuna:
    """Proposes arms with an Optuna sampler, given the arms so far.

    The study is in memory, and made again from the history each time it is asked: nothing else is kept, so an
    interrupted search continues where it was. An arm that failed, or has no score, is the worst one.
    """

    name: ClassVar[str] = "optuna"

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `optuna`."""

        arms: int = option(20, "arms in all", ge=1)
        sampler: Literal["tpe", "cmaes", "random"] = option(
            "tpe",
            "`tpe`: tree-structured Parzen estimators (Bergstra et al. 2011); `cmaes`: an evolution strategy that adapts its "
            "covariance (Hansen 2016), for two ranges or more; needs the extra `cmaes`",
        )
        startup: int = option(8, "arms that `tpe` draws at random before it looks at scores", ge=1)
        population: int | None = option(
            None, "arms of a generation of `cmaes`; by default 4 + 3 ln(axes)", ge=3
        )
        seed: int = option(0, "seed of the sampler", ge=0)

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    def ask(
        self, history: Sequence[Mapping[str, Any]], space: Sequence[SearchAxis]
    ) -> Sequence[Mapping[str, Any]]:
        """The next arm; none when all are tried."""
        if len(history) >= self.config.arms:
            return []
        if self.config.sampler == "cmaes":
            return evolution.next_arm(
                history, space, seed=self.config.seed, population=self.config.population
            )
        tried = {key_of(entry["values"]) for entry in history}
        for number in range(TRIES):
            arm = self._sample_arm(history, space, number)
            if key_of(arm) not in tried:
                return [arm]
        for number in range(DRAWS):
            arm = _draw_arm(space, random.Random(f"{self.config.seed}/{len(history)}/{number}"))
            if key_of(arm) not in tried:
                return [arm]
        return []

    def size(self, space: Sequence[SearchAxis]) -> int:
        """The arms that there are going to be, unless the space has fewer."""
        return self.config.arms

    def validate_space(self, space: Sequence[SearchAxis]) -> Iterator[str]:
        """The problems of a space for the sampler."""
        if self.config.sampler == "cmaes":
            yield from evolution.unfit(space)

    def _sample_arm(
        self, history: Sequence[Mapping[str, Any]], space: Sequence[SearchAxis], number: int
    ) -> dict[str, Any]:
        import optuna

        optuna.logging.set_verbosity(
            optuna.logging.WARNING
        )  # else it reports each study, which is one an arm
        study = optuna.create_study(direction="maximize", sampler=self._sampler(len(history), number))
        study.add_trials(list(_trials(history, space)))
        trial = study.ask()
        arm: dict[str, Any] = {}
        for axis in space:
            if axis.applies(arm):
                arm[axis.path] = _suggest(trial, axis)
        return arm

    def _sampler(self, asked: int, number: int) -> Any:
        import optuna

        # Another seed each time: one that began again would draw the same as before.
        seed = random.Random(f"{self.config.seed}/{asked}/{number}").getrandbits(31)
        if self.config.sampler == "random":
            return optuna.samplers.RandomSampler(seed=seed)
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=self.config.startup, constant_liar=True)


def _trials(history: Sequence[Mapping[str, Any]], space: Sequence[SearchAxis]) -> Iterator[Any]:
    """The history as Optuna has it. Ended arms without a score count as pruned ones, which are worse than all that have one."""
    import optuna

    by_path = {axis.path: axis for axis in space}
    for entry in history:
        if entry["status"] == "refused" or not entry["values"].keys() <= by_path.keys():
            continue
        score = entry["score"]
        has_score = is_number(score)
        state = "COMPLETE" if has_score else "RUNNING" if entry["status"] == "running" else "PRUNED"
        yield optuna.trial.create_trial(
            params={path: _inside(by_path[path], value) for path, value in entry["values"].items()},
            distributions={path: _distribution(by_path[path]) for path in entry["values"]},
            value=score if has_score else None,
            state=optuna.trial.TrialState[state],
        )


def _distribution(axis: SearchAxis) -> Any:
    import optuna

    if axis.choices:  # by number: Optuna keeps no mappings
        return optuna.distributions.CategoricalDistribution(tuple(range(len(axis.choices))))
    if axis.type == "int":
        return optuna.distributions.IntDistribution(round(axis.low), round(axis.high), log=axis.log)
    return optuna.distributions.FloatDistribution(float(axis.low), float(axis.high), log=axis.log)


def _inside(axis: SearchAxis, value: Any) -> Any:
    """A value as Optuna knows it."""
    if not axis.choices:
        return value
    return next(i for i, one in enumerate(axis.choices) if type(one) is type(value) and one == value)


def _suggest(trial: Any, axis: SearchAxis) -> Any:
    if axis.choices:
        return axis.choices[trial.suggest_categorical(axis.path, list(range(len(axis.choices))))]
    if axis.type == "int":
        return trial.suggest_int(axis.path, round(axis.low), round(axis.high), log=axis.log)
    value = trial.suggest_float(axis.path, float(axis.low), float(axis.high), log=axis.log)
    return rounded(axis, value)


def _draw_arm(space: Sequence[SearchAxis], rng: random.Random) -> dict[str, Any]:
    """An arm drawn evenly."""
    arm: dict[str, Any] = {}
    for axis in space:
        if not axis.applies(arm):
            continue
        if axis.choices:
            arm[axis.path] = rng.choice(axis.choices)
        elif axis.type == "int":
            arm[axis.path] = rng.randint(round(axis.low), round(axis.high))
        else:
            arm[axis.path] = rounded(axis, rng.uniform(axis.low, axis.high))
    return arm
