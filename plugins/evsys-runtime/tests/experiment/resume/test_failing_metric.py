"""A metric that fails costs its own value and nothing else, and a resume computes it again without training."""

from small_project import METADATA

from evsys_runtime.experiment import Experiment

FRAGILE = """
from pathlib import Path

from evsys_sdk import register_metric

@register_metric("fragile")
class Fragile:
    direction = "max"

    def compute(self, task_rewards):
        if len(task_rewards) > 3 and (Path(__file__).parent / "broken").exists():
            raise RuntimeError("it is broken")
        return sum(map(sum, task_rewards)) / len(task_rewards)
"""


def scored(project, success: str):
    (project.root / "src").mkdir(exist_ok=True)
    (project.root / "src/broken").touch()
    project.code("metrics", FRAGILE)
    metadata = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    metrics: [mean_reward, fragile]")
    return project.experiment(metadata=metadata.replace("val.mean_reward", f"val.{success}")).run()


def test_the_other_metrics_decide_and_the_exit_code_tells(project):
    result = scored(project, "mean_reward")
    assert result.exit_code == 1
    assert result.conclusion.verdict != "INVALID"
    assert result.conclusion.comparisons[0].outcome != "unscored"
    for evaluation in result.arms[0].evaluations:
        assert evaluation.status == "completed"
        assert evaluation.metrics["mean_reward"].value is not None
        assert evaluation.failed_metrics.keys() == {"fragile"}
        assert "RuntimeError: it is broken" in evaluation.failed_metrics["fragile"]


def test_an_arm_whose_success_metric_failed_is_unscored_with_the_reason(project):
    result = scored(project, "fragile")
    [comparison] = result.conclusion.comparisons
    assert (result.exit_code, comparison.outcome) == (1, "unscored")
    assert "the success metric failed (RuntimeError: it is broken" in comparison.reason


def test_a_resume_computes_the_metric_again_and_trains_nothing(project):
    first = scored(project, "mean_reward")
    (project.root / "src/broken").unlink()
    again = Experiment.resume(first.directory, quiet=True).run()
    assert (again.exit_code, again.status) == (0, "completed")
    [arm] = again.arms
    assert arm.run.steps == first.arms[0].run.steps
    for before, after in zip(first.arms[0].evaluations, arm.evaluations, strict=True):
        assert after.fully_scored
        assert after.metrics["fragile"].value == after.metrics["mean_reward"].value
        assert after.metrics["mean_reward"] == before.metrics["mean_reward"]
