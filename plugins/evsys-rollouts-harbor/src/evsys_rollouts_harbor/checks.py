"""Harbor's own checks of an environment and of a task, before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from evsys.errors import PLUGIN_FAILURES, RolloutError
from evsys.types import HarborTask
from evsys_rollouts_harbor.api import BaseEnvironment, Task
from evsys_rollouts_harbor.configs import environment_config
from evsys_rollouts_harbor.images import read_image

__all__ = ["check_environment", "check_task"]


def check_environment(kind: str, params: Mapping[str, Any]) -> None:
    """See that an environment is there.

    Raises:
        RolloutError: it isn't, or is not an environment of Harbor's.
    """
    config = environment_config(kind, params)
    path = config.get("import_path")
    if path is None:
        return
    module, _, attribute = path.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except PLUGIN_FAILURES as exc:
        raise RolloutError(f"environment {kind!r} can't be loaded: {type(exc).__name__}: {exc}") from exc
    if not (isinstance(found, type) and issubclass(found, BaseEnvironment)):
        raise RolloutError(
            f"environment {kind!r} is not a Harbor environment", hint="derive it from harbor.BaseEnvironment"
        )


def check_task(task: HarborTask, kind: str, params: Mapping[str, Any]) -> None:
    """See that Harbor can read a task's folder, and that the environment can be what it asks for.

    Raises:
        RolloutError: it can't; names the task.
    """
    try:
        read = Task(Path(str(task.path)))
    except PLUGIN_FAILURES as exc:
        raise RolloutError(f"task {task.task_id!r}: Harbor can't read it: {exc}") from exc
    if kind == "bwrap":
        settings = read.config.environment
        read_image(
            read.paths.environment_dir,
            docker_image=settings.docker_image,
            ignore=params.get("image") == "ignore",
        )
