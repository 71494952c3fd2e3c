"""A web page about the experiments of a project: verdicts, scores and loss curves, rewritten while one of them runs.

    python dashboard.py PROJECT --out dashboard.html --watch

Needs `evsys-record` alone. Stop it with Ctrl-C.
"""

import argparse
from collections.abc import Iterator
from html import escape
from pathlib import Path

import evsys_record

STYLE = "body{font:16px sans-serif;max-width:60em;margin:auto} td,th{text-align:left;padding:.3em 1em} svg{background:#eee}"
WIDTH, HEIGHT = 480, 120


def page(experiments: evsys_record.Experiments) -> str:
    """The whole page, from the record as it is now."""
    sections = "\n".join(section(experiment) for experiment in experiments)
    return f"<!doctype html><meta charset=utf-8><title>evsys</title><style>{STYLE}</style>\n{sections}\n"


def section(experiment: evsys_record.Experiment) -> str:
    """One experiment: its verdict, a row for each run, and the loss of all runs."""
    runs = experiment.runs()
    rows = "".join(row(run) for run in runs)
    return (
        f"<h2>{escape(experiment.id)}</h2><p>{escape(experiment.status)}, verdict {escape(experiment.verdict)}</p>"
        f"<table><tr><th>run<th>status<th>step<th>scores</tr>{rows}</table>{curves(runs)}"
    )


def row(run: evsys_record.Run) -> str:
    """A run's newest step and, of each benchmark entry, its newest mean reward."""
    status = "running" if run.result is None else run.result.status
    step = max((step for step, _ in run.metrics()), default=0)
    scores = {}
    for evaluation in run.evaluations():
        reward = evaluation.metrics.get("mean_reward")
        if reward is not None and reward.value is not None:
            scores[evaluation.benchmark] = f"{evaluation.benchmark} {reward.value:.3f}"
    cells = (run.id, status, str(step), ", ".join(scores.values()))
    return "<tr>" + "".join(f"<td>{escape(cell)}" for cell in cells) + "</tr>"


def curves(runs: list[evsys_record.Run]) -> str:
    """The training loss of the runs as one drawing; a value that was not finite is left out."""
    losses = [list(points(run)) for run in runs]
    drawn = [point for loss in losses for point in loss]
    if not drawn:
        return ""
    last = max(step for step, _ in drawn)
    low, high = min(value for _, value in drawn), max(value for _, value in drawn)
    lines = ""
    for loss in losses:
        places = " ".join(
            f"{WIDTH * step / last:.1f},{HEIGHT * (high - value) / ((high - low) or 1):.1f}"
            for step, value in loss
        )
        lines += f'<polyline points="{places}" fill="none" stroke="#0072b2"/>'
    return f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="-5 -5 {WIDTH + 10} {HEIGHT + 10}">{lines}</svg>'


def points(run: evsys_record.Run) -> Iterator[tuple[int, float]]:
    """The loss of each step."""
    for step, values in run.metrics("training"):
        loss = values.get("loss")
        if loss is not None:
            yield step, loss


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write a web page about the experiments of a project.")
    parser.add_argument("project", nargs="?", default=".")
    parser.add_argument("--out", type=Path, default=Path("dashboard.html"))
    parser.add_argument(
        "--watch", action="store_true", help="rewrite it until the newest experiment has ended"
    )
    options = parser.parse_args(arguments)
    experiments = evsys_record.open(options.project)
    options.out.write_text(page(experiments), encoding="utf-8")
    newest = next(experiments.experiments(), None)
    if options.watch and newest is not None:
        for _ in newest.follow(from_start=False):
            options.out.write_text(page(experiments), encoding="utf-8")
        options.out.write_text(page(experiments), encoding="utf-8")


if __name__ == "__main__":
    main()
