"""`evsys gate`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evsys_runtime import echo, json_option, print_json

if TYPE_CHECKING:
    from evsys_deployers.gate.record import GateRecord

__all__ = ["EXIT_CODES", "checkpoint_called", "gate"]

EXIT_CODES = {"PROMOTE": 0, "HOLD": 10, "REJECT": 11}


@click.command()
@click.argument("candidate")
@click.option(
    "--against",
    "incumbent",
    required=True,
    metavar="INCUMBENT",
    help="The deployed model: EXPERIMENT/RUN, the folder of a checkpoint, or `base` for the candidate's base model.",
)
@click.option(
    "--suite",
    "suite_file",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The suite file.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no log lines.")
@json_option
def gate(*, candidate: str, incumbent: str, suite_file: Path, quiet: bool, as_json: bool) -> int:
    """Decide whether CANDIDATE may take the place of the deployed model.

    CANDIDATE is EXPERIMENT/RUN (its selected or last checkpoint) or the folder of a checkpoint. Both models are scored on the
    suite's benchmarks. The exit code is 0 for PROMOTE, 10 for HOLD and 11 for REJECT; the record is in `.evsys/gates/`.
    """
    from evsys_runtime.blas_kernel import use_kernel

    use_kernel()  # before anything imports numpy
    from evsys import use_registry
    from evsys_deployers.gate.record import write_gate
    from evsys_deployers.gate.scoring import BASE, incumbent_of, score_both
    from evsys_deployers.gate.suite import load_suite
    from evsys_runtime.config.project import import_project_code, project_registry
    from evsys_runtime.data.scope import DataScope, use_scope
    from evsys_runtime.experiment.evaluated_models import find_saved_model
    from evsys_runtime.experiment.supervision.event_loop import run_to_end

    suite = load_suite(suite_file)
    registry = project_registry()
    import_project_code(suite.project_root, registry)
    with use_registry(registry), use_scope(DataScope(project_root=suite.project_root)):
        saved = find_saved_model(checkpoint_called(candidate))
        other = incumbent_of(None if incumbent == BASE else checkpoint_called(incumbent), saved)
        work = partial(score_both, suite, saved, other, registry=registry, quiet=quiet)
        scores = run_to_end(work, call="evsys gate", instead="await score_both(...)")
        record, path = write_gate(suite, scores)
    if as_json:
        import attrs

        from evsys_record.encoding import as_tree

        print_json({"record": str(path), **as_tree(attrs.asdict(record))})
    else:
        for line in _lines(record, path):
            echo(line)
    return EXIT_CODES[record.decision.verdict]


def checkpoint_called(text: str) -> Path:
    """The folder of a checkpoint, or of the one that counts of EXPERIMENT/RUN."""
    from evsys.errors import ConfigError
    from evsys_record.run_checkpoint import checkpoint_named
    from evsys_runtime import records_folder

    found = checkpoint_named(text, records_folder(None)) or Path(text)
    if not found.is_dir():
        raise ConfigError(f"{text!r} is not a run or the folder of a checkpoint", hint="see `evsys history`")
    return found.resolve()


def _lines(record: GateRecord, path: Path) -> Iterator[str]:
    decision, target = record.decision, record.entries[0]
    yield f"{decision.verdict}: {decision.why}"
    marks = {"supported": "ok", "undecided": "??", "refuted": "NO"}
    for test in decision.tests:
        yield f"  {marks[test.outcome]}  {test.name}: {test.says}"
    for each in decision.untested:
        yield f"  --  {each}"
    flips = ", ".join(f"{len(tasks)} {name}" for name, tasks in target.flips.items())
    count = len(target.candidate.values)
    yield f"  {target.benchmark}: {flips}, {len(target.changed)} of {count} answers changed"
    if record.look["number"] > 1:
        yield f"  look {record.look['number']} at {target.benchmark} with this incumbent: level {record.look['level']:.3g}"
    yield f"record: {path}"
