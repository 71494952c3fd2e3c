"""Every number of a conclusion follows from the record: a script that knows nothing of evsys finds the same ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evsys_runtime.experiment import Experiment

CONFIG = """version: 1
name: two by two
n_repeats: 3
metadata:
  success_metric: val.mean_reward
  benchmark:
    - {name: val, path: tasks.jsonl, max_tokens: 2, cluster_key: page, num_samples: 2, temperature: 1.5, metrics: [mean_reward]}
    - {name: final, path: tasks.jsonl, max_tokens: 2, split: test}
matrix:
  axes:
    algorithm.params.learning_rate: [%s]
    algorithm.params.batch_size: [4, 8]
control: {repeats: 2}
confirm: {seeds: 2}
base_run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: %d, lora_rank: 4}}
  backend: {kind: %s}
"""
EARLIER = """version: 1
name: earlier
metadata:
  benchmark: {name: last, path: tasks.jsonl, max_tokens: 2, split: test}
run:
  data: {path: train.jsonl, transforms: [{kind: jsonl_to_chat}]}
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {steps: 2, batch_size: 4, lora_rank: 4}}
  backend: {kind: mock}
"""
ANSWERS = {"a": "x", "b": "y"}  # evsys/tiny as it comes says the last letter again
ODD = "^(%s|[A-Z])"  # what it was taught; or luck at a high temperature, which differs from run to run
NUMBERS = ("before", "after", "effect", "p_value", "p_corrected", "smallest_detectable_effect")
COUNTS = ("n_tasks", "n_seeds", "n_baseline_seeds", "n_missing", "outcome")


@pytest.mark.parametrize(
    ("backend", "rates", "steps"),
    [("mock", "0.1, 0.05", 20), pytest.param("local", "0.02, 0.01", 30, marks=pytest.mark.slow)],
)
def test_a_script_without_evsys_recomputes_the_conclusion_from_the_record_alone(
    tmp_path, backend, rates, steps
):
    rows = [{"prompt": f"say {c}", "completion": ANSWERS[c]} for c in "aab" * 4]
    tasks = [
        {
            "task_id": f"t{i:02d}",
            "instruction": f"say {'ab'[i % 2]}, {i}",
            "metadata": {"page": str(i * i % 11)},
            "verifier": {"name": "regex_match", "expected": ODD % ANSWERS["ab"[i % 2]]},
        }
        for i in range(36)
    ] + [
        {
            "task_id": f"u{i:02d}",
            "instruction": f"say a, u{i}",
            "metadata": {"page": f"other {i % 5}"},
            "verifier": {"name": "regex_match", "expected": ODD % (ANSWERS["a"] if i % 7 else "never")},
        }
        for i in range(15)
    ]
    for name, lines in (("train.jsonl", rows), ("tasks.jsonl", tasks)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (tmp_path / "config.yaml").write_text(CONFIG % (rates, steps, backend), encoding="utf-8")
    (tmp_path / "earlier.yaml").write_text(EARLIER, encoding="utf-8")
    Experiment.from_yaml(tmp_path / "earlier.yaml", quiet=True).run()
    result = Experiment.from_yaml(tmp_path / "config.yaml", quiet=True).run()
    script = Path(__file__).with_name("recomputed.py")
    said = subprocess.run(
        [sys.executable, "-I", str(script), result.directory], capture_output=True, text=True, check=True
    )
    found = json.loads(said.stdout)
    conclusion = json.loads((Path(result.directory) / "conclusion.json").read_text(encoding="utf-8"))
    assert len(conclusion["comparisons"]) == len(found["comparisons"]) == 4
    for comparison in conclusion["comparisons"]:
        own = found["comparisons"][comparison["arm"]]
        assert [comparison[name] for name in NUMBERS] == pytest.approx([own[name] for name in NUMBERS])
        assert [comparison[name] for name in COUNTS] == [own[name] for name in COUNTS]
        for bound in ("low", "high"):
            assert comparison[bound] == pytest.approx(own[bound], abs=own["tolerance"])
    assert (conclusion["verdict"], conclusion["best_arm"]) == (found["verdict"], found["best_arm"])
    confirmed, again = conclusion["confirmed"], found["confirmed"]
    comparison = confirmed["comparison"]
    assert (comparison["arm"], confirmed["runs"]) == (again["arm"], again["runs"])
    beats = f"{again['arm']}, the best of 4 arms, beats base_model when retrained; "
    assert (
        conclusion["reason"]
        == f"{beats}enough to choose this checkpoint, not to expect the same of another run of its recipe"
    )
    assert [comparison[name] for name in NUMBERS] == pytest.approx([again[name] for name in NUMBERS])
    assert [comparison[name] for name in COUNTS] == [again[name] for name in COUNTS]
    for bound in ("low", "high"):
        assert comparison[bound] == pytest.approx(again[bound], abs=again["tolerance"])
    noise, equal = conclusion["noise_floor"], found["noise_floor"]
    assert noise["runs"] == pytest.approx(equal["runs"])
    assert noise["largest"] == pytest.approx(equal["largest"])
    assert noise["standard_deviation"] == pytest.approx(equal["standard_deviation"])
    assert len(noise["runs"]) == 5
    assert (noise["largest"] > 0) == (backend == "mock")  # untrained weights of `local` have no luck here
    assert conclusion["test_looks_before"] == found["test_looks_before"] == {"final": 2}
    for name, value in found["usage"].items():
        assert conclusion["usage"][name] == pytest.approx(value)
    assert conclusion["test_looks"] == found["test_looks"]
    assert (conclusion["claim"], conclusion["margin"], conclusion["subject"]) == ("better", 0.0, "checkpoint")
