"""Files and tasks that can't work: each ends with a sentence that says what is wrong, in whole experiments."""

import json

import pytest
from small_project import Project

CONFIG = """
run:
  data:
    source_kind: jsonl
    path: rows.jsonl
    transforms:
      - {{kind: jsonl_to_tasks, params: {{instruction_column: question, {expected}, verifier: {verifier}}}}}
  model: {{name: evsys/tiny}}
  algorithm:
    kind: rl
    params: {{learning_rate: 0.05, steps: 2, batch_size: 2, group_size: 2, lora_rank: 4, max_tokens: 4}}
  backend: {{kind: {backend}}}
"""


@pytest.fixture
def failed(tmp_path):
    """The failure of the only arm, whose rows ask `question`."""
    project = Project(tmp_path)

    def run(question="what?", expected="expected_column: answer", verifier="exact_match", backend="mock"):
        rows = [{"question": f"{question}{i}", "answer": str(i)} for i in range(4)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (project.root / "rows.jsonl").write_text(text, encoding="utf-8")
        config = CONFIG.format(expected=expected, verifier=verifier, backend=backend)
        [arm] = project.experiment(config).run().arms
        assert (arm.status, arm.run.steps) == ("failed", 0)
        return arm.failure

    return run


def test_a_column_that_no_row_has_is_named_with_those_that_there_are(failed):
    failure = failed(expected="expected_column: anwser")
    assert failure.boundary == "data"
    assert "'anwser'" in failure.message
    assert "answer" in f"{failure.message} {failure.hint}".replace("anwser", "")


def test_a_column_in_a_template_that_no_row_has_is_named(failed):
    failure = failed(expected='expected_template: "<{anwser}>"')
    assert "anwser" in failure.message
    assert failure.boundary == "data"


def test_a_verifier_that_nobody_has_is_named_before_anything_is_sampled(failed):
    failure = failed(verifier="exactly")
    assert "can't be judged" in failure.message
    assert "'exactly'" in failure.message


def test_a_conversation_longer_than_the_context_is_told_as_that(failed):
    failure = failed(question="x" * 2000, backend="local")
    assert "none of the 4 rollouts of step 1 can be learnt from: 4 error" in failure.message
    assert "1024" in failure.hint
