"""`evsys validate`: everything that can be known before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from evsys_runtime import echo, json_option, print_json

if TYPE_CHECKING:
    from evsys_runtime.config.plan import Plan
    from evsys_runtime.experiment.estimate.results import PlannedSearch

__all__ = ["validate"]


@click.command()
@click.argument("config", type=click.Path(path_type=Path, readable=False))
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a value of the file.")
@click.option(
    "--online",
    is_flag=True,
    help="Also ask the training servers whether they support the experiment; nothing is created there.",
)
@json_option
def validate(config: Path, *, overrides: tuple[str, ...], online: bool, as_json: bool) -> None:
    """Check CONFIG and every arm it expands to, and report every problem. Works offline by default; nothing is prepared or downloaded.

    Warns about arms similar to past ones that all failed, and about repeats of earlier experiments.
    """
    from evsys_runtime.config.validate import load_experiment
    from evsys_runtime.experiment.preflight.leak_warnings import quick_leak_warnings
    from evsys_runtime.experiment.state.plan_secrets import refuse_secrets

    plan = load_experiment(config, overrides=overrides)
    refuse_secrets(plan)
    if online:
        import asyncio

        from evsys_runtime.experiment.preflight.online import ask_backends

        asyncio.run(ask_backends(plan))
    warnings = [*plan.warnings, *quick_leak_warnings(plan), *_from_record(plan)]
    names = list(dict.fromkeys(arm.name for arm in plan.arms))
    search = None if plan.search is None else _search(plan)
    if as_json:
        from evsys_record import result_tree
        from evsys_runtime.experiment.command_results import Validated

        found = Validated(
            valid=True, arms=tuple(names), runs=len(plan.arms), search=search, warnings=tuple(warnings)
        )
        print_json(result_tree(found))
        return
    for warning in warnings:
        echo(f"warning: {warning}", err=True)
    if search is not None:
        from evsys_cli.plan_lines import search_words

        echo(f"{config}: valid; {search_words(search)}")
        return
    runs = len(plan.arms)
    echo(f"{config}: valid; {len(names)} arm{'s' * (len(names) != 1)}, {runs} run{'s' * (runs != 1)}")


def _search(plan: Plan) -> PlannedSearch | None:
    from evsys_runtime.experiment.estimate.search import planned_search

    return planned_search(plan)


def _from_record(plan: Plan) -> tuple[str, ...]:
    """Warnings from the record, and entries with the tasks of a final test."""
    from evsys_runtime.experiment.prior.final_tests import planned_tests

    experiments = plan.project_root / plan.experiment.output_dir
    if not experiments.is_dir():
        return tuple(planned_tests(plan, None))
    from evsys_cli.records import open_index
    from evsys_runtime.experiment.insight.failure_regions import failure_warnings
    from evsys_runtime.experiment.insight.repeats import repeats

    with open_index(experiments) as index:
        return (*failure_warnings(plan, index), *repeats(plan, index), *planned_tests(plan, index))
