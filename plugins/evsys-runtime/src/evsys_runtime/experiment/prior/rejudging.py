"""Stored answers judged again in a fresh process: a verifier that remembers what it was asked gives other rewards there.

Only verifiers that no distribution of evsys brings are tried: those judge by the answer alone, as their tests show.
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import EvsysError
from evsys.types import HarborTask, Score, VerifierSpec
from evsys_record.jsonl import read_jsonl
from evsys_record.proofs import proof_name
from evsys_runtime.config.project import import_project_code, project_registry
from evsys_runtime.evaluation.made_answers import made_rollout
from evsys_runtime.evaluation.verify import bind_verifier, make_verify

if TYPE_CHECKING:
    from evsys_runtime.experiment.state.session import Session

__all__ = ["Rejudged", "rejudge"]

MOST = 48
"""Answers judged again."""

SECONDS = 60.0
"""Longest time for all of them."""


@attrs.frozen
class Rejudged:
    """How many answers were judged again, and how many of them got another reward."""

    judged: int
    differing: int


def rejudge(session: Session, benchmark: str) -> Rejudged | None:
    """Judge a sample of the answers of trained models to a benchmark again. Blocking.

    Args:
        session: whose experiment it is.
        benchmark: the entry that decides.

    Returns:
        None where nothing could be judged: standard verifiers, verifiers that cost money or want more than an answer, and those that only
        this process knows.
    """
    answers = list(_answers(session, benchmark))
    step = max(1, math.ceil(len(answers) / MOST))
    chosen = answers[::step]
    if not chosen:
        return None
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
        session.warnings.append(f"answers to {benchmark} can't be judged again in a fresh process: {error}")
        return None
    pairs = [(each[4], new) for each, new in zip(chosen, again, strict=True) if new is not None]
    differing = sum(not math.isclose(old, new, rel_tol=1e-9, abs_tol=1e-9) for old, new in pairs)
    return Rejudged(len(pairs), differing) if pairs else None


def _answers(session: Session, benchmark: str) -> Iterator[tuple[str, Any, Any, str, float]]:
    """Verifier, params, expectation, answer and reward of stored rollouts."""
    bound = next(one for one in session.benchmarks if one.name == benchmark)
    specs = {task.task_id: task.verifier for task in bound.tasks if task.verifier is not None}
    names = {spec.name for spec in specs.values()}
    usable = {name for name in names if _is_usable(session, specs.values(), name)}
    for run in session.record.runs() if usable else ():
        for phase in ("validation", "test"):
            for line in read_jsonl(run.directory / phase / "rollouts.jsonl", missing_ok=True):
                rollout, facts = line["rollout"], line.get("facts") or {}
                spec, value = specs.get(rollout["task_id"]), (rollout.get("score") or {}).get("value")
                fits = facts.get("benchmark") in (benchmark, proof_name(benchmark)) and not facts.get("model")
                if fits and spec is not None and value is not None and spec.name in usable:
                    yield spec.name, spec.params, spec.expected, rollout["output"], value


def _is_usable(session: Session, specs: Any, name: str) -> bool:
    registry = session.plan.registry
    try:
        if registry.find("verifier", name).qualified.startswith("evsys-"):
            return False
        spec = next(each for each in specs if each.name == name)
        verifier = bind_verifier(spec, registry)
    except EvsysError:  # its tasks have no score, which is reported
        return False
    return verifier.is_free(registry) and not verifier.wants_rollout


def _judge(root: Path, answers: Sequence[Sequence[Any]]) -> list[float | None]:
    """The rewards of answers; None where there is none."""
    registry = project_registry()
    import_project_code(root, registry)
    verify = make_verify(registry, timeout_seconds=SECONDS)

    async def judged(name: str, params: Mapping[str, Any], expected: Any, answer: str) -> float | None:
        spec = VerifierSpec(name=name, expected=expected, params=params)
        task = HarborTask(task_id="again", instruction="again", verifier=spec)
        said = await verify(task, made_rollout(task, answer))
        return said.value if isinstance(said, Score) else None

    async def all_of_them() -> list[float | None]:
        return [await judged(*each) for each in reversed(answers)][::-1]

    return asyncio.run(all_of_them())


if __name__ == "__main__":
    _request = json.load(sys.stdin)
    sys.stdout.write(json.dumps(_judge(Path(_request["root"]), _request["answers"])) + "\n")
