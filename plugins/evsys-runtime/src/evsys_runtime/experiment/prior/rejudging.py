"""Stored answers judged again in a fresh process: a verifier that remembers what it was asked gives other rewards there.

Only verifiers that no distribution of evsys brings are tried: those judge by the rollout alone, as their tests show.
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import EvsysError, PluginError
from evsys.types import HarborTask, NoScore, Score, VerifierSpec
from evsys_record.jsonl import read_jsonl
from evsys_record.proofs import proof_name
from evsys_record.rollouts import rollout_from_tree
from evsys_record.text import list_names
from evsys_runtime.config.project import import_project_code, project_registry
from evsys_runtime.evaluation.verify import bind_verifier, make_verify

if TYPE_CHECKING:
    from evsys_runtime.experiment.state.session import Session

__all__ = ["Rejudged", "rejudge"]

MOST = 48
"""Answers judged again."""

SECONDS = 60.0
"""Longest time for all of them."""

_OURS = "evsys-verifiers-std"
"""The distribution with the verifiers of evsys. Others may have such names as well."""

_UNKNOWN = "unknown"


@attrs.frozen
class Rejudged:
    """How many answers were judged again, and how many of them got another reward, or none. `problem` is why there are others that
    were not.
    """

    judged: int = 0
    differing: int = 0
    problem: str | None = None


def rejudge(session: Session, benchmark: str) -> Rejudged | None:
    """Judge a sample of the answers of trained models to a benchmark again. Blocking.

    Args:
        session: whose experiment it is.
        benchmark: the entry that decides.

    Returns:
        None if there was nothing to judge: all verifiers are those of evsys, or no answer has a reward.
    """
    bound = next(one for one in session.benchmarks if one.name == benchmark)
    specs = {task.task_id: task.verifier for task in bound.tasks if task.verifier is not None}
    own = {spec.name: spec for spec in specs.values() if _is_own(session, spec.name)}
    paid = sorted(name for name, spec in own.items() if _is_paid(session, spec))
    problem = f"{list_names(paid)} costs money" if paid else None
    answers = list(_answers(session, benchmark, specs, own.keys() - set(paid)))
    step = max(1, math.ceil(len(answers) / MOST))
    chosen = answers[::step]
    if not chosen:
        return None if problem is None else Rejudged(problem=problem)
    asked = {"root": str(session.plan.project_root), "answers": [each[:4] for each in chosen]}
    try:
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name if __name__ == "__main__" else __name__],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        again = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, OSError, ValueError, IndexError) as error:
        return Rejudged(problem=str(error))
    known = [(each[4], new) for each, new in zip(chosen, again, strict=True) if new != _UNKNOWN]
    if len(known) < len(chosen):
        problem = "another process doesn't know the verifier"
    differing = sum(
        new is None or not math.isclose(old, new, rel_tol=1e-9, abs_tol=1e-9) for old, new in known
    )
    return Rejudged(len(known), differing, problem)


def _answers(
    session: Session, benchmark: str, specs: Mapping[str, VerifierSpec], names: Set[str]
) -> Iterator[tuple[str, Any, Any, Any, float]]:
    """Verifier, params, expectation, stored rollout and reward of answers that these verifiers judged."""
    for run in session.record.runs() if names else ():
        for phase in ("validation", "test"):
            for line in read_jsonl(run.directory / phase / "rollouts.jsonl", missing_ok=True):
                rollout, facts = line["rollout"], line.get("facts") or {}
                spec, value = specs.get(rollout["task_id"]), (rollout.get("score") or {}).get("value")
                fits = facts.get("benchmark") in (benchmark, proof_name(benchmark)) and not facts.get("model")
                if fits and spec is not None and value is not None and spec.name in names:
                    yield spec.name, spec.params, spec.expected, rollout, value


def _is_own(session: Session, name: str) -> bool:
    """Whether a verifier isn't one of evsys."""
    try:
        qualified = session.plan.registry.find("verifier", name).qualified
    except EvsysError:  # its tasks have no score, which is reported
        return False
    return qualified.partition("/")[0] != _OURS


def _is_paid(session: Session, spec: VerifierSpec) -> bool:
    registry = session.plan.registry
    try:
        return not bind_verifier(spec, registry).is_free(registry)
    except EvsysError:  # as above
        return False


def _judge(root: Path, answers: Sequence[Sequence[Any]]) -> list[float | str | None]:
    """The rewards of answers; None where there is none, `_UNKNOWN` where there is no such verifier."""
    registry = project_registry()
    import_project_code(root, registry)
    verify = make_verify(registry, timeout_seconds=SECONDS)

    async def judged(
        name: str, params: Mapping[str, Any], expected: Any, tree: Mapping[str, Any]
    ) -> float | str | None:
        try:
            registry.find("verifier", name)
        except PluginError:
            return _UNKNOWN
        spec = VerifierSpec(name=name, expected=expected, params=params)
        rollout = attrs.evolve(rollout_from_tree(tree), score=NoScore(reason="not scored"))
        task = HarborTask(task_id=rollout.task_id, instruction="again", verifier=spec)
        said = await verify(task, rollout)
        return said.value if isinstance(said, Score) else None

    async def all_of_them() -> list[float | str | None]:
        return [await judged(*each) for each in reversed(answers)][::-1]

    return asyncio.run(all_of_them())


if __name__ == "__main__":
    _request = json.load(sys.stdin)
    sys.stdout.write(json.dumps(_judge(Path(_request["root"]), _request["answers"])) + "\n")
