"""Find a run on record that can replace an arm, and say why similar runs can't."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from evsys.errors import ConfigError, StoreError
from evsys.types import ArmResult, ReusedRun
from evsys_record.evidence_hashes import hashes_of_run
from evsys_record.history import past_experiment
from evsys_record.index import Index
from evsys_record.marks import DISQUALIFYING, marks_of
from evsys_record.result_files import read_run_result
from evsys_record.result_trees import read_as
from evsys_runtime.audit.auditing import audit_experiment
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.experiment.lineage.runs import EarlierRun, runs_known_as
from evsys_runtime.experiment.reuse.made_with import MADE_WITH

__all__ = ["FoundRun", "WantedRun", "find_run"]

_HARMLESS = frozenset({"simulated"})
"""Marks that disqualify an experiment and not its runs: the identity has the backend, so only simulated runs reuse simulated runs."""


@attrs.frozen(kw_only=True)
class WantedRun:
    """A run of this experiment that hasn't been made. `made_with` has the hashes of that function, `benchmarks` its entries;
    `untrained` says whether its starting weights are scored as well.
    """

    run_id: str
    identity: str
    made_with: Mapping[str, str]
    benchmarks: Sequence[BoundBenchmark]
    untrained: bool


@attrs.frozen(kw_only=True)
class FoundRun:
    """A run on record with its result and its run.json."""

    source: ReusedRun
    result: ArmResult
    facts: Mapping[str, object]


def find_run(
    index: Index, own: str | None, wanted: WantedRun, audited: dict[str, int], tell: Callable[[str], None]
) -> FoundRun | None:
    """Find the newest reliable run on record that is the same as the wanted one; None without any. Blocking.

    Args:
        index: of the experiments on record, as of now.
        own: the experiment that asks; None for one that isn't on record.
        wanted: what is looked for.
        audited: the number of differing checks of each audited experiment; audits made here are added.
        tell: receives a line for each run with this identity if none of them can be reused.

    Raises:
        StoreError: the index can't be read.
    """
    refused = []
    for earlier in runs_known_as(index, wanted.identity, own):
        try:
            found = _read(earlier)
            why = _refusal(index, earlier, found, wanted, audited)
        except (StoreError, ConfigError) as error:
            why = f"its record can't be read: {error}"
        if why is None:
            return found
        where = f"{earlier.experiment_id} {earlier.run_id}"
        refused.append(f"{wanted.run_id} is run again, although {where} is the same run: {why}")
    for text in refused:
        tell(text)
    return None


def _read(earlier: EarlierRun) -> FoundRun:
    facts, result = earlier.facts(), read_as(ArmResult, read_run_result(earlier.directory))
    root = earlier.directory.parent.parent
    source = ReusedRun(
        experiment_id=earlier.experiment_id,
        run_id=earlier.run_id,
        folder=earlier.directory.name,
        hashes=hashes_of_run(root, earlier.directory.name),
    )
    return FoundRun(source=source, result=result, facts=facts)


def _refusal(
    index: Index, earlier: EarlierRun, found: FoundRun, wanted: WantedRun, audited: dict[str, int]
) -> str | None:
    """Why a run with the wanted identity can't be reused; None if it can. The audit is the slowest check, so it comes last."""
    name = earlier.experiment_id
    why = _unreliable(index, name) or _differing(found, wanted) or _incomplete(found.result, wanted)
    if why is not None:
        return why
    if name not in audited:
        audited[name] = audit_experiment(index.experiments / name).differs
    differ = audited[name]
    times = "1 difference" if differ == 1 else f"{differ} differences"
    return f"the audit of that experiment finds {times} (evsys audit {name})" if differ else None


def _unreliable(index: Index, experiment_id: str) -> str | None:
    """Why no run of an experiment can be reused."""
    past = past_experiment(index, experiment_id)
    if past is None or past.finished is None:
        return "that experiment isn't concluded"
    if past.verdict == "INVALID":
        return f"that experiment is INVALID: {past.reason}"
    bad = DISQUALIFYING - _HARMLESS
    return next((mark.says for mark in marks_of(past) if mark.kind in bad), None)


def _differing(found: FoundRun, wanted: WantedRun) -> str | None:
    """The differences between two runs with the same identity."""
    known = found.facts.get(MADE_WITH)
    if not isinstance(known, Mapping):
        return "its version of evsys didn't record how runs are scored"
    odd = [what for what, value in wanted.made_with.items() if known.get(what) != value]
    if odd:
        return f"its {' and its '.join(odd)} differ"
    hashes = {bound.name: (bound.benchmark_hash, bound.verifier_hash) for bound in wanted.benchmarks}
    changed = {
        scored.benchmark
        for scored in found.result.evaluations
        if (scored.benchmark_hash, scored.verifier_hash) != hashes.get(scored.benchmark)
    }
    return f"its scores on {', '.join(sorted(changed))} are of other tasks or verifiers" if changed else None


def _incomplete(result: ArmResult, wanted: WantedRun) -> str | None:
    """Why a result isn't complete."""
    if result.reused is not None:
        return f"it was reused itself, from {result.reused.experiment_id}"
    if result.status != "completed" or result.run is None or result.failure is not None:
        return f"it is {result.status}"
    if result.run.stop_reason is not None:
        return f"it was ended early: {result.run.stop_reason}"
    own = [scored for scored in result.evaluations if scored.model is None]
    if not all(scored.fully_scored for scored in own):
        return "samples of it have no score"
    there = {(scored.benchmark, scored.step > 0) for scored in own}
    lacking = [bound.name for bound in wanted.benchmarks if (bound.name, True) not in there]
    if wanted.untrained:
        lacking += [
            f"{bound.name} before training" for bound in wanted.benchmarks if (bound.name, False) not in there
        ]
    return f"it has no score on {', '.join(lacking)}" if lacking else None
