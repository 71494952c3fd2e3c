"""`evsys`: the root command, and the one place that turns an error into a message and an exit code."""

from __future__ import annotations

import io
import os
import sys

import click

from evsys_cli.lazy import LazyGroup

__all__ = ["cli", "main"]

INTERRUPTED = 130
NO_PROJECT = "EVSYS_NO_PROJECT"

IN_LINES = ("run", "resume")
"""Commands that with `--json` print a line at the launch and a line at the end."""


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"evsys {version('evsys-cli')}")
    ctx.exit()


def _leave_project_out(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing and not os.environ.get(NO_PROJECT):
        os.environ[NO_PROJECT] = "1"  # for processes that this one starts as well
        ctx.call_on_close(lambda: os.environ.pop(NO_PROJECT, None))


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
@click.option(
    "--no-project",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_leave_project_out,
    help="Don't import code from the project's src/; for untrusted folders.",
)
def cli() -> None:
    """Run LLM training experiments: one YAML file in, an honest conclusion out.

    Start with `evsys init-project NAME`, or run an experiment with `evsys run CONFIG`.
    """


def main(args: list[str] | None = None) -> None:
    """Run the command line and end the process with the exit code of its outcome."""
    _take_every_character()
    try:
        _main(sys.argv[1:] if args is None else args)
    except SystemExit as exc:
        _let_go_of_what_nobody_reads()
        _leave_what_does_not_end(exc.code)
        raise
    finally:
        _let_go_of_what_nobody_reads()


def _main(arguments: list[str]) -> None:
    try:
        code = cli.main(args=arguments, prog_name="evsys", standalone_mode=False)
    except click.exceptions.Exit as exc:
        sys.exit(exc.exit_code)
    except click.ClickException as exc:
        from evsys_cli.output import telling

        with telling():
            exc.show()
        _explain(arguments, type(exc).__name__, exc.format_message(), exc.exit_code)
        sys.exit(exc.exit_code)
    except (click.Abort, KeyboardInterrupt):
        from evsys_cli.output import telling

        with telling():
            click.echo("Interrupted.", err=True)
        _explain(arguments, "Interrupted", "interrupted", INTERRUPTED)
        sys.exit(INTERRUPTED)
    except SystemExit as exc:
        if _is_clicks(exc):
            raise
        sys.exit(_report(exc, arguments))
    except Exception as exc:  # the edge of the process: every error becomes a message and a code
        sys.exit(_report(exc, arguments))
    sys.exit(code if isinstance(code, int) else 0)


def _report(exc: BaseException, arguments: list[str]) -> int:
    from evsys_cli.errors import report

    return report(
        exc, as_json="--json" in arguments, in_lines=_in_lines(arguments), full="--full" in arguments
    )


def _in_lines(arguments: list[str]) -> bool:
    """True for a command that prints lines of JSON instead of a document."""
    return next((word for word in arguments if not word.startswith("-")), None) in IN_LINES


def _is_clicks(exc: SystemExit) -> bool:
    """True if click ended a completion, or a command whose reader has gone (`evsys list | head`)."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("click.")


def _take_every_character() -> None:
    """Show characters that the terminal's encoding lacks as escapes; by default Python would end the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _let_go_of_what_nobody_reads() -> None:
    """Flush now: Python flushes its streams at exit, and if that fails the exit code would be 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _leave_what_does_not_end(code: object) -> None:
    """End the process if Python would wait for threads that cannot be stopped; all output has been written."""
    calls = sys.modules.get("evsys_runtime.experiment.supervision.event_loop")  # else nothing ran
    if calls is not None and calls.keeps_process_alive():
        os._exit(code if isinstance(code, int) else int(code is not None))


def _explain(arguments: list[str], kind: str, message: str, code: int) -> None:
    """With `--json`, print a document instead of a result, for endings that are not errors of evsys."""
    if "--json" in arguments:
        from evsys_cli.output import telling
        from evsys_runtime import print_json

        facts: dict[str, object] = {
            "type": kind,
            "message": message,
            "hint": None,
            "exit_code": code,
            "problems": [],
        }
        with telling():
            if _in_lines(arguments):
                from evsys_cli.json_lines import print_failed

                print_failed(facts, full="--full" in arguments)
            else:
                print_json({"error": facts})


if __name__ == "__main__":
    main()
