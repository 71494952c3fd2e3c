"""A project's past: hundreds of experiments as a lab leaves them, written to disk as runs write them, and what is true of them."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys.types import (
    ArmResult,
    Comparison,
    Conclusion,
    EvaluationResult,
    ExperimentResult,
    Failure,
    MetricValue,
    RunResult,
    Settling,
    Usage,
)
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.hashing import file_digest
from evsys_record.jsonl import append_record, read_jsonl
from evsys_record.look_ledger import ledger_path

BEGAN = 1_767_270_896.0
OLD = 1_700_000_000
MODELS = ("evsys/tiny", "org/smollm2-135m", "org/qwen-0.5b")
DATA = (
    "data/datasets/faq/v1/train.jsonl",
    "data/datasets/faq/v2/train.jsonl",
    "data/datasets/tickets/v1/train.jsonl",
)
METRICS = ("faq.mean_reward", "faq.mean_reward", "faq.mean_reward", "tickets.pass@1")
ALGORITHMS = {"sft": "evsys-algo-sft/sft", "dpo": "evsys-algo-dpo/dpo", "rl": "evsys-algo-rl/rl"}
IDEAS = (
    "More examples of {topic} help, since most errors are there.",
    "A larger rank learns {topic} without forgetting the rest.",
    "Warm-up over the first tenth keeps the loss from jumping on {topic}.",
    "Answers of {topic} are too long; a length penalty makes them right more often, «kürzer ist besser».",
    "Half the steps are enough for {topic}, so the budget pays for three more seeds.",
    "Filtering duplicates of {topic} out changes nothing that matters.",
)
TOPICS = ("refunds", "dates", "nested JSON", "tool calls", "small talk", "arithmetic", "日本語", "routing")
REGION = 3e-3
"""From this learning rate on `rl` collapses."""


@attrs.define(kw_only=True)
class Past:
    """What is true of the records: ids of experiments."""

    winners: list[str] = attrs.field(factory=list)
    open: list[str] = attrs.field(factory=list)
    answered: list[str] = attrs.field(factory=list)
    refuted: list[str] = attrs.field(factory=list)
    invalid: list[str] = attrs.field(factory=list)
    failed: dict[str, int] = attrs.field(factory=dict)


def write_conclusion(directory: Path, conclusion: Mapping[str, Any]) -> None:
    """Put another conclusion into a record as if its run had written it, with the hash and the line of the ledger that belong to it."""
    path = directory / "conclusion.json"
    path.write_text(json.dumps(conclusion), encoding="utf-8")
    facts = directory / "experiment.json"
    hashed = {**json.loads(facts.read_bytes()), "conclusion_hash": file_digest(path)}
    facts.write_text(json.dumps(hashed), encoding="utf-8")
    ledger = ledger_path(directory.parent)
    best = next((each for each in conclusion["comparisons"] if each["arm"] == conclusion["best_arm"]), {})
    shown = {name: best[name] for name in ("arm", "effect") if name in best}
    for line in list(read_jsonl(ledger, missing_ok=True)):
        if line.get("experiment_id") == directory.name and line.get("look"):
            look = {**line["look"], **shown, "verdict": conclusion["verdict"]}
            append_record(ledger, {**line, "look": look})


class Lab:
    """Writes experiments, from a seed."""

    def __init__(self, experiments: Path, seed: int = 0) -> None:
        self.experiments = experiments
        self.draw = random.Random(seed)
        self.past = Past()
        self.made = 0

    def write(self, count: int) -> Past:
        """`count` experiments of every kind that there is, in an order of chance."""
        kinds = ["win"] * 12 + ["candidate"] * 8 + ["open"] * 22 + ["refuted"] * 34 + ["failing"] * 14
        kinds += ["invalid"] * 2 + ["crashed"] * 2 + ["answered"] * 2 + ["undecided"] * 2
        for place in range(count):
            self.experiment(kinds[place % len(kinds)] if place % 7 else self.draw.choice(kinds))
        for where, folders, files in self.experiments.walk():
            for name in (*folders, *files):
                os.utime(where / name, (OLD, OLD))
        return self.past

    def experiment(self, kind: str) -> None:
        """One whose verdict is of this kind; `answered` is two, of which the second answers the first."""
        if kind == "answered":
            question = self._conclude("open", remember=False)
            self.past.answered.append(question)
            self.answer(question, "win")
            return
        if kind == "failing":
            self._failing()
            return
        self._conclude(kind)

    def run(self, algorithm: str | None = None, rate: float | None = None) -> dict[str, Any]:
        """The config of an arm, in full."""
        draw = self.draw
        algorithm = algorithm or draw.choice(["sft", "sft", "dpo", "rl"])
        rate = rate if rate is not None else float(f"{10 ** draw.uniform(-5.5, -2.7):.3g}")
        return {
            "data": {
                "source_kind": "jsonl",
                "path": draw.choice(DATA),
                "transforms": [{"kind": "evsys-std/jsonl_to_chat", "params": {}}],
            },
            "model": {"name": draw.choice(MODELS), "renderer": None},
            "algorithm": {
                "kind": ALGORITHMS[algorithm],
                "params": {
                    "learning_rate": rate,
                    "steps": draw.choice([50, 100, 200, 400]),
                    "batch_size": draw.choice([8, 16, 32]),
                    "lora_rank": draw.choice([4, 8, 16, 32]),
                    "schedule": draw.choice(["constant", "cosine"]),
                    "warmup_steps": draw.choice([0, 10]),
                    "max_length": draw.choice([512, 1024, 2048]),
                    "weight_decay": 0.0,
                    **({"group_size": draw.choice([4, 8]), "temperature": 1.0} if algorithm == "rl" else {}),
                },
            },
            "backend": {"kind": "evsys-backend-local/local", "params": {"dtype": "float32"}},
        }

    def begin(self, arms: Mapping[str, Mapping[str, Any]], repeats: int, **facts: Any) -> ExperimentRecord:
        """The record of an experiment that has just been planned."""
        draw = self.draw
        planned = [
            {"run_id": f"{arm}-s{repeat}", "arm": arm, "repeat": repeat}
            for repeat in range(repeats)
            for arm in arms
        ]
        name = f"{draw.choice(['rank', 'rate', 'data', 'steps', 'length'])}-{draw.choice(['faq', 'tickets'])}"
        given = {
            "success_metric": draw.choice(METRICS),
            "direction": "max",
            "baseline": "base_model",
            "tags": draw.sample(["faq", "nightly", "agent", "big"], 2),
            "project_goal_id": draw.choice(["faster-answers", "fewer-escalations"]),
            "hypothesis": draw.choice(IDEAS).format(topic=draw.choice(TOPICS)),
            **facts,
        }
        record = ExperimentRecord.create(
            self.experiments,
            name,
            b"version: 1\n",
            hypothesis=given["hypothesis"],
            facts={"arms": planned, **given},
            moment=BEGAN + 3600 * self.made,
        )
        self.made += 1
        record.note(created=_moment(record.experiment_id))
        record.write_resolved(
            [{**each, "run": {**arms[each["arm"]], "name": each["arm"]}} for each in planned]
        )
        return record

    def result(
        self,
        record: ExperimentRecord,
        arm: str,
        repeat: int,
        *,
        status: str = "completed",
        failure: Failure | None = None,
        stop_reason: str | None = None,
        warnings: tuple[str, ...] = (),
        scoring: Failure | None = None,
    ) -> None:
        """The record of a run that ended."""
        run = record.run(
            f"{arm}-s{repeat}", facts={"arm": arm, "repeat": repeat, "data": {"fingerprint": "sha256:d"}}
        )
        run.start_attempt()
        run.close()
        benchmark, _, metric = str(record.facts["success_metric"]).rpartition(".")
        scored = (
            EvaluationResult(
                benchmark=benchmark,
                split="val",
                step=100,
                status="completed" if scoring is None else "failed",
                failure=scoring,
                metrics={metric: MetricValue(value=0.5, low=0.4, high=0.6, n=100)},
                task_rewards={f"task-{number}": (1.0,) for number in range(20)},
            ),
        )
        steps = 100 if status == "completed" else self.draw.randrange(1, 90)
        run.write_result(
            ArmResult(
                run_id=f"{arm}-s{repeat}",
                arm=arm,
                repeat=repeat,
                seed=repeat,
                status=status,  # type: ignore[arg-type]
                identity="sha256:i",
                run=RunResult(status=status, steps=steps, stop_reason=stop_reason, warnings=warnings),  # type: ignore[arg-type]
                evaluations=scored if status == "completed" else (),
                failure=failure,
                seconds=30.0,
                usage=Usage(trained_tokens=20_000, prompt_tokens=900, completion_tokens=300, cost_usd=0.02),
            )
        )

    def end(
        self,
        record: ExperimentRecord,
        verdict: str | None,
        compared: list[Comparison],
        *,
        status: str = "completed",
        settle: str | None = None,
        settling: Settling | None = None,
        reason: str = "",
    ) -> None:
        """What an experiment ended with."""
        best = max(compared, key=lambda each: each.effect if each.effect is not None else -9.0, default=None)
        conclusion = Conclusion(
            verdict=verdict,  # type: ignore[arg-type]
            reason=reason or f"it is {verdict}",
            metric=record.facts["success_metric"],
            direction="max",
            baseline="base_model",
            minimum_effect=0.05,
            best_arm=best.arm if best and best.effect is not None else None,
            comparisons=tuple(compared),
            settle=settle,
            settling=settling,
        )
        record.write_result(
            ExperimentResult(
                experiment_id=record.experiment_id,
                name=record.facts["name"],
                status=status,  # type: ignore[arg-type]
                directory=str(record.directory),
                conclusion=conclusion,
                seconds=120.0,
                usage=Usage(trained_tokens=60_000, prompt_tokens=3_000, completion_tokens=900, cost_usd=0.08),
            )
        )

    def answer(self, question: str, outcome: str, **facts: Any) -> str:
        """A child that compares the first arm of an experiment again, and decides it."""
        asked = json.loads((self.experiments / question / "experiment.json").read_bytes())
        resolved = json.loads((self.experiments / question / "resolved.json").read_bytes())
        first = resolved["arms"][0]
        given = {"parent_experiment_id": question, "success_metric": asked["success_metric"], **facts}
        record = self.begin({first["arm"]: first["run"]}, 1, **given)
        self.result(record, first["arm"], 0)
        self.end(
            record,
            "SUPPORTED" if outcome == "win" else "REFUTED",
            [self._comparison(first["arm"], outcome, 1)],
        )
        if outcome == "win":
            self.past.winners.append(record.experiment_id)
        return record.experiment_id

    def _conclude(self, kind: str, *, remember: bool = True, **facts: Any) -> str:
        draw, past = self.draw, self.past
        several = kind == "candidate" or (kind not in ("win", "crashed") and draw.random() < 0.5)
        base = self.run()
        rates = [
            float(f"{10 ** draw.uniform(-5.5, -2.7):.3g}")
            for _ in range(draw.randrange(2, 7) if several else 1)
        ]
        arms = {}
        for rate in rates:
            params = {**base["algorithm"]["params"], "learning_rate": rate}
            arms[f"learning_rate={rate:g}"] = {**base, "algorithm": {**base["algorithm"], "params": params}}
        repeats = draw.choice([1, 1, 2, 4, 5])
        record = self.begin(arms, repeats, **facts)
        name = record.experiment_id
        ends = range(repeats) if kind != "crashed" else range(0)
        for repeat in ends:
            for arm in arms:
                self.result(record, arm, repeat)
        if kind == "crashed":
            record.lock.__enter__()
            record.lock.__exit__(None, None, None)
            return name
        outcomes = {
            "win": ["win"],
            "candidate": ["win", "loss", "inconclusive"],
            "refuted": ["tie", "loss"],
            "open": ["inconclusive", "tie"],
        }
        compared = [
            self._comparison(
                arm,
                (outcomes.get(kind) or ["inconclusive"])[0 if place == 0 else draw.randrange(-1, 1)],
                repeats,
            )
            for place, arm in enumerate(arms)
        ]
        verdict = {
            "win": "SUPPORTED",
            "candidate": "CANDIDATE",
            "refuted": "REFUTED",
            "open": "INCONCLUSIVE",
            "invalid": "INVALID",
            "undecided": None,
        }[kind]
        settle = settling = None
        if kind == "candidate":
            settle = f"score {compared[0].arm} and base_model again on fresh rollouts or seeds"
        if kind == "open":
            settling = Settling(arm=compared[0].arm, tasks=draw.randrange(150, 900))
            settle = f"about {settling.tasks} tasks would show an effect of 0.05 for {settling.arm} (100 tasks were scored)"
        self.end(
            record,
            verdict,
            compared if kind != "undecided" else [],
            settle=settle,
            settling=settling,
            status="invalid" if kind == "invalid" else "completed",
            reason="fewer than 10 common tasks" if kind == "invalid" else "",
        )
        if remember:
            where = {
                "win": past.winners,
                "candidate": past.winners,
                "open": past.open,
                "refuted": past.refuted,
                "invalid": past.invalid,
            }
            where.get(kind, []).append(name)
        return name

    def tried_anew(self, experiment: str, arm: str, outcome: str) -> None:
        """Have an experiment on record a winner tried once more, with an effect of 0.01 [-0.09, 0.11] from 0.4."""
        path = self.experiments / experiment / "conclusion.json"
        conclusion = json.loads(path.read_bytes())
        (first,) = (each for each in conclusion["comparisons"] if each["arm"] == arm)
        fresh = {"outcome": outcome, "effect": 0.01, "low": -0.09, "high": 0.11, "after": 0.41}
        conclusion["confirmed"] = {
            "benchmark": conclusion["metric"].partition(".")[0],
            "metric": conclusion["metric"],
            "seeds": 1,
            "runs": [f"{arm}-s1"],
            "comparison": {**first, **fresh},
        }
        write_conclusion(path.parent, conclusion)

    def _comparison(self, arm: str, outcome: str, seeds: int) -> Comparison:
        effect = {"win": 0.2, "loss": -0.2, "tie": 0.0, "inconclusive": 0.04}[outcome] + self.draw.uniform(
            -0.02, 0.02
        )
        half = 0.1 if outcome == "inconclusive" else 0.04
        return Comparison(
            arm=arm,
            outcome=outcome,  # type: ignore[arg-type]
            before=0.4,
            after=0.4 + effect,
            effect=effect,
            low=effect - half,
            high=effect + half,
            p_value=0.01,
            p_corrected=0.02,
            claim="recipe" if seeds >= 4 else "checkpoint",
            n_tasks=100,
            n_seeds=seeds,
        )

    def _failing(self) -> None:
        """A sweep in which some arms fail: in one of the ways that a lab knows."""
        draw = self.draw
        way = draw.choice(
            ["collapse", "collapse", "memory", "server", "torn", "stalled", "verifier", "diverged"]
        )
        failure, status, stop = _failure(way, draw)
        arms: dict[str, dict[str, Any]] = {}
        failing = set()
        base = self.run("rl" if way == "collapse" else None)
        for place in range(draw.randrange(2, 5)):
            bad = place % 2 == 0
            rate = float(f"{10 ** draw.uniform(-2.5, -1.0):.3g}") if bad and way == "collapse" else None
            run = self.run("rl" if way == "collapse" else None, rate)
            run = {**base, "algorithm": run["algorithm"]}
            if way == "memory":
                run = {
                    **run,
                    "algorithm": {
                        **run["algorithm"],
                        "params": {**run["algorithm"]["params"], "max_length": 8192 if bad else 1024},
                    },
                }
            name = f"arm-{place}"
            arms[name] = run
            if bad or way in ("torn", "server"):
                failing.add(name)
        record = self.begin(arms, 1)
        for arm in arms:
            if arm in failing:
                self.result(record, arm, 0, status=status, failure=failure, stop_reason=stop)
                self.past.failed[way] = self.past.failed.get(way, 0) + 1
            else:
                self.result(record, arm, 0)
        compared = [
            self._comparison(arm, "loss", 1)
            if arm not in failing
            else Comparison(arm=arm, outcome="unscored", reason="it failed")
            for arm in arms
        ]
        verdict = "REFUTED" if len(failing) < len(arms) else "INCONCLUSIVE"
        self.end(record, verdict, compared, status="partial")
        if verdict == "REFUTED":
            self.past.refuted.append(record.experiment_id)


def _failure(way: str, draw: random.Random) -> tuple[Failure | None, str, str | None]:
    number = draw.randrange(10, 10_000)
    kinds = {
        "memory": ("backend", f"out of memory: {number} MiB wanted, 512 free", "BackendError"),
        "server": (
            "backend",
            f"no answer from 10.0.0.{number % 250}:8000 within 30 s",
            "ServiceUnavailableError",
        ),
        "torn": (
            "data",
            f"/data/datasets/faq/v1/train.jsonl:{number}: line {number} isn't JSON",
            "DataError",
        ),
        "verifier": ("verifier", f"KeyError: 'expected_{number}'", "KeyError"),
        "diverged": (
            "algorithm",
            f"datum {number % 32} of step {number} has logprobs that aren't finite",
            "AlgorithmError",
        ),
    }
    if way == "collapse":
        return (
            None,
            "collapsed",
            f"the mean reward fell from 0.{number % 90 + 10} to 0.0 within {number % 40} steps",
        )
    if way == "stalled":
        return (
            Failure(boundary="backend", message=f"no progress for {number} s", error_type="StalledError"),
            "stalled",
            None,
        )
    boundary, message, error = kinds[way]
    return Failure(boundary=boundary, message=message, error_type=error, place="x.py:3"), "failed", None


def _moment(experiment_id: str) -> str:
    day, time = experiment_id.split("-")[:2]
    return f"{day[:4]}-{day[4:6]}-{day[6:8]}T{time[:2]}:{time[2:4]}:{time[4:6]}.000Z"
