"""The contract: what each kind of plugin offers, as PEP 544 protocols. Nothing here runs, no one needs to inherit.

The conformance suite compares a plugin's signatures with these. `isinstance` isn't the contract: it only sees names.
A plugin may declare `protocol: ClassVar[int]`; absent means 1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evsys.types import (
        AdamParams,
        AgentContext,
        Checkpoint,
        Completion,
        Datum,
        EvaluationResult,
        ForwardResult,
        HarborTask,
        LossFn,
        LossResult,
        Message,
        ModelSpec,
        NoScore,
        OptimResult,
        Policy,
        Rollout,
        RolloutLimits,
        RunContext,
        RunResult,
        SampleResult,
        SamplingParams,
        Score,
        SearchAxis,
        TrainingBatch,
        Usage,
    )
    from evsys.types.jobs import Job, JobState
    from evsys.types.research import Proposal, ResearchState, Stop

__all__ = [
    "KINDS",
    "PROTOCOL_VERSIONS",
    "Agent",
    "Algorithm",
    "Backend",
    "Budget",
    "Callback",
    "Checkpoints",
    "DataStore",
    "Dataset",
    "Deployer",
    "Environment",
    "Evaluate",
    "Hooks",
    "InferenceClient",
    "Launcher",
    "Log",
    "LogStore",
    "Loss",
    "Metric",
    "Pause",
    "Recorder",
    "Renderer",
    "Researcher",
    "RolloutEngine",
    "RolloutMetric",
    "Rollouts",
    "SamplingClient",
    "Search",
    "StepBuilder",
    "Tokenizer",
    "TrainingClient",
    "Transform",
    "Verifier",
]

PROTOCOL_VERSIONS: tuple[int, ...] = (1,)
"""Versions of the contract that this core accepts, newest last."""

KINDS: Mapping[str, str] = {
    "algorithm": "evsys.algorithms",
    "backend": "evsys.backends",
    "loss": "evsys.losses",
    "transform": "evsys.transforms",
    "verifier": "evsys.verifiers",
    "metric": "evsys.metrics",
    "data_store": "evsys.data_stores",
    "log_store": "evsys.log_stores",
    "inference_client": "evsys.inference_clients",
    "rollout_engine": "evsys.rollout_engines",
    "environment": "evsys.environments",
    "agent": "evsys.agents",
    "renderer": "evsys.renderers",
    "callback": "evsys.callbacks",
    "deployer": "evsys.deployers",
    "search": "evsys.searches",
    "launcher": "evsys.launchers",
    "researcher": "evsys.researchers",
    "plugin": "evsys.plugins",
    "command": "evsys.commands",
}
"""Every kind with its entry-point group. `plugin` (ambient hooks) and `command` aren't named by an experiment file."""

type Direction = Literal["max", "min"]
type Row = Mapping[str, Any]


# --- training ---------------------------------------------------------------------------------------------------


class Algorithm(Protocol):
    """Trains one arm. Built as `Plugin(**fields)`. May offer `lora() -> LoraSpec`: what it trains.

    One that uses second models declares `roles`: a mapping of `teacher` or `reference` to the capabilities that the role's backend
    must have. `required_roles` are those of them that it can't do without. `validate_roles(model, roles)` may say what is wrong with
    the `ModelSpec`s in them, before anything is prepared.

    May declare `health`: a mapping of a metric's name to the band (with `low`, `high`, `why`, `lasting`) that it stays in.
    """

    async def train(self, ctx: RunContext) -> RunResult:
        """Train until done or until `ctx.stop_requested`, and say how it ended."""


class StepBuilder(Protocol):
    """The part of an algorithm that a training loop drives: it makes batches, the loop owns everything else."""

    async def setup(self, ctx: RunContext) -> None:
        """Prepare once, after the training client is there and before the first batch."""

    async def build_batch(self, step_idx: int) -> TrainingBatch:
        """Make the batch of step `step_idx`, counted from 0."""

    def step_metrics(self, step_idx: int, batch: TrainingBatch, result: ForwardResult) -> Mapping[str, float]:
        """Measure a finished step."""


class Loss(Protocol):
    """A loss in plain numpy.

    Gets one array of logprobs a datum, in the shape of its `target_tokens`, and returns a scalar (differentiated by
    evsys), a scalar with metrics, or a `LossResult` that brings its own gradients. The loss is a sum over tokens.
    """

    def __call__(
        self, data: Sequence[Datum], logprobs: Sequence[Any]
    ) -> float | tuple[float, dict[str, float]] | LossResult:
        """Compute the loss."""


