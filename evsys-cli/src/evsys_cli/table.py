"""The commands as data, so that `evsys --help` imports none of them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COMMANDS", "GROUPS", "SUBCOMMANDS", "CommandInfo"]


class CommandInfo(NamedTuple):
    """The import path of a command and its line of help.

    `distribution` names the package that provides it through the `evsys.commands` entry points; None is this one.
    """

    target: str
    help: str
    distribution: str | None = None


GROUPS: dict[str, dict[str, CommandInfo]] = {
    "Run": {
        "init-project": CommandInfo(
            "evsys_cli.commands.init_project:init_project",
            "Create a project with a first experiment that runs.",
        ),
        "new-experiment": CommandInfo(
            "evsys_cli.commands.new_experiment:new_experiment", "Create an experiment in this project."
        ),
        "run": CommandInfo(
            "evsys_cli.commands.run:run", "Validate, train, evaluate and conclude an experiment."
        ),
        "resume": CommandInfo("evsys_cli.commands.resume:resume", "Resume an incomplete experiment."),
        "status": CommandInfo("evsys_cli.commands.status:status", "Show how far an experiment is."),
        "watch": CommandInfo("evsys_cli.commands.watch:watch", "Follow a running experiment."),
        "wait": CommandInfo(
            "evsys_cli.commands.wait:wait", "Wait for an experiment to end, or for an event."
        ),
        "eval": CommandInfo(
            "evsys_cli.commands.eval:evaluate", "Evaluate a checkpoint or an API model, without training."
        ),
        "benchmark": CommandInfo("evsys_cli.commands.eval:benchmark", "Evaluate models on benchmarks."),
    },
    "Control": {
        "pause": CommandInfo(
            "evsys_cli.commands.control:pause", "Hold a running experiment, or one arm, after its step."
        ),
        "unpause": CommandInfo("evsys_cli.commands.control:unpause", "Continue what was paused."),
        "stop": CommandInfo(
            "evsys_cli.commands.control:stop", "End an experiment, or one arm, early, and conclude."
        ),
        "extend": CommandInfo(
            "evsys_cli.commands.control:extend", "Raise the budget of a running experiment."
        ),
        "set": CommandInfo(
            "evsys_cli.commands.control:set_value", "Change a setting of a running experiment."
        ),
    },
    "Plan": {
        "validate": CommandInfo(
            "evsys_cli.commands.validate:validate",
            "Check an experiment file, and report every problem at once.",
        ),
        "plan": CommandInfo(
            "evsys_cli.commands.plan:plan",
            "Estimate an experiment's cost and statistical power, without running it.",
        ),
        "data": CommandInfo(
            "evsys_cli.commands.data:data",
            "Preview training data, and check it for benchmark tasks.",
        ),
        "research": CommandInfo(
            "research", "Research towards a goal: propose, run and score experiments.", "evsys-autoresearch"
        ),
        "next": CommandInfo("evsys_cli.commands.next:next_steps", "Suggest the cheapest next experiments."),
        "context": CommandInfo(
            "evsys_cli.commands.context:context", "Summarise past experiments for an agent's context."
        ),
    },
    "Inspect": {
        "history": CommandInfo(
            "evsys_cli.commands.history:history", "List past experiments and their outcomes."
        ),
        "show": CommandInfo("evsys_cli.commands.show:show", "Show one experiment, or one run, in full."),
        "why": CommandInfo(
            "evsys_cli.commands.why:explain_outcome", "Explain how an experiment, or one of its arms, ended."
        ),
        "compare": CommandInfo(
            "evsys_cli.commands.compare:compare", "Compare two experiments, or two runs, side by side."
        ),
        "plot": CommandInfo(
            "plot", "Plot an experiment's curves, effects, differences and cost.", "evsys-plots"
        ),
        "audit": CommandInfo(
            "evsys_cli.commands.audit:audit",
            "Recompute a conclusion from its record, and report differences.",
        ),
        "retract": CommandInfo(
            "evsys_cli.commands.retract:retract",
            "Retract a conclusion, and mark the experiments that rest on it.",
        ),
        "cache": CommandInfo("evsys_cli.commands.cache:cache", "Inspect, explain or clear the result cache."),
        "reindex": CommandInfo(
            "evsys_cli.commands.reindex:reindex", "Rebuild the index of past experiments from their files."
        ),
    },
    "Extend": {
        "list": CommandInfo("evsys_cli.commands.list:list_plugins", "List the installed plugins."),
        "schema": CommandInfo(
            "evsys_cli.commands.schema:schema", "Print the JSON Schema of a plugin or of the experiment file."
        ),
        "new-plugin": CommandInfo(
            "evsys_cli.commands.new_plugin:new_plugin", "Create a package with a working plugin."
        ),
        "conformance": CommandInfo(
            "conformance", "Check a plugin against its kind's contract.", "evsys-conformance"
        ),
        "completion": CommandInfo(
            "evsys_cli.commands.completion:completion", "Print the completion script for a shell."
        ),
    },
    "Serve": {
        "agent": CommandInfo("agent", "Give coding agents skills, gates and the record.", "evsys-agents"),
        "dashboard": CommandInfo(
            "dashboard", "Show experiments in the browser, or host a team's.", "evsys-dashboard"
        ),
        "dataset": CommandInfo(
            "dataset", "Upload, list, show and pull a team's datasets.", "evsys-dashboard"
        ),
        "report": CommandInfo("report", "Write an experiment's pages as one HTML file.", "evsys-dashboard"),
        "sync": CommandInfo("sync", "Send records to a team's server.", "evsys-dashboard"),
        "serve": CommandInfo("serve", "Serve models over the Tinker and OpenAI protocols.", "evsys-server"),
        "mcp": CommandInfo("mcp", "Serve this project's experiments to agents.", "evsys-mcp"),
        "models": CommandInfo("models", "List, fetch, check and export base models.", "evsys-backend-local"),
        "backend": CommandInfo("backend", "Test a training server with a small run.", "evsys-backend-tinker"),
    },
    "Deploy": {
        "deploy": CommandInfo("deploy", "Deploy a checkpoint that the gate promoted.", "evsys-deployers"),
        "deployments": CommandInfo("deployments", "List deployments and rollbacks.", "evsys-deployers"),
        "rollback": CommandInfo("rollback", "Put the model before back into use.", "evsys-deployers"),
        "gate": CommandInfo(
            "gate", "Decide whether a model may replace the deployed one.", "evsys-deployers"
        ),
        "traces": CommandInfo(
            "traces", "Turn logs of deployed models into rows, and rollouts into spans.", "evsys-traces"
        ),
        "trigger": CommandInfo(
            "trigger", "Decide from traces when a deployed model needs new training.", "evsys-traces"
        ),
    },
}
"""By the heading of `evsys --help`, the commands below it."""

COMMANDS: dict[str, CommandInfo] = {
    name: info for commands in GROUPS.values() for name, info in commands.items()
}

SUBCOMMANDS: dict[str, tuple[str, ...]] = {"benchmark": ("upload", "list", "versions", "show", "pull")}
"""By group, commands that another distribution brings as `GROUP.NAME`."""
