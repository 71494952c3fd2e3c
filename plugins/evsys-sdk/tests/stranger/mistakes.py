"""What both type checkers must report. Never imported: each ignored line is an error, and one that isn't is reported."""

# pyright: reportUntypedFunctionDecorator=false, reportUntypedClassDecorator=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnusedImport=false
# ruff: noqa: B018, F401

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

import evsys
import evsys_sdk
from evsys.protocols import InferenceClient
from evsys.types import Policy, ResearchState, RolloutLimits
from evsys_sdk import (
    SFT,
    AgentContext,
    Checkpoint,
    Datum,
    Experiment,
    ExperimentResult,
    HarborTask,
    Message,
    Rollout,
    RunContext,
    RunResult,
    SamplingParams,
    Score,
    SearchAxis,
    TrainingBatch,
    option,
    register_agent,
    register_algorithm,
    register_backend,
    register_data_store,
    register_deployer,
    register_environment,
    register_inference_client,
    register_launcher,
    register_log_store,
    register_loss,
    register_metric,
    register_renderer,
    register_researcher,
    register_rollout_engine,
    register_search,
    register_transform,
    register_verifier,
)

# --- names that aren't there ---

evsys_sdk.register_verifer  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
evsys.structur  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def imported() -> None:
    from evsys_sdk import Nothing  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


# --- decorators ---


@register_verifier("two_arguments")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
def two_arguments(model_output: str, expected: Any) -> float:
    return 1.0


@register_verifier("text")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
def text(model_output: str, expected: Any, params: Mapping[str, Any]) -> str:
    return "right"


@register_verifier("takes_bytes")  # pyright: ignore[reportArgumentType]
class TakesBytes:  # type: ignore[type-var]
    def __call__(self, model_output: bytes, expected: Any, params: Mapping[str, Any]) -> float:
        return 1.0


@register_verifier  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def no_brackets(model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
    return 1.0


@register_metric("misspelt")  # pyright: ignore[reportArgumentType]
class Misspelt:  # type: ignore[type-var]
    def compte(self, task_rewards: Sequence[Sequence[float]]) -> float:
        return 0.0


@register_metric("of_a_list")  # pyright: ignore[reportArgumentType]
class OfAList:  # type: ignore[type-var]
    def compute(self, task_rewards: list[float]) -> float:
        return 0.0


@register_metric("function")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
def function(task_rewards: Sequence[Sequence[float]]) -> float:
    return 0.0


@register_transform("one_row")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
def one_row(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return row


@register_transform("texts")  # pyright: ignore[reportArgumentType]
class Texts:  # type: ignore[type-var]
    def __call__(self, rows: Iterable[Mapping[str, Any]]) -> Iterable[str]:
        return [str(row) for row in rows]


@register_loss("no_logprobs")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
def no_logprobs(data: Sequence[Datum]) -> float:
    return 0.0


@register_loss("says")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
def says(data: Sequence[Datum], logprobs: Sequence[Any]) -> str:
    return "low"


@register_algorithm("not_async")  # pyright: ignore[reportArgumentType]
class NotAsync:  # type: ignore[type-var]
    def train(self, ctx: RunContext) -> RunResult:
        return RunResult(status="completed")


@register_agent("not_async")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
def not_async(task: HarborTask, model: InferenceClient, tools: Sequence[Any], ctx: AgentContext) -> str:
    return ""


@register_backend("half")  # pyright: ignore[reportArgumentType]
class Half:  # type: ignore[type-var]
    capabilities = frozenset({"resume"})

    async def teardown(self, client: Any) -> None: ...


@register_data_store("plain")  # pyright: ignore[reportArgumentType]
class PlainStore:  # type: ignore[type-var]
    def pull(self, ref: str) -> list[dict[str, Any]]:
        return []


@register_log_store("forgetful")  # pyright: ignore[reportArgumentType]
class Forgetful:  # type: ignore[type-var]
    async def write(self, record: Mapping[str, Any]) -> None: ...


@register_inference_client("one")  # pyright: ignore[reportArgumentType]
class One:  # type: ignore[type-var]
    async def generate(self, messages: Sequence[Message], sampling: SamplingParams) -> Message:
        return messages[-1]


@register_rollout_engine("all_at_once")  # pyright: ignore[reportArgumentType]
class AllAtOnce:  # type: ignore[type-var]
    async def run(self, tasks: Sequence[HarborTask], policy: Policy, limits: RolloutLimits) -> list[Rollout]:
        return []


@register_environment("endless")  # pyright: ignore[reportArgumentType]
class Endless:  # type: ignore[type-var]
    async def start(self) -> None: ...


@register_renderer("texts")  # pyright: ignore[reportArgumentType]
class TextRenderer:  # type: ignore[type-var]
    def render_prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        return ""


@register_deployer("silent")  # pyright: ignore[reportArgumentType]
class Silent:  # type: ignore[type-var]
    async def deploy(self, checkpoint: Checkpoint) -> None: ...


@register_search("async")  # pyright: ignore[reportArgumentType]
class AsyncSearch:  # type: ignore[type-var]
    async def ask(
        self, history: Sequence[Mapping[str, Any]], space: Sequence[SearchAxis]
    ) -> list[dict[str, Any]]:
        return []


@register_researcher("silent")  # pyright: ignore[reportArgumentType]
class SilentResearcher:  # type: ignore[type-var]
    async def propose(self, state: ResearchState) -> str:
        return "more steps"


@register_launcher("by_name")  # pyright: ignore[reportArgumentType]
class ByName:  # type: ignore[type-var]
    async def submit(self, names: Sequence[str]) -> list[str]:
        return []


# --- values and params ---


@attrs.frozen(kw_only=True)
class Params:
    limit: int = option("many", "How many.")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    name: str = option(3, "What it is called.")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    bounded: int = option(3, "How many.", ge="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class OtherBatches(SFT):
    async def build_batch(self, step_idx: str) -> TrainingBatch:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return await super().build_batch(0)


class NoBatches(SFT):
    async def build_batch(self, step_idx: int) -> list[Datum]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return []


def misread(result: ExperimentResult) -> float:
    result.verdict  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    return result.arms[0].evaluations[-1].metrics["mean_reward"].value  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


def misrun(config: Path) -> ExperimentResult:
    Experiment.from_yaml(config, dryrun=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    return Experiment.from_yaml(config).arun()  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


Message(role="robot", content="")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Score(1.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
RunResult(status="done")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
TrainingBatch(data=[], loss_fn=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
