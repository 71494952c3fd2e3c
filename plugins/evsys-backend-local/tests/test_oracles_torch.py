"""The engine over torch's CPU tensors against the engine over numpy: `nox -s oracles` installs torch and runs this.

The other libraries' interpreter, named by `EVSYS_ORACLES_PEER`, runs `support/engine_numbers.py` over torch; this process
runs it over numpy.
"""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import evsys
import evsys_backend_local
import evsys_runtime
from evsys_backend_local.engine.arrays import NUMPY

pytestmark = [pytest.mark.oracles, pytest.mark.timeout(900)]

FAMILIES = ("llama", "smollm2", "mistral", "qwen2", "qwen3")
SOURCES = [str(Path(module.__file__).parents[1]) for module in (evsys, evsys_runtime, evsys_backend_local)]
KINDS = [(dtype, full) for dtype in ("float64", "float32") for full in (False, True)]
#: Operations that round nothing.
EXACT = {
    "below",
    "clip-low",
    "clip-high",
    "copy",
    "like",
    "maximum",
    "minimum",
    "permute",
    "put",
    "take",
    "zeros",
}
#: In float32 Adam divides by the roots of tiny squares: what differs in the last bits differs more after steps over all weights.
STEPPED = {
    ("float64", False): 1e-11,
    ("float64", True): 1e-11,
    ("float32", False): 1e-5,
    ("float32", True): 1e-4,
}


@pytest.fixture(scope="module")
def torch(make_peer, families, tmp_path_factory):
    """Numbers over torch. The engine needs Python 3.12."""
    peer = make_peer(tmp_path_factory.mktemp("torch") / "out")
    asked = [peer.python, "-c", "import sys; print(sys.version_info >= (3, 12))"]
    if subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() != "True":
        pytest.skip(f"{peer.python} is too old for evsys, which has to run beside torch")
    peer.ask("operations", "engine", what="operations", path=SOURCES)
    peer.ask("client", "engine", what="through_the_client", folder=str(peer.folder), path=SOURCES)
    for family in FAMILIES:
        for dtype, full in KINDS:
            name = name_of(family, dtype, full)
            job = {
                "home": str(families / family),
                "folder": str(peer.folder / name),
                "dtype": dtype,
                "full": full,
            }
            peer.ask(name, "engine", what="trained", path=SOURCES, **job)
    for family in FAMILIES:  # last: they put another table in the place of torch's
        for full in (False, True):
            name = numberless_name(family, full)
            job = {
                "home": str(families / family),
                "folder": str(peer.folder / name),
                "dtype": "float32",
                "full": full,
            }
            peer.ask(name, "engine_without_numbers", path=SOURCES, **job)
    peer.run()
    return peer


def name_of(family, dtype, full):
    return f"{family}-{dtype}-{'full' if full else 'lora'}"


def numberless_name(family, full):
    return f"{family}-numberless-{'full' if full else 'lora'}"


def close(found, expected, tolerance):
    np.testing.assert_allclose(found, expected, atol=tolerance, rtol=tolerance)


def test_every_operation_gives_the_same(engine_numbers, torch):
    found, expected = torch["operations"], engine_numbers.operations(NUMPY)
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        tolerance = 0 if name in EXACT else 1e-12
        np.testing.assert_allclose(found[name], array, atol=tolerance, rtol=tolerance, err_msg=name)


each = pytest.mark.parametrize("family", FAMILIES)
kinds = pytest.mark.parametrize(("dtype", "full"), KINDS)


@pytest.fixture
def both(engine_numbers, torch, families, tmp_path, family, dtype, full):
    """What numpy and torch gave."""
    home = families / family
    ours = engine_numbers.trained(NUMPY, home, tmp_path, dtype=dtype, full=full)
    theirs = torch[name_of(family, dtype, full)]
    assert set(ours) == set(theirs)
    return ours, theirs


@each
@kinds
def test_logprobs_and_gradients_are_the_same(both, dtype):
    ours, theirs = both
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    close(theirs["logprobs-0"], ours["logprobs-0"], tolerance)
    difference = np.linalg.norm(theirs["gradient-0"] - ours["gradient-0"])
    assert difference < tolerance * np.linalg.norm(ours["gradient-0"])


@each
@kinds
def test_five_training_steps_end_at_the_same_weights(both, dtype, full):
    ours, theirs = both
    tolerance = STEPPED[dtype, full]
    close(theirs["trained"], ours["trained"], tolerance)
    close(theirs["resumed"], ours["resumed"], tolerance)
    for step in range(5):
        close(theirs[f"logprobs-{step}"], ours[f"logprobs-{step}"], tolerance)
        close(theirs[f"norm-{step}"], ours[f"norm-{step}"], tolerance)


@each
@kinds
def test_the_same_draws_give_the_same_samples(both, dtype, full):
    ours, theirs = both
    names = [name for name in ours if name.startswith("sampled")]
    assert len([name for name in names if name.endswith("tokens")]) == 6
    for name in names:
        if name.endswith("tokens"):
            assert theirs[name].tolist() == ours[name].tolist()
        else:
            close(theirs[name], ours[name], STEPPED[dtype, full])


@each
@kinds
def test_numpy_goes_on_from_what_torch_saved(engine_numbers, torch, families, family, dtype, full):
    name = name_of(family, dtype, full)
    ours = engine_numbers.continued(NUMPY, families / family, torch.folder / name, dtype=dtype, full=full)
    close(ours["resumed"], torch[name]["resumed"], STEPPED[dtype, full])


def test_a_run_asks_the_same_of_both(engine_numbers, torch, tmp_path):
    ours, theirs = engine_numbers.through_the_client(NUMPY, tmp_path), torch["client"]
    assert theirs["tokens"].tolist() == ours["tokens"].tolist()
    for name, array in ours.items():
        close(theirs[name], array, 1e-5 * max(1, np.abs(array).max()))


@each
@pytest.mark.parametrize("full", [False, True])
def test_numbers_leave_a_device_by_one_door(torch, family, full):
    numberless, counted = torch[numberless_name(family, full)], torch[name_of(family, "float32", full)]
    assert set(numberless) == set(counted)
    assert numberless["trained"].tolist() == list(counted["trained"].shape)
