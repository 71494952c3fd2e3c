"""`evsys research`: research towards a goal, and what is on record of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evsys_runtime import echo, json_option, print_json
from evsys_runtime.command_records import project_folder

if TYPE_CHECKING:
    from evsys_autoresearch.result import ResearchResult
    from evsys_autoresearch.runner import Research

__all__ = ["research"]

_RECORDS = Path(".evsys") / "research"
NOT_IMPROVED, INVALID = 0, 1


class _Goals(click.Group):
    """A group in which the name of a file means `run FILE`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with `run` before anything that isn't a command."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["run", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_Goals)
def research() -> None:
    """Research towards a goal: `evsys research GOAL.yaml`.

    A researcher proposes experiments one after the other. The runner registers each hypothesis before it spends anything, refuses repeated
    arms and changes outside of the levers, confirms the winner with fresh seeds, and looks at the sealed test once.
    """


@research.command("run")
@click.argument("goal", type=click.Path(path_type=Path, readable=False))
@click.option("--detach", is_flag=True, help="Run in the background, and return once the research has begun.")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
@json_option
def run(goal: Path, *, detach: bool, quiet: bool, as_json: bool) -> int:
    """Run the research that GOAL describes.

    Exit codes: 0 done (also without an improvement), 1 the result is invalid, 2 the goal file is wrong, 130 interrupted. An
    interrupted or killed run continues with `evsys research resume`.
    """
    from evsys_autoresearch.runner import Research

    begun = Research.begin(goal, tell=_teller(quiet=quiet))
    if detach:
        return _detach(begun, as_json=as_json)
    return _carry_out(begun, as_json=as_json)


@research.command("resume")
@click.argument("name", required=False)
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
@json_option
def resume(name: str | None, *, quiet: bool, as_json: bool) -> int:
    """Continue the research run NAME.

    The default is the newest one. No finished stage is repeated.
    """
    from evsys_autoresearch.runner import Research

    return _carry_out(Research.resume(_folder(name), tell=_teller(quiet=quiet)), as_json=as_json)


@research.command("status")
@click.argument("name", required=False)
@json_option
def status(name: str | None, *, as_json: bool) -> None:
    """Show how far the research run NAME is (default: the newest)."""
    from evsys_autoresearch.journal import Journal

    folder = _folder(name)
    lines = Journal(folder / "journal.jsonl").lines
    rounds = [line["round"] for line in lines if line["event"] == "round.ended"]
    ended = next((line for line in lines if line["event"] == "research.finished"), None)
    scored = [each["score"] for each in rounds if each["score"] is not None]
    document: dict[str, Any] = {
        "research_id": folder.name,
        "state": "finished" if ended else "unfinished",
        "verdict": ended["verdict"] if ended else None,
        "rounds": len(rounds),
        "lost": sum(each["status"] == "lost" for each in rounds),
        "scores": scored,
        "last_event": lines[-1]["event"] if lines else None,
        "directory": str(folder),
    }
    if as_json:
        print_json(document)
        return
    echo(f"{folder.name}: {document['state']}{f', {ended["verdict"]}' if ended else ''}")
    echo(f"{len(rounds)} rounds, {document['lost']} lost; last event {document['last_event']}")


@research.command("report")
@click.argument("name", required=False)
@json_option
def report(name: str | None, *, as_json: bool) -> None:
    """Print the report of the run NAME (default: the newest)."""
    from evsys_record.files import read_json

    folder = _folder(name)
    if not (folder / "report.json").is_file():
        raise click.UsageError(
            f"{folder.name} hasn't ended; `evsys research resume {folder.name}` continues it"
        )
    if as_json:
        print_json(read_json(folder / "report.json"))
    else:
        echo((folder / "report.md").read_text(encoding="utf-8"), nl=False)


def _teller(*, quiet: bool) -> Any:
    return (lambda _: None) if quiet else (lambda line: echo(line, err=True))


def _folder(name: str | None) -> Path:
    """The folder of a research run."""
    records = project_folder() / _RECORDS
    found = sorted(path.parent for path in records.glob("*/goal.yaml"))
    if name is not None:
        found = [path for path in found if path.name.startswith(name)]
    if not found or (name is not None and len(found) > 1 and found[0].name != name):
        known = f"it may be {', '.join(path.name for path in found[:5])}" if found else f"none in {records}"
        raise click.UsageError(
            f"no research run is called {name!r}: {known}" if name else f"no research run in {records}"
        )
    return found[0] if name is not None else found[-1]


def _carry_out(research: Research, *, as_json: bool) -> int:
    """Run to the end and print the result."""
    from evsys_runtime.experiment.supervision.event_loop import run_to_end

    try:
        result: ResearchResult = run_to_end(
            research.arun, call="evsys research", instead="await Research(...).arun()"
        )
    except KeyboardInterrupt:
        echo(f"Interrupted. To continue: evsys research resume {research.research_id}", err=True)
        raise
    if as_json:
        from evsys_record import result_tree

        print_json(result_tree(result))
    else:
        from evsys_autoresearch.report import verdict_words

        echo(verdict_words(result))
        echo(f"report: {research.directory / 'report.html'}")
    return INVALID if result.verdict == "invalid" else NOT_IMPROVED


def _detach(research: Research, *, as_json: bool) -> int:
    """Continue the run in a session of its own; its output goes to the record."""
    with (research.directory / "output.log").open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "evsys_autoresearch.child", "resume", str(research.directory)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    process.returncode = 0  # it runs on: nothing here waits for it
    if as_json:
        print_json(
            {
                "event": "launch",
                "research_id": research.research_id,
                "pid": process.pid,
                "directory": str(research.directory),
            }
        )
    else:
        echo(research.research_id)
    return 0
