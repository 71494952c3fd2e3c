"""What was scored before costs nothing, and what changed is scored anew."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from evsys import Registry
from evsys.types import Completion, HarborTask, LoraSpec, Message, ModelSpec, NoScore, Usage, VerifierSpec
from evsys_record.secrets import Redactor
from evsys_runtime.config.model import AgentConfig, BenchmarkConfig, PluginSpec
from evsys_runtime.data.result_store import ResultStore
from evsys_runtime.evaluation.benchmarks import ApiModel, bind_benchmark
from evsys_runtime.evaluation.cache_marks import is_cached
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.evaluation.result_cache import ResultCache
from evsys_runtime.evaluation.result_key import Trained
from evsys_runtime.rendering.chat import ChatTemplateRenderer

RENDERER = ChatTemplateRenderer()


class Client:
    """An API model that counts what it is asked; `answer` may raise."""

    asked: list[str] = []  # noqa: RUF012 - emptied by the fixture

    @attrs.frozen(kw_only=True)
    class Config:
        model: str = "m"
        key: str = ""

    def __init__(self, *, model: str = "m", key: str = "") -> None:
        self.model = model

    async def generate(
        self, messages: Sequence[Message], sampling: Any, *, n: int = 1, tools: Any = ()
    ) -> Any:
        Client.asked.append(messages[-1].content)
        if messages[-1].content == "crash" and len(Client.asked) < 5:
            raise ConnectionError("down")
        said = Message(role="assistant", content="yes")
        return [
            Completion(message=said, finish_reason="stop", usage=Usage(prompt_tokens=3, cost_usd=0.5))
        ] * n


class NoBackend:
    """Only its name and its source matter here."""

    capabilities: frozenset[str] = frozenset()

    async def prepare(self, model: Any, run_dir: Path, seed: int, restore: Any = None) -> Any: ...

    async def teardown(self, client: Any) -> None: ...


@attrs.define
class Lab:
    """Scores tasks over and over, each time by a new evaluator."""

    registry: Registry
    folder: Path
    runs: int = 0
    told: list[str] = attrs.field(factory=list)
    asked: list[str] = attrs.field(factory=lambda: Client.asked)
    rollouts: list[Any] = attrs.field(factory=list)

    @property
    def store(self) -> ResultStore:
        return ResultStore(self.folder / "cache")

    def tasks(self, *instructions: str, **spec: Any) -> list[HarborTask]:
        verifier = VerifierSpec(**{"name": "equals", "expected": "yes", **spec})
        return [
            HarborTask(task_id=f"t{place}", instruction=text, verifier=verifier)
            for place, text in enumerate(instructions)
        ]

    def score(
        self,
        tasks: Sequence[HarborTask],
        *,
        snapshot: Any = None,
        params: Mapping[str, Any] | None = None,
        agent: AgentConfig | None = None,
        deterministic: bool = False,
        seed: int = 0,
        step: int = 0,
        model: ModelSpec | None = None,
        again: bool = False,
        **entry: Any,
    ) -> Any:
        """One scoring, `again` one of the last run: of a snapshot, or of the API model. The result, with its rollouts as `rollouts`."""
        self.runs += not again
        run_dir = self.folder / f"run{self.runs}"
        run_dir.mkdir(exist_ok=again)
        bound = bind_benchmark(
            BenchmarkConfig(name="val", path="x", **entry), tasks, registry=self.registry, agent=agent
        )
        model = model or ModelSpec(name="base", lora=LoraSpec())
        trained = Trained(
            model=model, backend=PluginSpec(kind="none"), renderer=RENDERER, place=("e", "r", 1)
        )
        cache = ResultCache(
            self.store,
            registry=self.registry,
            run_dir=run_dir,
            trained=trained,
            tell=self.told.append,
            redactor=Redactor({"SECRET": "hush-hush-hush"}),
        )
        kept: list[Any] = []

        class Record:
            def rollout(self, step: int, rollout: Any, **facts: Any) -> None:
                kept.append(rollout)

            def metrics(self, *arguments: Any, **facts: Any) -> None: ...

        evaluator = Evaluator(
            [bound],
            RENDERER,
            seeds=lambda purpose, index=0: seed,
            registry=self.registry,
            record=Record(),
            deterministic=deterministic,
            cache=cache,
        )
        if snapshot is not None:
            result = asyncio.run(evaluator.score(bound, snapshot, step))
        else:
            spec = PluginSpec(kind="client", params=params or {})
            client = ApiModel(name="api", client=Client(), spec=spec)
            result = asyncio.run(evaluator.score_model(bound, client))
        self.rollouts = kept
        return result

    @property
    def lookup(self) -> dict[str, Any]:
        """What the last scoring wrote down."""
        return json.loads((self.folder / f"run{self.runs}/cache.jsonl").read_text("utf-8").splitlines()[-1])


@pytest.fixture
def lab(registry: Registry, tmp_path: Path) -> Lab:
    registry.register("inference_client", "client", Client)
    registry.register("backend", "none", NoBackend)
    Client.asked.clear()
    return Lab(registry=registry, folder=tmp_path)


@pytest.fixture
def weights(script: Any) -> Callable[..., Any]:
    """A snapshot whose weights are told by `digest`; None is one that nobody can read."""

    def made(digest: str | None = "sha256:1", version: int = 0) -> Any:
        client = script(version=version)
        if digest is not None:
            client.digest = digest
        return client

    return made


# --- hits -------------------------------------------------------------------------------------------------------


def test_the_same_scoring_again_asks_nobody_and_costs_nothing(lab):
    tasks = lab.tasks("a", "b")
    first = lab.score(tasks, num_samples=2)
    second = lab.score(tasks, num_samples=2)
    assert len(lab.asked) == 4
    assert (first.usage.cost_usd, second.usage.cost_usd, second.usage.prompt_tokens) == (2.0, None, 0)
    assert (first.cached, second.cached, second.scored) == (0, 4, 4)
    assert second.task_rewards == first.task_rewards
    assert second.metrics == first.metrics


def test_a_rollout_of_the_cache_is_marked_and_keeps_what_it_used(lab):
    tasks = lab.tasks("a")
    lab.score(tasks)
    [made] = lab.rollouts
    lab.score(tasks)
    [cached] = lab.rollouts
    assert (is_cached(made), is_cached(cached)) == (False, True)
    assert cached.usage == made.usage
    assert attrs.evolve(cached, metadata=made.metadata) == made


def test_what_an_attempt_made_that_was_cut_off_counts_as_made_by_the_run_that_is_resumed(lab):
    tasks = lab.tasks("a", "b")
    first = lab.score(tasks)
    second = lab.score(tasks, again=True)
    assert len(lab.asked) == 2
    assert (second.cached, second.usage.cost_usd, second.usage.prompt_tokens) == (
        0,
        first.usage.cost_usd,
        first.usage.prompt_tokens,
    )
    assert [is_cached(rollout) for rollout in lab.rollouts] == [False, False]
    other = lab.score(tasks)
    assert (other.cached, other.usage.cost_usd) == (2, None)
    again = lab.score(tasks, again=True)  # what it had found is not what it had made
    assert (again.cached, again.usage.cost_usd) == (2, None)


def test_samples_of_one_task_are_kept_apart(lab):
    tasks = lab.tasks("a")
    lab.score(tasks, num_samples=3)
    lab.score(tasks, num_samples=5)
    assert [is_cached(rollout) for rollout in lab.rollouts] == [True] * 3 + [False] * 2
    assert len(lab.asked) == 5


def test_only_tasks_that_are_new_or_changed_are_asked(lab):
    lab.score(lab.tasks("a", "b"))
    lab.score(lab.tasks("a", "other", "c"))
    assert lab.asked == ["a", "b", "other", "c"]
    why = {gap["task_id"]: gap["why"] for gap in lab.lookup["missing"]}
    assert why == {"t1": "the task changed", "t2": "nothing is kept of this task: it is new, or had no score"}


def test_weights_of_the_same_content_are_known_whatever_run_made_them(lab, weights):
    tasks = lab.tasks("a")
    lab.score(tasks, snapshot=weights(version=3), step=3)
    again = weights(version=5)
    lab.score(tasks, snapshot=again, step=5)
    assert lab.told == []
    assert (again.asked, lab.rollouts[0].policy_version) == ([], 5)


# --- misses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"seed": 1}, "seed"),
        ({"temperature": 0.7}, "sampling.temperature"),
        ({"max_tokens": 9}, "sampling.max_tokens"),
        ({"params": {"model": "n"}}, "model.params.model"),
        ({"agent": AgentConfig(kind="other")}, "agent.code"),
    ],
)
def test_whatever_decides_a_scoring_makes_another_and_is_told(lab, changes, path):
    class Other:
        async def run(self, task, model, tools, ctx):
            [said] = await model.generate([Message(role="user", content=task.instruction)], ctx.sampling)
            return said.message.content

    lab.registry.register("agent", "other", Other)
    tasks = lab.tasks("a")
    lab.score(tasks)
    lab.score(tasks, **changes)
    assert len(lab.asked) == 2
    assert path in {difference["path"] for difference in lab.lookup["nearest"]["differences"]}
    assert lab.lookup["nearest"]["run"] == str(lab.folder / "run1")


@pytest.mark.parametrize(
    "change", [{"expected": "no"}, {"params": {"strict": True}}], ids=["expected", "params of the verifier"]
)
def test_another_expectation_is_judged_anew(lab, change):
    lab.score(lab.tasks("a"))
    lab.score(lab.tasks("a", **change))
    assert len(lab.asked) == 2


def test_another_source_of_a_verifier_is_judged_anew(lab):
    def mine(model_output, expected, params):
        return 1.0

    lab.registry.register("verifier", "mine", mine)
    assert lab.score(lab.tasks("a", name="mine")).task_rewards == {"t0": (1.0,)}

    def mine(model_output, expected, params):
        return 0.0

    changed = Registry(entry_points=())
    for kind, name in (("metric", "mean_reward"), ("rollout_engine", "direct"), ("agent", "chat")):
        changed.register(kind, name, lab.registry.get(kind, name))
    changed.register("inference_client", "client", Client)
    changed.register("verifier", "mine", mine)
    lab.registry = changed
    assert lab.score(lab.tasks("a", name="mine")).task_rewards == {"t0": (0.0,)}
    assert [difference["path"] for difference in lab.lookup["nearest"]["differences"]] == ["verifiers.mine"]


def test_a_value_of_the_environment_counts_and_stays_out_of_the_file(lab, monkeypatch):
    monkeypatch.setenv("WHERE", "one-place")
    lab.score(lab.tasks("a"), params={"model": "${WHERE}"})
    lab.score(lab.tasks("a"), params={"model": "${WHERE}"})
    monkeypatch.setenv("WHERE", "another-place")
    lab.score(lab.tasks("a"), params={"model": "${WHERE}"})
    assert len(lab.asked) == 2
    assert [difference["path"] for difference in lab.lookup["nearest"]["differences"]] == ["model.values"]
    assert b"another-place" not in lab.store.path.read_bytes()
    assert "another-place" not in json.dumps(lab.lookup)


def test_other_weights_and_weights_that_nobody_can_read_are_scored_anew(lab, weights):
    tasks = lab.tasks("a")
    snapshots = [weights(), weights("sha256:2"), weights(None, version=1), weights(None, version=2)]
    for snapshot in snapshots:
        lab.score(tasks, snapshot=snapshot)
    assert [len(snapshot.asked) for snapshot in snapshots] == [1, 1, 1, 1]


def test_another_base_or_scale_below_equal_adapters_is_scored_anew(lab, weights):
    tasks, snapshots = lab.tasks("a"), [weights(), weights(), weights()]
    models = [
        ModelSpec(name="base", lora=LoraSpec()),
        ModelSpec(name="other", lora=LoraSpec()),
        ModelSpec(name="base", lora=LoraSpec(alpha=1.0)),
    ]
    for model, snapshot in zip(models, snapshots, strict=True):
        lab.score(tasks, snapshot=snapshot, model=model)
    assert [len(snapshot.asked) for snapshot in snapshots] == [1, 1, 1]


def test_a_deterministic_scoring_is_taken_whole_or_made_whole(lab, weights):
    def mine(model_output, expected, params, rollout):
        return NoScore(reason="not yet") if rollout.task_id == "t1" else 1.0

    lab.registry.register("verifier", "mine", mine)
    tasks = lab.tasks("a", "b", name="mine")
    first, second = weights(), weights()
    lab.score(tasks, snapshot=first, deterministic=True)
    lab.score(tasks, snapshot=second, deterministic=True)
    assert len(second.asked) == 2
    assert (lab.lookup["found"], lab.lookup["used"]) == (1, 0)
    other = weights()
    lab.score(tasks, snapshot=other, deterministic=False)
    assert lab.lookup["nearest"]["differences"][0]["path"] in {"tasks", "wave"}


# --- what isn't kept --------------------------------------------------------------------------------------------


def test_a_rollout_that_failed_is_tried_again_and_the_others_are_not(lab):
    tasks = lab.tasks("a", "crash")
    assert lab.score(tasks).no_score == 1
    assert lab.asked == ["a", "crash"]
    lab.score(tasks)
    assert lab.asked == ["a", "crash", "crash"]


def test_what_holds_a_secret_is_not_kept(lab):
    def leaks(model_output, expected, params):
        from evsys.types import Score

        return Score(value=1.0, metadata={"seen": "hush-hush-hush"})

    lab.registry.register("verifier", "leaks", leaks)
    tasks = lab.tasks("a", name="leaks")
    lab.score(tasks)
    lab.score(tasks)
    assert len(lab.asked) == 2


@pytest.mark.parametrize("attribute", ["cacheable", "deterministic"])
def test_a_verifier_that_may_judge_otherwise_is_asked_each_time(lab, attribute):
    def mine(model_output, expected, params):
        return 1.0

    setattr(mine, attribute, False)
    lab.registry.register("verifier", "mine", mine)
    for _ in range(2):
        lab.score(lab.tasks("a", name="mine"))
    assert len(lab.asked) == 2
    assert lab.lookup["reason"] == "verifier 'mine' may judge the same answer otherwise"


def test_a_damaged_cache_is_told_once_and_stops_nothing(lab):
    lab.store.path.parent.mkdir()
    lab.store.path.write_bytes(b"no database" * 100)
    result = lab.score(lab.tasks("a"))
    assert (result.status, result.scored) == ("completed", 1)
    assert len(lab.told) == 1
    assert "neither taken from the cache nor kept there" in lab.told[0]


def test_what_was_made_before_an_interruption_is_kept(lab):
    class Stops:
        name = "direct"

        async def run(self, tasks, policy, limits):
            from evsys_runtime.evaluation.recording import run_rollout

            yield await run_rollout(tasks[0], 0, 0, policy, timeout_seconds=5)
            raise RuntimeError("the engine broke")

    tasks = lab.tasks("a", "b")
    engine = lab.registry.get("rollout_engine", "direct")
    assert engine is not Stops
    lab.registry.register("rollout_engine", "stops", Stops)
    assert lab.score(tasks, engine="stops").status == "failed"
    assert lab.store.info().rollouts == 1
