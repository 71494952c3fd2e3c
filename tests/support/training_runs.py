"""Whole runs on the mock backend, for tests of training: rows, a run's context over a real record, and resuming.

A conftest that imports `pytest_pyfunc_call` from here lets tests be `async def`.
"""

import asyncio
import hashlib
import inspect
from contextlib import asynccontextmanager

import attrs

from evsys import HookManager
from evsys.types import ChatMessagesRow, Clients, LoraSpec, Message, ModelSpec, RunContext
from evsys_backend_mock import MockBackend
from evsys_record.run_record import RunRecord
from evsys_runtime.experiment.state.seeds import Seeds
from evsys_runtime.training.checkpoints import RunCheckpoints, restorable

ANSWERS = {
    "SEND_EMAIL": ("email", "mail", "inbox"),
    "PLAY_SONG": ("song", "music", "tune"),
    "GET_WEATHER": ("rain", "weather", "sunny"),
    "CREATE_ISSUE": ("bug", "issue", "ticket"),
}
TEMPLATES = ("please {} for alice now", "can you handle the {} about bob", "the boss wants a {} today")
HELD_OUT = ("could somebody take care of {} soon", "we should sort out {} with them")


def pytest_pyfunc_call(pyfuncitem):
    """Run an `async def` test in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


class Rows(list):
    """Typed rows as a run's dataset."""

    @property
    def fingerprint(self):
        return "sha256:" + hashlib.sha256(repr(list(self)).encode()).hexdigest()


def questions(templates=TEMPLATES):
    """(question, answer): the answer is decided by one word of the question."""
    return [
        (t.format(word), answer) for t in templates for answer, words in ANSWERS.items() for word in words
    ]


def chat_rows(pairs=None):
    """Rows of one question and one answer each."""
    return Rows(
        ChatMessagesRow(
            messages=(Message(role="user", content=question), Message(role="assistant", content=answer)),
            row_id=f"row-{i}",
        )
        for i, (question, answer) in enumerate(questions() if pairs is None else pairs)
    )


class Log:
    """Collects events."""

    def __init__(self):
        self.events = []
        self._awaited = {}

    async def seen(self, event):
        """Wait for an event."""
        if not self.named(event):
            await self._awaited.setdefault(event, asyncio.Event()).wait()

    def __getattr__(self, level):
        def log(event, **facts):
            self.events.append((level, event, facts))
            if event in self._awaited:
                self._awaited[event].set()

        return log

    def named(self, event):
        return [facts for _, name, facts in self.events if name == event]


@attrs.define
class Run:
    """A run's folder with what belongs to it between attempts."""

    directory: object
    record: RunRecord
    model: ModelSpec
    base_seed: int = 0
    log: Log = attrs.field(factory=Log)
    warned: list = attrs.field(factory=list)

    @classmethod
    def create(cls, directory, *, base_seed=0, model=None):
        record = RunRecord(directory)
        record.create(directory.name)
        model = model or ModelSpec(name="evsys/tiny", lora=LoraSpec(rank=16))
        return cls(directory, record, model, base_seed)

    @asynccontextmanager
    async def attempt(self, data, *, backend=None, client=None, resume=False, roles=None, **fields):
        """The context of the next attempt, over a prepared client."""
        seeds = Seeds(base_seed=self.base_seed)
        entry = self.record.checkpoints.latest(self.record.attempts) if resume else None
        parent = {} if entry is None else {"parent": entry.attempt, "from_step": entry.step}
        attempt = self.record.start_attempt("resume" if resume else "start", **parent)
        restored = None if entry is None else restorable(entry)
        backend = backend or MockBackend()
        prepared = await backend.prepare(self.model, self.directory, seeds("model"), restored)
        checkpoints = RunCheckpoints(
            self.record.checkpoints,
            self.model,
            attempt=attempt.n,
            attempts=self.record.attempts,
            restored=restored,
        )
        defaults = {
            "config": {"algorithm": {"kind": "test"}, "backend": {"kind": "mock"}},
            "hooks": HookManager(),
            "deterministic": True,
        }
        ctx = RunContext(
            run_id=self.directory.name,
            arm="a",
            repeat=0,
            attempt=attempt.n,
            run_dir=self.directory,
            model=self.model,
            seeds=seeds,
            data=data,
            clients=Clients(policy=client(prepared) if client else prepared, **(roles or {})),
            record=self.record,
            checkpoints=checkpoints,
            log=self.log,
            warn=self.warned.append,
            **{**defaults, **fields},
        )
        try:
            yield ctx
        finally:
            await backend.teardown(prepared)
            self.record.close()

    async def train(self, algorithm, data, **fields):
        """One attempt from start to end."""
        async with self.attempt(data, **fields) as ctx:
            return await algorithm.train(ctx)

    # --- what tests look at -----------------------------------------------------------------------------------------

    def metrics(self):
        return [(line["step"], line["values"]) for line in self.record.read_metrics()]

    def batches(self):
        journal = list(self.record.read_journal())
        return [(x["step"], x["batch_id"], tuple(x["row_ids"])) for x in journal if x["event"] == "intent"]

    def weights(self, step=None):
        """Bytes of the backend's file in the last checkpoint, or in that of a step."""
        entries = self.record.checkpoints.complete(self.record.attempts)
        entry = entries[-1] if step is None else next(x for x in entries if x.step == step)
        return (entry.directory / "mock.npz").read_bytes()


async def accuracy(client, pairs):
    """Share of questions answered right, whole text, greedily, by a snapshot of the client."""
    from evsys.types import SamplingParams

    sampler = await client.sampling_client()
    prompts = [
        client.renderer.render_prompt((Message(role="user", content=question),)) for question, _ in pairs
    ]
    greedy = SamplingParams(max_tokens=48, temperature=0.0)
    results = await asyncio.gather(*(sampler.sample(tokens, greedy) for tokens in prompts))
    texts = [client.renderer.parse(result.sequences[0].tokens).content for result in results]
    return sum(text == answer for text, (_, answer) in zip(texts, pairs, strict=True)) / len(pairs)
