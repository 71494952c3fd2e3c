"""Each family trained by an experiment, its checkpoint then read by peft: run by `nox -s oracles`."""

import numpy as np
import pytest

from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.engine import Engine
from evsys_backend_local.engine.state import load_state
from evsys_backend_local.models.adapter import read_adapter
from evsys_backend_local.models.resolve import load_base

pytestmark = [pytest.mark.oracles, pytest.mark.timeout(900)]

FAMILIES = ("llama", "smollm2", "mistral", "qwen2", "qwen3")
TOKENS = list(b"my mail GMAIL, a meet CALENDAR")


@pytest.fixture(scope="module")
def trained(routing, make_peer, tmp_path_factory):
    """Homes and checkpoints of the families, and the logits that peft gives for both together and for the base alone."""
    root = tmp_path_factory.mktemp("families")
    peer = make_peer(root / "out")
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for family in FAMILIES:
            checkpoint = routing.run(routing.write(root, family)) / "checkpoints" / str(routing.STEPS)
            found[family] = (root / family, checkpoint)
            peer.ask(f"{family}-base", "logits", model=root / family, tokens=TOKENS)
            peer.ask(family, "logits", model=root / family, adapter=checkpoint, tokens=TOKENS)
    peer.run()
    return found, peer


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_an_experiment_trained_reloads_in_peft_with_equal_logits(trained, family):
    found, peer = trained
    home, checkpoint = found[family]
    expected = log_softmax(peer[family]["logits"])
    assert np.abs(expected - log_softmax(peer[f"{family}-base"]["logits"])).max() > 0.5
    engine, saved = Engine(load_base(home), workers=1), read_adapter(checkpoint)
    model = engine.create_adapter(rank=saved.rank, alpha=saved.alpha, targets=saved.targets)
    load_state(model, checkpoint, with_optimizer=False)
    everything = np.tile(np.arange(engine.shape.vocab), (len(TOKENS), 1))
    ours = engine.forward(model, [Example(tokens=TOKENS, targets=everything)])[0]
    # Weights that steps this large made: float32 differs by 5e-5 where the products are summed in another order.
    np.testing.assert_allclose(ours, expected, atol=2e-4, rtol=0)
    engine.close()
