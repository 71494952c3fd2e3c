"""What a server's tokens cost by the price list, those that a reference reads among them."""

import pytest
from small_project import Project

pytest.importorskip("evsys_algo_dpo")

RUN = """
run:
  data: {{source_kind: jsonl, path: pairs.jsonl}}
  model: {{name: evsys/tiny}}
  algorithm: {{kind: dpo, params: {{learning_rate: 0.01, steps: 2, batch_size: 4, lora_rank: 4}}}}
  backend: {{kind: tinker, params: {{provider: evsys, base_url: "{base_url}"}}}}
"""


@pytest.mark.parametrize("known", [True, False])
def test_the_reference_of_dpo_costs_what_reading_its_tokens_does(mock_server, tmp_path, known):
    project = Project(tmp_path)
    pairs = [{"prompt": f"say {c}", "chosen": c, "rejected": "no"} for c in "abcdefgh"]
    project.write("pairs.jsonl", pairs)
    name = "evsys/tiny" if known else "another"
    prices = f'[models."{name}"]\nprompt = 2.0\ncompletion = 100.0\ntraining = 8.0\n'
    (tmp_path / "prices.toml").write_text(prices, encoding="utf-8")
    experiment = project.experiment(
        RUN.format(base_url=mock_server.base_url),
        metadata="metadata: {hypothesis: it learns}\n",
        skip_grader_check=True,
        no_cache=True,
    )
    [arm] = experiment.run().arms
    assert arm.status == "completed", arm.failure
    held, whole = arm.run.roles["reference"], arm.run.usage
    assert held.prompt_tokens > 0
    assert held.tokens == held.prompt_tokens
    if known:
        assert held.cost_usd == pytest.approx(held.prompt_tokens * 2.0 / 1e6)
        trained = whole.trained_tokens * 8.0 / 1e6
        assert (whole.cost_usd, whole.without_price) == (pytest.approx(held.cost_usd + trained), 0)
    else:
        assert (held.cost_usd, held.without_price) == (None, 2)  # forward passes
