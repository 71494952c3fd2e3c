"""Chi-square tests of the sampler against the probabilities that training computes.

Seeds are fixed, so a run repeats; the bound on the p-value is what a right sampler falls below once in ten thousand.
"""

import math

import numpy as np
import pytest

from evsys_backend_local.engine.sampler import SampleRequest

DRAWS = 10_000
VOCAB = 17
PROMPT = [5, 1]
LEAST = 1e-4
SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 1.8},
    {"top_k": 4},
    {"top_k": 17},
    {"top_p": 0.6},
    {"top_p": 0.95},
    {"temperature": 0.7, "top_k": 6},
    {"temperature": 1.5, "top_p": 0.8},
    {"temperature": 1.3, "top_k": 8, "top_p": 0.7},
]


def p_value(counts, probabilities):
    """Upper tail of Pearson's statistic, cells with fewer than five expected draws pooled into one.

    The tail is by Wilson and Hilferty 1931: the cube root of chi-square over its degrees is nearly normal.
    """
    wanted = probabilities * counts.sum()
    common = wanted >= 5
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(wanted[common], wanted[~common].sum())
    if expected[-1] == 0:
        assert observed[-1] == 0, "a token was drawn that has no probability"
        observed, expected = observed[:-1], expected[:-1]
    statistic = ((observed - expected) ** 2 / expected).sum()
    freedom = len(expected) - 1
    spread = 2 / (9 * freedom)
    return 0.5 * math.erfc(((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(2 * spread))


def reshaped(probabilities, *, temperature=1.0, top_k=0, top_p=1.0):
    """Temperature, then the likeliest ``top_k``, then the fewest of those that reach ``top_p`` of their mass."""
    p = probabilities ** (1 / temperature)
    order = sorted(range(len(p)), key=lambda token: -p[token])
    kept = order[: top_k or len(p)]
    mass, nucleus = 0.0, []
    for token in kept:
        nucleus.append(token)
        mass += p[token]
        if mass >= top_p * sum(p[t] for t in kept):
            break
    result = np.zeros(len(p))
    result[nucleus] = p[nucleus]
    return result / result.sum()


def next_token(engine, context, **settings):
    """Probabilities of the token after ``context``, from the pass that training uses."""
    scored = engine.compute_logprobs(engine.base, [[*context, token] for token in range(VOCAB)])
    return reshaped(np.exp([float(own[-1]) for own in scored]), **settings)


def draws(engine, count, *, seed, max_tokens=1, **settings):
    request = SampleRequest(prompt=PROMPT, n=count, max_tokens=max_tokens, seed=seed, **settings)
    return np.asarray([sample.tokens for sample in engine.sample(engine.base, [request])[0].samples])


@pytest.fixture
def engine(make_engine):
    return make_engine(np.float32, block_rows=16, max_rows=128, scale=0.7)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_first_tokens_follow_the_distribution(engine, settings):
    counts = np.bincount(draws(engine, DRAWS, seed=11, **settings)[:, 0], minlength=VOCAB)
    assert p_value(counts, next_token(engine, PROMPT, **settings)) > LEAST


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_k": 6}, {"top_p": 0.8}], ids=str)
@pytest.mark.parametrize("window", [None, 2])
def test_pairs_of_tokens_follow_the_joint_distribution(make_engine, settings, window):
    """The second token comes out of decoding with cached keys, given whatever the first was."""
    engine = make_engine(np.float32, block_rows=16, max_rows=128, scale=0.7, window=window)
    first = next_token(engine, PROMPT, **settings)
    joint = np.stack([first[t] * next_token(engine, [*PROMPT, t], **settings) for t in range(VOCAB)])
    pairs = draws(engine, DRAWS, seed=12, max_tokens=2, **settings)
    counts = np.bincount(pairs[:, 0] * VOCAB + pairs[:, 1], minlength=VOCAB * VOCAB)
    assert p_value(counts, joint.reshape(-1)) > LEAST


def test_neighbouring_samples_are_independent(engine):
    tokens = draws(engine, 2 * DRAWS, seed=13)[:, 0]
    probabilities = next_token(engine, PROMPT)
    counts = np.bincount(tokens[0::2] * VOCAB + tokens[1::2], minlength=VOCAB * VOCAB)
    assert p_value(counts, np.outer(probabilities, probabilities).reshape(-1)) > LEAST


@pytest.mark.parametrize(
    ("drawn", "claimed"),
    [({"temperature": 0.9}, {}), ({"top_p": 0.9}, {"top_p": 0.95}), ({"top_k": 5}, {"top_k": 6})],
    ids=str,
)
def test_the_test_tells_settings_apart_that_are_close(engine, drawn, claimed):
    counts = np.bincount(draws(engine, DRAWS, seed=11, **drawn)[:, 0], minlength=VOCAB)
    assert p_value(counts, next_token(engine, PROMPT, **claimed)) < LEAST


def test_p_values_are_those_of_the_tables():
    # chi-square with 1, 4 and 10 degrees exceeds 3.841, 9.488 and 18.307 once in twenty
    for freedom, statistic in ((1, 3.841), (4, 9.488), (10, 18.307)):
        cells = freedom + 1
        expected = np.full(cells, 1000.0)
        shift = math.sqrt(statistic * 1000 / 2)
        counts = expected + np.array([shift, -shift] + [0] * (cells - 2))
        assert p_value(counts, np.full(cells, 1 / cells)) == pytest.approx(0.05, abs=0.004)