class Tokenizer(Protocol):
    """Text to token ids and back.

    May declare `control_tokens`, the ids by text of the tokens that only a chat template may write. Then `encode` also takes `plain`, the
    `(start, end)` spans of the text in which these are text, and what precedes a control token doesn't change the tokens after it.
    """

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end a turn."""

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; special tokens written in it become their ids."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of whole sequences; special tokens are kept."""


class Renderer(Protocol):
    """Messages to token ids and loss weights, and sampled ids back to a message."""

    def render_prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Token ids of a conversation, ending where the assistant starts to speak."""

    def render_training(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        train_on: str = "all_assistant",
    ) -> list[tuple[list[int], list[float]]]:
        """`(tokens, weights)` of equal length, one pair a sequence: several when history is rewritten between turns."""

    def parse(self, tokens: Sequence[int]) -> Message:
        """The assistant message that these sampled tokens are."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Ids at which sampling ends."""


class SamplingClient(Protocol):
    """A frozen snapshot of a model's weights. May declare `free = True`: sampling costs no money; or offer
    `sampling_cost(prompt_tokens, completion_tokens)` in US dollars, None where no one knows. May have a `digest`, a hash of all
    weights: equal ones say the same.
    """

    @property
    def version(self) -> int:
        """Optimiser steps behind the weights."""
        ...

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        """Draw `n` continuations of one prompt of token ids. Concurrent calls may be batched."""

    async def compute_logprobs(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logprob of each token given those before it, [N]; entry 0 is NaN."""

    async def close(self) -> None:
        """Release the snapshot. Safe to call twice."""


class TrainingClient(Protocol):
    """A model being trained. Steps are pipelined: the plain methods submit at once, run in call order, and return an
    awaitable. May declare `free = True`: training costs no money; or offer `training_cost(tokens)`, the US dollars of training
    on so many tokens, None where no one knows, and `sampling_cost`, as a sampling client does, for what a forward pass reads.

    With the capability `averaged_weights` it keeps a running mean of the weights, which begins as they are at the first call of
    `async averaged_sampling_client(rate: float) -> SamplingClient`. Each later call moves it by `rate` of the way to the weights of
    that moment; all give a snapshot of it. `save_state` keeps it with the optimiser.
    """

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""

    @property
    def renderer(self) -> Renderer:
        """The model's renderer."""

    def forward(self, data: Sequence[Datum]) -> Awaitable[ForwardResult]:
        """Logprobs of the targets, without gradients."""

    def forward_backward(
        self, data: Sequence[Datum], loss_fn: str | LossFn, loss_params: Mapping[str, Any] | None = None
    ) -> Awaitable[ForwardResult]:
        """Add the loss's gradient to what is accumulated. Callables need the capability `custom_loss`."""

    def optim_step(self, params: AdamParams) -> Awaitable[OptimResult]:
        """Apply the accumulated gradient and clear it."""

    async def save_state(self, directory: Path) -> Mapping[str, Any]:
        """Save weights and optimiser, in `directory` or elsewhere; returns JSON values that `prepare` restores from."""

    async def sampling_client(self) -> SamplingClient:
        """A snapshot after every `optim_step` submitted before this call."""


class Backend(Protocol):
    """Trains a model. One object a run. `capabilities` and `honours` are class attributes.

    Known capabilities: custom_loss, loss_fns:<name>, resume, prompt_logprobs, top_logprobs, top_prompt_logprobs,
    averaged_weights, concurrent_runs, full_finetune, deterministic. `honours` names the run options that aren't
    ignored. One that trains elsewhere may offer `async preflight(model: ModelSpec)`, which asks the other side
    whether it can train the model, and creates nothing: a problem is a `ConfigError`.
    """

    capabilities: frozenset[str]

    async def prepare(
        self, model: ModelSpec, run_dir: Path, seed: int, restore: Checkpoint | None = None
    ) -> TrainingClient:
        """Load the model, with its state from `restore` if given.

        A further parameter `deterministic: bool`, with a default, says whether the run must give the same bits each
        time; one called `log` gets the `Log` of the run.
        """

    async def teardown(self, client: TrainingClient | None) -> None:
        """Release everything; `client` is None after a failed `prepare`."""


# --- data and scoring -------------------------------------------------------------------------------------------


class Transform(Protocol):
    """Mappings in, mappings out, lazily where it can. Never changes a row it was given."""

    def __call__(self, rows: Iterable[Row]) -> Iterable[Row]:
        """Transform rows."""


class Verifier(Protocol):
    """Judges an output, plain or async; a fourth argument named `rollout` receives the whole `Rollout`.

    May offer `oracle(expected, params)`, an answer that gets full marks, and `counterexample`, one that gets none. May declare
    `free = False`: a call costs money; `deterministic = False` or `cacheable = False`: its scores aren't kept for later.
    """

    def __call__(
        self, model_output: str, expected: Any, params: Mapping[str, Any]
    ) -> float | Score | NoScore | Awaitable[float | Score | NoScore]:
        """Judge `model_output`, the final assistant text."""


class Metric(Protocol):
    """A number from rewards. May declare `direction` ("max" where undeclared) and `needs_samples` (k)."""

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        """`task_rewards` has one inner list per task, with the rewards of its scored samples."""


class RolloutMetric(Protocol):
    """The second form of a metric: a number from task ids and whole rollouts, such as tokens, seconds, or money. May declare
    `direction`.
    """

    def compute_rollouts(self, task_rollouts: Mapping[str, Sequence[Rollout]]) -> float:
        """`task_rollouts` maps a task's id to all its rollouts, including those without a score."""


class DataStore(Protocol):
    """A source of rows. The cache stores pulled rows by content."""

    async def pull(self, ref: str) -> Iterable[Row]:
        """Rows of `ref`, in a stable order: same ref, same bytes."""


class LogStore(Protocol):
    """A second destination for an experiment's events, in addition to the record, which is always written.

    One object takes the records of all runs. Each has `event`, `time`, `experiment`, `run`, `arm`, `repeat`,
    `attempt` and, by event, more; a store ignores events that it doesn't know. Its exceptions are logged and
    counted, and end nothing.
    """

    async def write(self, record: Mapping[str, Any]) -> None:
        """Keep one record, a mapping of JSON values. Training waits for it."""

    async def close(self) -> None:
        """Flush and release."""


class InferenceClient(Protocol):
    """Messages in, completions out: the trained model or a service.

    May offer `async prompt_logprobs(tokens: Sequence[int]) -> Completion`, which makes it a teacher: `logprobs` of the tokens that
    were sent, each given those before it and the first one NaN, and `message` with the text that they are, where the service says
    it. May offer `sampling_cost`, as a sampling client does.
    """

    async def generate(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams,
        *,
        n: int = 1,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Sequence[Completion]:
        """`n` completions of one conversation."""


class Agent(Protocol):
    """The body of a policy: acts on one task through a model client. `ctx` has its limits, sampling and seed."""

    async def run(
        self, task: HarborTask, model: InferenceClient, tools: Sequence[Any], ctx: AgentContext
    ) -> Rollout | str:
        """Act until done and return the rollout or just the final text; the engine records turns and scores."""


class RolloutEngine(Protocol):
    """Runs tasks by samples. Yields each finished rollout exactly once, crashed ones included, in completion order."""

    def run(
        self, tasks: Sequence[HarborTask], policy: Policy, limits: RolloutLimits
    ) -> AsyncIterator[Rollout]:
        """Yield `len(tasks) * policy.num_samples` rollouts."""


class Environment(Protocol):
    """The place in which an agent acts."""

    async def start(self) -> None:
        """Make it ready."""

    async def stop(self) -> None:
        """Release it. Safe to call twice."""


# --- around a run -----------------------------------------------------------------------------------------------


class Callback(Protocol):
    """Any subset of the hook specs in `evsys.hookspecs`, as methods marked with `evsys.hookimpl`."""


class Deployer(Protocol):
    """Takes a checkpoint to where it is used."""

    async def deploy(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        """Deploy and say where."""


class Search(Protocol):
    """Proposes arms from what was tried. Its state is a pure function of the history.

    The history has a mapping for each proposed arm, in order of proposal: `n`, its number; `values`; `status`, which is
    `running` until the arm ends; `score`, None without one, higher is better; `steps`; `reason`, why it ended early or has
    no score; `scores`, pairs of step and score from its training; `stopped_at`, the step of the score that stopped it, or None.

    May offer `keep(history, n, step, score) -> bool`, called at each score during the training of arm `n`, when its `scores`
    already include this one: False stops the arm. `validate_space(space)` returns the problems of a space, one text each.
    `size(space)` returns the maximum number of arms that it proposes, None if unknown.
    """

    def ask(
        self, history: Sequence[Mapping[str, Any]], space: Sequence[SearchAxis]
    ) -> Sequence[Mapping[str, Any]]:
        """The next arms, as mappings of an axis's path to its value; empty when done, or while it has to wait for running arms."""


class Researcher(Protocol):
    """Proposes experiments towards a goal. Its state is a pure function of the research so far, so that research resumes anywhere.

    May declare `uses_context = False`: it doesn't read `ResearchState.context`, which then isn't made.
    """

    async def propose(self, state: ResearchState) -> Proposal | Stop:
        """The next experiment, or why there is none. Cancelled at its time limit, and asked once a round."""


class Launcher(Protocol):
    """Runs jobs in other processes, here or on other machines.

    `workers` is the number of jobs that run at once, `poll_seconds` how often to ask for their states.
    """

    workers: int
    poll_seconds: float

    async def submit(self, jobs: Sequence[Job]) -> Sequence[str]:
        """Start or queue jobs; an id for each, in their order, by which any process can ask for the job.

        A caller that is cancelled meanwhile finds what was submitted with `find`.
        """

    async def find(self, name: str) -> str | None:
        """The id of the newest job with this name, submitted by this process or another one; None without one."""

    async def poll(self, ids: Sequence[str]) -> Mapping[str, JobState]:
        """The state of each job, whichever process submitted it.

        A launcher that can't be reached raises an error: nothing follows from that about the jobs.
        """

    async def cancel(self, ids: Sequence[str], *, now: bool = False) -> None:
        """Ask jobs to end, as SIGTERM does, or end them `now`. No error for those that have ended."""

    async def close(self) -> None:
        """Release what the launcher holds. Jobs that can't outlive it end."""


# --- what a RunContext carries ----------------------------------------------------------------------------------


class Dataset(Protocol):
    """The run's typed rows, read once, indexable. `fingerprint` is the hash of their content."""

    @property
    def fingerprint(self) -> str:
        """Content hash."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


class Recorder(Protocol):
    """Appends to the run's record. Each record gets `attempt`, `step` and `seq`."""

    def metrics(self, step: int, values: Mapping[str, float], *, phase: str = "training") -> None:
        """One line of metrics."""

    def rollout(self, step: int, rollout: Rollout, *, phase: str = "training", **facts: Any) -> None:
        """One line a rollout."""

    def intent(self, step: int, batch_id: str, row_ids: Sequence[str]) -> None:
        """Journal: this step is about to be submitted."""

    def done(self, step: int, batch_id: str) -> None:
        """Journal: this step has been applied."""


class Checkpoints(Protocol):
    """The run's checkpoints in its record."""

    async def save(self, step: int, client: TrainingClient, loop: Mapping[str, Any]) -> Checkpoint:
        """Save a complete checkpoint; it is listed only once it is whole."""

    def latest(self) -> Checkpoint | None:
        """The last complete checkpoint of the live lineage."""

    @property
    def restored(self) -> Checkpoint | None:
        """The checkpoint that this attempt started from."""


class Evaluate(Protocol):
    """Evaluates benchmark entries on snapshots while training continues."""

    def due(self, step: int) -> bool:
        """True if an entry is to be evaluated after `step` optimiser steps."""

    async def submit(self, step: int, snapshot: SamplingClient) -> None:
        """Start the evaluations due at `step`; the snapshot is closed after them. May wait for earlier ones."""

    async def drain(self) -> Sequence[EvaluationResult]:
        """Wait for the submitted evaluations; all results so far, in order of step."""


class Rollouts(Protocol):
    """Makes training rollouts from a snapshot through the configured engine and agent."""

    def collect(
        self,
        tasks: Sequence[HarborTask],
        snapshot: SamplingClient,
        num_samples: int,
        *,
        sampling: SamplingParams,
        limits: RolloutLimits,
        step: int,
    ) -> AsyncIterator[Rollout]:
        """Yield scored rollouts. `step` enters their seeds, so that a task that comes again is sampled again."""


class Budget(Protocol):
    """The limits of an experiment, and how much is left of each."""

    def charge(self, usage: Usage, *, steps: int = 0) -> None:
        """Count usage.

        Raises:
            BudgetExceeded: nothing is left.
        """


class Pause(Protocol):
    """Lets a run hold between two steps. A loop looks at it where it looks at `stop_requested`."""

    def requested(self, *, at_once: bool = False) -> bool:
        """Whether the run is asked to hold: save a checkpoint, then await `hold()`.

        With `at_once`: whether it is to hold before its next rollout, not only after its step.
        """

    async def hold(self) -> None:
        """Wait until the run may continue, or is asked to stop. Returns at once if no pause is requested."""


class Hooks(Protocol):
    """Calls listeners. A raising listener is counted and never stops the run."""

    async def emit(self, hook: str, /, **arguments: Any) -> Sequence[Any]:
        """Call each implementation of `hook` by keyword and return the results that aren't None."""


class Log(Protocol):
    """Structured events: dotted, past tense, facts as keywords."""

    def debug(self, event: str, **facts: Any) -> Any:
        """Detail."""

    def info(self, event: str, **facts: Any) -> Any:
        """Something happened."""

    def warning(self, event: str, **facts: Any) -> Any:
        """Something odd happened."""

    def error(self, event: str, **facts: Any) -> Any:
        """Something failed."""
