"""The toolkit behind evsys runs: configuration, training loop, losses, evaluation.

Public is what `__all__` lists: the names that plugins may import. They resolve lazily, so importing this costs nothing.
All other modules may change in any version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evsys_runtime.accounting.breaker import shared_breaker
    from evsys_runtime.accounting.limiter import Limits, shared_limiter
    from evsys_runtime.accounting.prices import load_prices
    from evsys_runtime.audit.auditing import audit_experiment
    from evsys_runtime.background import in_background
    from evsys_runtime.central import CentralStore, central_store
    from evsys_runtime.command_records import (
        CountedFromTheEnd,
        central_option,
        experiment_names,
        records_folder,
        records_option,
    )
    from evsys_runtime.commands import json_option, print_json
    from evsys_runtime.config.model import BenchmarkConfig
    from evsys_runtime.data.load import load_dataset
    from evsys_runtime.data.parse import RowProblem, parse_row
    from evsys_runtime.data.scope import current_scope
    from evsys_runtime.data.workspace import Workspace
    from evsys_runtime.evaluation.benchmarks import bind_benchmark
    from evsys_runtime.evaluation.evaluator import Evaluator
    from evsys_runtime.evaluation.recording import RecordingModel, run_rollout
    from evsys_runtime.evaluation.retrying import with_retries
    from evsys_runtime.evaluation.scheduling import Job, jobs_of, scheduled
    from evsys_runtime.experiment.result_schemas import RESULTS, result_schema
    from evsys_runtime.losses import BUILTIN_LOSSES, PolicyObjective, compute_loss, loss, stop_gradient
    from evsys_runtime.proxies import proxy_of
    from evsys_runtime.rendering.chat import ChatTemplateRenderer
    from evsys_runtime.rendering.resolve import load_renderer
    from evsys_runtime.rendering.tokenizers import ByteTokenizer, load_tokenizer
    from evsys_runtime.serving.models import FixedCatalogue, ServedModel
    from evsys_runtime.serving.server import chat_server
    from evsys_runtime.terminal import echo
    from evsys_runtime.tools.tool import Answer, Tool
    from evsys_runtime.tools.toolbox import Toolbox
    from evsys_runtime.training.algorithm import BaseAlgorithm
    from evsys_runtime.training.bands import Band
    from evsys_runtime.training.loop import TrainingLoop
    from evsys_runtime.training.params import TrainingParams
    from evsys_runtime.training.rollout_groups import run_groups
    from evsys_runtime.training.trajectories import to_datum, trajectories

__all__ = [
    "BUILTIN_LOSSES",
    "RESULTS",
    "Answer",
    "Band",
    "BaseAlgorithm",
    "BenchmarkConfig",
    "ByteTokenizer",
    "CentralStore",
    "ChatTemplateRenderer",
    "CountedFromTheEnd",
    "Evaluator",
    "FixedCatalogue",
    "Job",
    "Limits",
    "PolicyObjective",
    "RecordingModel",
    "RowProblem",
    "ServedModel",
    "Tool",
    "Toolbox",
    "TrainingLoop",
    "TrainingParams",
    "Workspace",
    "audit_experiment",
    "bind_benchmark",
    "central_option",
    "central_store",
    "chat_server",
    "compute_loss",
    "current_scope",
    "echo",
    "experiment_names",
    "in_background",
    "jobs_of",
    "json_option",
    "load_dataset",
    "load_prices",
    "load_renderer",
    "load_tokenizer",
    "loss",
    "parse_row",
    "print_json",
    "proxy_of",
    "records_folder",
    "records_option",
    "result_schema",
    "run_groups",
    "run_rollout",
    "scheduled",
    "shared_breaker",
    "shared_limiter",
    "stop_gradient",
    "to_datum",
    "trajectories",
    "with_retries",
]

_HOME = {
    "shared_breaker": ".accounting.breaker",
    "Limits": ".accounting.limiter",
    "shared_limiter": ".accounting.limiter",
    "load_prices": ".accounting.prices",
    "audit_experiment": ".audit.auditing",
    "in_background": ".background",
    "CentralStore": ".central",
    "central_store": ".central",
    "CountedFromTheEnd": ".command_records",
    "central_option": ".command_records",
    "experiment_names": ".command_records",
    "records_folder": ".command_records",
    "records_option": ".command_records",
    "json_option": ".commands",
    "print_json": ".commands",
    "BenchmarkConfig": ".config.model",
    "load_dataset": ".data.load",
    "RowProblem": ".data.parse",
    "parse_row": ".data.parse",
    "current_scope": ".data.scope",
    "Workspace": ".data.workspace",
    "bind_benchmark": ".evaluation.benchmarks",
    "Evaluator": ".evaluation.evaluator",
    "RecordingModel": ".evaluation.recording",
    "run_rollout": ".evaluation.recording",
    "with_retries": ".evaluation.retrying",
    "Job": ".evaluation.scheduling",
    "jobs_of": ".evaluation.scheduling",
    "scheduled": ".evaluation.scheduling",
    "RESULTS": ".experiment.result_schemas",
    "result_schema": ".experiment.result_schemas",
    "BUILTIN_LOSSES": ".losses",
    "PolicyObjective": ".losses",
    "compute_loss": ".losses",
    "loss": ".losses",
    "stop_gradient": ".losses",
    "proxy_of": ".proxies",
    "ChatTemplateRenderer": ".rendering.chat",
    "load_renderer": ".rendering.resolve",
    "ByteTokenizer": ".rendering.tokenizers",
    "load_tokenizer": ".rendering.tokenizers",
    "FixedCatalogue": ".serving.models",
    "ServedModel": ".serving.models",
    "chat_server": ".serving.server",
    "echo": ".terminal",
    "Answer": ".tools.tool",
    "Tool": ".tools.tool",
    "Toolbox": ".tools.toolbox",
    "BaseAlgorithm": ".training.algorithm",
    "Band": ".training.bands",
    "TrainingLoop": ".training.loop",
    "TrainingParams": ".training.params",
    "run_groups": ".training.rollout_groups",
    "to_datum": ".training.trajectories",
    "trajectories": ".training.trajectories",
}


if not TYPE_CHECKING:  # a type checker would take it as saying that every name is there, and is Any

    def __getattr__(name: str) -> object:
        # As `lazy_names` of evsys, which `evsys --help` may not import.
        if name not in _HOME:
            raise AttributeError(f"module 'evsys_runtime' has no attribute {name!r}")
        from importlib import import_module

        return globals().setdefault(name, getattr(import_module(_HOME[name], __name__), name))


def __dir__() -> list[str]:
    return sorted(__all__)
