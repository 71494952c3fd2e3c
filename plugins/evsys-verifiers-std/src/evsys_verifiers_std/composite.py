"""The verifier `composite`: several verifiers of one answer, each with a weight, each logged under its name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys import option
from evsys.optional import declared

if TYPE_CHECKING:
    from evsys.types import NoScore, Rollout, Score, Usage

__all__ = ["Composite", "Part"]


@attrs.frozen(kw_only=True)
class Part:
    """One verifier of a composite."""

    verifier: str = option(..., "Name of the verifier.", min_len=1)
    params: Mapping[str, Any] = option(attrs.Factory(dict), "Its params.")
    weight: float = option(1.0, "Its share of the reward, relative to the others.", gt=0, le=1e9)
    expected: Any = option(None, "Expected value, instead of the task's.")
    expected_key: str | None = option(
        None, "If the task's `expected` is an object, the key of this part in it."
    )

    def of(self, expected: Any) -> Any:
        """The expected value of this part.

        Raises:
            ValueError: the task's `expected` has no such key.
        """
        if self.expected is not None:
            return self.expected
        if self.expected_key is None:
            return expected
        if not isinstance(expected, Mapping) or self.expected_key not in expected:
            raise ValueError(f"`expected` has no key {self.expected_key!r}")
        return expected[self.expected_key]


@attrs.frozen(kw_only=True)
class CompositeParams:
    """The parts."""

    parts: Mapping[str, Part] = option(
        ..., "Verifiers by the names under which their scores are logged.", min_len=1
    )

    def __attrs_post_init__(self) -> None:
        for name, part in self.parts.items():
            if part.expected is not None and part.expected_key is not None:
                raise ValueError(f"part {name!r} has `expected` and `expected_key`; keep one")


class Composite:
    """The weighted mean of the scores of its parts. If a part can't judge, neither can the whole.

    `reward_range` is that of the parts. Verifiers are those of the current registry when this one is made.
    """

    name: ClassVar[str] = "composite"
    reward_range: tuple[float, float] | None = (0.0, 1.0)
    conformance: ClassVar[Mapping[str, Any]] = {
        "params": {
            "parts": {
                "right": {"verifier": "contains", "weight": 0.8},
                "short": {"verifier": "format_only", "params": {"max_characters": 20}, "weight": 0.2},
            }
        }
    }
    Config = CompositeParams

    def __init__(self, *, parts: Mapping[str, Part]) -> None:
        from evsys import current_registry
        from evsys.types import VerifierSpec
        from evsys_runtime.evaluation.verify import bind_verifier
        from evsys_stats.ranges import hull

        registry = current_registry()
        self.parts = dict(parts)
        self._bound = {
            name: bind_verifier(
                VerifierSpec(name=part.verifier, params=part.params), registry, path=f"$.parts.{name}"
            )
            for name, part in parts.items()
        }
        self.uses = tuple(sorted({name for one in self._bound.values() for name in (one.name, *one.uses)}))
        said = (text for one in self._bound.values() for text in declared(one.call, "warnings", ()))
        self.warnings = tuple(dict.fromkeys(said))
        self.reward_range = hull(one.reward_range for one in self._bound.values())

    async def __call__(
        self, model_output: str, expected: Any, params: Mapping[str, Any], rollout: Rollout | None = None
    ) -> Score | NoScore:
        """Let every part judge, and join what they say.

        `expected` goes to every part that has none of its own. `params` are those that this was made from.
        """
        from evsys.types import NoScore, Rollout, Score
        from evsys_runtime.evaluation.verify import to_score

        seen = rollout or Rollout(task_id="", sample_index=0)
        seen = attrs.evolve(seen, output=model_output)
        components: dict[str, float] = {}
        metadata: dict[str, Any] = {}
        usage: Usage | None = None
        for name, part in self.parts.items():
            said = to_score(await self._bound[name].judge(part.of(expected), seen), part.verifier)
            if said.usage is not None:
                usage = said.usage if usage is None else usage + said.usage
            if isinstance(said, NoScore):
                return attrs.evolve(said, reason=f"part {name!r}: {said.reason}", usage=usage)
            components[name] = said.value
            components |= {f"{name}.{inner}": value for inner, value in said.components.items()}
            metadata |= {name: dict(said.metadata)} if said.metadata else {}
        return Score(value=self._mean(components), components=components, metadata=metadata, usage=usage)

    def _mean(self, components: Mapping[str, float]) -> float:
        weights = {name: part.weight for name, part in self.parts.items()}
        mean = math.fsum(weight * components[name] for name, weight in weights.items()) / math.fsum(
            weights.values()
        )
        scores = [components[name] for name in weights]
        return min(max(mean, min(scores)), max(scores))  # rounding leads out of the range of the parts

    async def oracle(self, expected: Any, params: Mapping[str, Any]) -> str | None:
        """A right answer: that of a part which all parts agree on, the heaviest first; None where there is none."""
        from evsys.types import Rollout, Score, reaches
        from evsys_runtime.evaluation.made_answers import oracle_of
        from evsys_runtime.evaluation.verify import to_score

        for name in sorted(self.parts, key=lambda name: -self.parts[name].weight):
            known = await oracle_of(self._bound[name], self.parts[name].of(expected))
            if known is None:
                continue
            rollout = Rollout(task_id="", sample_index=0, output=known.text)
            said = to_score(await self(known.text, expected, params, rollout), self.name)
            if isinstance(said, Score) and all(
                reaches(said.components[part], (one.reward_range or (0.0, 1.0))[1])
                for part, one in self._bound.items()
            ):
                return known.text
        return None

    def check(self, expected: Any) -> None:
        """Let each part refuse what it can't judge by.

        Raises:
            ValueError: says which part, and what is wrong.
        """
        for name, part in self.parts.items():
            try:
                self._bound[name].check(part.of(expected))
            except ValueError as exc:
                raise ValueError(f"part {name!r}: {exc}") from exc
