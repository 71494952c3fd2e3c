"""The kinds that few people write: each with everything that its protocol asks for."""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, assert_type

import numpy as np
from numpy.typing import NDArray

from evsys.protocols import Renderer, SamplingClient, Tokenizer, TrainingClient
from evsys.types import (
    ForwardResult,
    Job,
    JobState,
    LossFn,
    OptimResult,
    Policy,
    Proposal,
    ResearchState,
    RolloutLimits,
    SampledSequence,
    SampleResult,
    Stop,
)
from evsys_sdk import (
    AdamParams,
    AgentContext,
    Checkpoint,
    Completion,
    Datum,
    HarborTask,
    Message,
    ModelSpec,
    Rollout,
    SamplingParams,
    SearchAxis,
    Usage,
    register_backend,
    register_data_store,
    register_deployer,
    register_environment,
    register_inference,
    register_inference_client,
    register_launcher,
    register_log_store,
    register_renderer,
    register_researcher,
    register_rollout_engine,
    register_search,
)


class Bytes:
    """A tokenizer of bytes."""

    def __init__(self) -> None:
        self.vocab_size = 257
        self.eos_token_ids: tuple[int, ...] = (256,)

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token < 256).decode(errors="replace")


@register_renderer("plain")
class Plain:
    """Text after text."""

    def __init__(self, tokenizer: Tokenizer | None = None) -> None:
        self.tokenizer = tokenizer or Bytes()

    def render_prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        return [token for message in messages for token in self.tokenizer.encode(message.content)]

    def render_training(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        train_on: str = "all_assistant",
    ) -> list[tuple[list[int], list[float]]]:
        tokens = [*self.render_prompt(messages, tools), *self.stop_token_ids]
        return [(tokens, [1.0] * len(tokens))]

    def parse(self, tokens: Sequence[int]) -> Message:
        return Message(role="assistant", content=self.tokenizer.decode(tokens))

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return self.tokenizer.eos_token_ids


class Snapshot:
    """Says nothing, surely."""

    def __init__(self, version: int) -> None:
        self.version = version

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        return SampleResult(
            sequences=[SampledSequence(tokens=[256], logprobs=[0.0], finish_reason="stop")] * n
        )

    async def compute_logprobs(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        return np.zeros(len(tokens), dtype=np.float32)

    async def close(self) -> None: ...


class Client:
    """Trains nothing, quickly."""

    def __init__(self) -> None:
        self.tokenizer: Tokenizer = Bytes()
        self.renderer: Renderer = Plain()
        self.steps = 0

    def forward(self, data: Sequence[Datum]) -> Awaitable[ForwardResult]:
        return self.forward_backward(data, "cross_entropy")

    async def forward_backward(
        self, data: Sequence[Datum], loss_fn: str | LossFn, loss_params: Mapping[str, Any] | None = None
    ) -> ForwardResult:
        return ForwardResult(logprobs=[np.zeros(len(datum.tokens)) for datum in data], loss=0.0)

    async def optim_step(self, params: AdamParams) -> OptimResult:
        self.steps += 1
        return OptimResult(grad_norm=0.0)

    async def save_state(self, directory: Path) -> Mapping[str, Any]:
        return {"steps": self.steps}

    async def sampling_client(self) -> SamplingClient:
        return Snapshot(self.steps)


@register_backend("idle")
class Idle:
    """The smallest backend."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"resume"})

    async def prepare(
        self, model: ModelSpec, run_dir: Path, seed: int, restore: Checkpoint | None = None
    ) -> TrainingClient:
        assert_type(model.lora.rank, int | None)
        return Client()

    async def teardown(self, client: TrainingClient | None) -> None: ...


@register_data_store("letters")
class Letters:
    """Rows of letters."""

    async def pull(self, ref: str) -> list[dict[str, Any]]:
        return [{"prompt": letter, "completion": letter} for letter in ref]


@register_log_store("memory")
class Memory:
    """Keeps records."""

    def __init__(self) -> None:
        self.records: list[Mapping[str, Any]] = []

    async def write(self, record: Mapping[str, Any]) -> None:
        self.records.append(record)

    async def close(self) -> None: ...


@register_inference_client("parrot")
class Parrot:
    """Repeats what was said."""

    async def generate(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams,
        *,
        n: int = 1,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[Completion]:
        usage = Usage(prompt_tokens=1) + Usage(completion_tokens=1)
        assert_type(usage, Usage)
        said = Message(role="assistant", content=messages[-1].content)
        return [Completion(message=said, finish_reason="stop", usage=usage) for _ in range(n)]


register_inference("echo")(Parrot)


@register_rollout_engine("in_turn")
class InTurn:
    """One rollout after another."""

    async def run(
        self, tasks: Sequence[HarborTask], policy: Policy, limits: RolloutLimits
    ) -> AsyncIterator[Rollout]:
        for task in tasks:
            for index in range(policy.num_samples):
                ctx = AgentContext(sampling=policy.sampling, seed=index, sample_index=index)
                ended = await policy.agent.run(task, policy.model, task.tools, ctx)
                yield (
                    Rollout(task_id=task.task_id, sample_index=index, output=ended)
                    if isinstance(ended, str)
                    else ended
                )


@register_environment("room")
class Room:
    """An empty one."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@register_deployer("folder")
class Folder:
    """Says where the checkpoint lies already."""

    async def deploy(self, checkpoint: Checkpoint) -> dict[str, str]:
        return {"path": str(checkpoint.directory)}


@register_search("rates")
class Rates:
    """The choices of the first axis, once."""

    def ask(self, history: Sequence[Mapping[str, Any]], space: Sequence[SearchAxis]) -> list[dict[str, Any]]:
        return [] if history else [{space[0].path: choice} for choice in space[0].choices]


@register_researcher("once")
class Once:
    """One step more, once."""

    async def propose(self, state: ResearchState) -> Proposal | Stop:
        if state.rounds:
            return Stop(reason="one was enough")
        return Proposal(
            config=state.start, hypothesis="more steps help", expected_effect=state.minimum_effect
        )


@register_launcher("nowhere")
class Nowhere:
    """Every job has ended before it began."""

    workers = 1
    poll_seconds = 0.1

    async def submit(self, jobs: Sequence[Job]) -> list[str]:
        return [job.name for job in jobs]

    async def find(self, name: str) -> str | None:
        return name

    async def poll(self, ids: Sequence[str]) -> dict[str, JobState]:
        return {number: JobState(state="ended", exit_code=1) for number in ids}

    async def cancel(self, ids: Sequence[str], *, now: bool = False) -> None: ...

    async def close(self) -> None: ...
