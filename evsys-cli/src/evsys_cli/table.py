"""The commands as data, so that `evsys --help` imports none of them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COMMANDS", "PLANNED", "CommandInfo"]


class CommandInfo(NamedTuple):
    """Where a command is and its one line of help.

    `distribution` names the package that brings it through the `evsys.commands` entry points; None is this one.
    """

    target: str
    help: str
    distribution: str | None = None


COMMANDS: dict[str, CommandInfo] = {
    "run": CommandInfo("evsys_cli.commands.run:run", "Validate, train, score and conclude an experiment."),
    "resume": CommandInfo(
        "evsys_cli.commands.resume:resume", "Go on with an experiment that isn't complete."
    ),
    "validate": CommandInfo(
        "evsys_cli.commands.validate:validate", "Find every problem of an experiment file, spending nothing."
    ),
    "plan": CommandInfo(
        "evsys_cli.commands.plan:plan", "Tell what an experiment takes and can detect, spending nothing."
    ),
    "eval": CommandInfo(
        "evsys_cli.commands.eval:evaluate", "Score a checkpoint or an API model without training."
    ),
    "benchmark": CommandInfo("evsys_cli.commands.eval:benchmark", "Score models on benchmarks."),
    "list": CommandInfo("evsys_cli.commands.list:list_plugins", "List the installed plugins."),
    "schema": CommandInfo(
        "evsys_cli.commands.schema:schema", "Print the JSON Schema of a plugin or of the experiment file."
    ),
    "data": CommandInfo(
        "evsys_cli.commands.data:data",
        "Look at training data as the model will see it, and for benchmark tasks in it.",
    ),
    "history": CommandInfo(
        "evsys_cli.commands.history:history", "List past experiments and what came of them."
    ),
    "show": CommandInfo("evsys_cli.commands.show:show", "Show a past experiment, or a run of it, in full."),
    "compare": CommandInfo(
        "evsys_cli.commands.compare:compare", "Set two past experiments, or two runs, side by side."
    ),
    "plot": CommandInfo(
        "plot", "Draw what an experiment measured: curves, effects, differences, cost.", "evsys-plots"
    ),
    "context": CommandInfo(
        "evsys_cli.commands.context:context", "Tell what is known from all experiments, in few tokens."
    ),
    "why": CommandInfo(
        "evsys_cli.commands.why:why", "Tell why an experiment, or an arm of it, ended as it did."
    ),
    "next": CommandInfo("evsys_cli.commands.next:next_steps", "Tell what is cheapest to learn next."),
    "audit": CommandInfo(
        "evsys_cli.commands.audit:audit",
        "Recompute a conclusion from its record, and report what differs.",
    ),
    "retract": CommandInfo(
        "evsys_cli.commands.retract:retract",
        "Take back what an experiment concluded, and mark what rests on it.",
    ),
    "reindex": CommandInfo(
        "evsys_cli.commands.reindex:reindex", "Make the index of past experiments again from their files."
    ),
    "cache": CommandInfo(
        "evsys_cli.commands.cache:cache", "Explain what came from the cache of results, and empty it."
    ),
    "models": CommandInfo("models", "List, fetch, check and export base models.", "evsys-backend-local"),
    "backend": CommandInfo(
        "backend", "Try what a server does with a small training.", "evsys-backend-tinker"
    ),
    "serve": CommandInfo(
        "serve", "Serve models to clients of the Tinker protocol and of OpenAI's.", "evsys-server"
    ),
    "init-project": CommandInfo(
        "evsys_cli.commands.init_project:init_project", "Write a new project whose first run works."
    ),
    "new-experiment": CommandInfo(
        "evsys_cli.commands.new_experiment:new_experiment", "Write a new experiment in this project."
    ),
    "new-plugin": CommandInfo(
        "evsys_cli.commands.new_plugin:new_plugin", "Write a package with a plugin that works."
    ),
    "conformance": CommandInfo(
        "conformance", "Check a plugin against its kind's contract.", "evsys-conformance"
    ),
    "completion": CommandInfo(
        "evsys_cli.commands.completion:completion", "Print the completion script of a shell."
    ),
}

PLANNED = frozenset(
    {
        "benchmark upload",
        "dashboard",
        "deploy",
    }
)
"""Commands and options of later versions: known, so that asking for one gets a straight answer."""
