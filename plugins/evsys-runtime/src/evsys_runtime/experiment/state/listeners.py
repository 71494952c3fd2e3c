"""Who listens to an experiment and its runs: the plugins of its environment, the callbacks of its file, its log store."""

from __future__ import annotations

from collections.abc import Callable

from evsys import HookManager, Registry
from evsys.errors import PluginError
from evsys.protocols import Log
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.experiment.state.events import EventWriter
from evsys_runtime.experiment.state.log_store import LogStoreListener
from evsys_runtime.experiment.state.session import Session

__all__ = ["TOLD_BY_PROGRESS", "ambient_listeners", "display_listeners", "run_listeners", "shows_progress"]

PROGRESS = "print_progress"
"""The callback that shows how a run goes; it is there unless `quiet` says otherwise."""

TOLD_BY_PROGRESS = frozenset(
    {
        "run.failed",
        "evaluation.failed",
        "evaluation.invalid",
        "evaluation.missing",
        "evaluation.metric_failed",
    }
)
"""Events of the log that the progress display shows, so that the log's console doesn't repeat them."""

HOOK_SECONDS = 300.0
"""How long a listener may take each time; `watchdog.floor_seconds` where that is less."""


def run_listeners(session: Session, log: Log, hung: Callable[[str], None] | None = None) -> HookManager:
    """The listeners of an experiment or a run: the ambient plugins, and new instances of the file's callbacks, so
    runs share no callback state.

    `log` gets those that fail, `hung` those that don't return.
    """
    seconds = min(HOOK_SECONDS, session.plan.experiment.watchdog.floor_seconds)
    manager = session.ambient.child(log=log, seconds=seconds, hung=hung)
    manager.register(EventWriter(session.record.events), "events")
    manager.register(session.progress, "progress")
    shown = False
    for spec in session.plan.experiment.callbacks:
        if spec.kind.rpartition("/")[2] == PROGRESS:
            shown = True
            if session.options.quiet:
                continue
        manager.register(session.plan.registry.build("callback", spec.kind, resolve(spec.params)), spec.kind)
    if session.log_store is not None:
        redactor = session.log_settings.redactor
        manager.register(
            LogStoreListener(session.log_store, session.record.experiment_id, redactor), "log_store"
        )
    if shows_progress(session.plan.registry) and not (shown or session.options.quiet):
        manager.register(session.plan.registry.build("callback", PROGRESS), PROGRESS)
    return manager


def display_listeners(session: Session) -> HookManager:
    """The listeners that show how a run goes which trains in another process, where its other listeners are."""
    manager = HookManager(log=session.log)
    manager.register(session.progress, "progress")
    specs = [s for s in session.plan.experiment.callbacks if s.kind.rpartition("/")[2] == PROGRESS]
    if shows_progress(session.plan.registry) and not session.options.quiet:
        params = resolve(specs[0].params) if specs else {}
        manager.register(session.plan.registry.build("callback", PROGRESS, params), PROGRESS)
    return manager


def shows_progress(registry: Registry) -> bool:
    """Whether the callback that shows how a run goes is installed."""
    return any(entry.name == PROGRESS for entry in registry.entries("callback"))


def ambient_listeners(registry: Registry) -> tuple[HookManager, list[str]]:
    """The listeners that installed plugins bring, and a warning for each broken one: no experiment asked for it."""
    hooks, broken = HookManager(), []
    for entry in registry.entries("plugin"):
        try:
            hooks.register(registry.get("plugin", entry.qualified), entry.qualified)
        except PluginError as exc:
            broken.append(f"a listener was left out: {exc.message}")
    return hooks, broken
