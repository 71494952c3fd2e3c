"""A verdict from one training run is about that checkpoint, wherever it is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_project import METADATA, RUN

from evsys_record import marks
from evsys_record.history import past_experiment
from evsys_record.index import Index
from evsys_record.marks import with_marks
from evsys_runtime.experiment.insight.context import context_of
from evsys_runtime.experiment.insight.markdown import context_markdown
from evsys_runtime.experiment.insight.text_budget import fit
from evsys_runtime.experiment.insight.why import explain
from evsys_runtime.experiment.verdict.prose import verdict_line


@pytest.mark.parametrize(("repeats", "subject"), [(1, "checkpoint"), (4, "recipe")])
def test_the_subject_of_a_verdict_goes_with_it(project, monkeypatch, repeats, subject):
    monkeypatch.setattr(marks, "DISQUALIFYING", marks.DISQUALIFYING - {"simulated"})
    project.write("train.jsonl", [{"prompt": "say a", "completion": "x"}] * 12)
    project.tasks([(f"t{i:02d}", f"say a, take {i}", "x") for i in range(40)])
    text = f"run:{RUN.replace('steps: 6', 'steps: 20')}n_repeats: {repeats}\n"
    result = project.experiment(text, metadata=METADATA.replace("max_tokens: 4", "max_tokens: 1")).run()
    assert (result.conclusion.verdict, result.conclusion.subject) == ("SUPPORTED", subject)
    stated = f"SUPPORTED (this {subject}"
    assert stated in verdict_line(result.conclusion)
    assert stated in Path(result.directory, "conclusion.md").read_text(encoding="utf-8")
    with Index(Path(result.directory).parent) as index:
        index.refresh()
        past = past_experiment(index, result.experiment_id)
        assert stated in with_marks(past.verdict, past.subject, past.marks)
        assert explain(index, result.experiment_id).subject == subject
        context = fit(context_of(index, project.root), 4000, context_markdown)
    (worked,) = (
        line
        for line in context_markdown(context).splitlines()
        if line.startswith(f"- {result.experiment_id}")
    )
    assert f"; {subject} {repeats}x40" in worked
