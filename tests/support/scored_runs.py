"""Arms that were scored by their mean reward, for what makes a verdict of them: nothing is run."""

from evsys.types import ArmResult, EvaluationResult, MetricValue
from evsys_runtime.experiment.verdict.question import Question

QUESTION = Question(
    benchmark="val",
    metric="mean_reward",
    direction="max",
    task_value=lambda rewards: sum(rewards) / len(rewards),
    baseline="base",
)


def scored_run(name, solved, *, repeat=0, purpose="candidate", benchmark="val", tasks=40, start=0, **fields):
    """A run that solves so many of its tasks, from the task `start` on."""
    rewards = {f"t{i:02d}": (1.0 if start <= i < start + solved else 0.0,) for i in range(tasks)}
    made = EvaluationResult(
        benchmark=benchmark,
        split="val",
        step=10,
        status="completed",
        metrics={"mean_reward": MetricValue(value=solved / tasks)},
        task_rewards=rewards,
        **{"benchmark_hash": "b", "verifier_hash": "v", **fields},
    )
    return ArmResult(
        run_id=f"{name}-s{repeat}",
        arm=name,
        repeat=repeat,
        seed=0,
        status="completed",
        identity=name,
        purpose=purpose,
        evaluations=(made,),
    )
