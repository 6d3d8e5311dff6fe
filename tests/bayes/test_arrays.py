"""Draws that are arrays already, and what takes them."""

import numpy as np
import pytest
import torch
from scipy import stats

from steinscope import InputError, compare, discrepancy, from_log_prob, gof_test, mode_weights
from steinscope.bayes import Draws, from_arrays
from steinscope.kernels import ksd_test
from steinscope.models import Gaussian

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 150, 3))
LOG_PROB = -0.5 * (X**2).sum(2)


class Normal:
    """The standard normal distribution, with log-density and score."""

    def log_prob(self, x):
        return -0.5 * (x**2).sum(1)

    def score(self, x):
        return -x


def test_chains_come_first_whatever_the_order_of_the_axes():
    expected = from_arrays(X, -X, log_prob=LOG_PROB)
    swapped = from_arrays(
        X.swapaxes(0, 1), -X.swapaxes(0, 1), dims=("draw", "chain"), log_prob=LOG_PROB.T, diverging=LOG_PROB.T < -9
    )
    for draws in (expected, swapped):
        assert draws.chains == 4 and len(draws) == 600 and draws.dim == 3
        assert np.array_equal(draws.x, X) and np.array_equal(draws.scores, -X)
        assert np.array_equal(draws.log_prob, LOG_PROB)
        assert np.array_equal(draws.to_numpy(), X.reshape(600, 3))
    assert np.array_equal(swapped.diverging, LOG_PROB < -9)
    one = from_arrays(X[0], -X[0])
    assert one.chains == 1 and np.array_equal(one.x[0], X[0]) and one.names == ("x[0]", "x[1]", "x[2]")


def test_later_axes_are_coordinates():
    x = X.reshape(4, 50, 3, 3)
    assert np.array_equal(from_arrays(x, -x).x, X.reshape(4, 50, 9))


def test_dictionaries_name_their_coordinates():
    draws = from_arrays(
        {"mu": X[..., 0], "theta": X[..., 1:]}, {"mu": -X[..., 0], "theta": -X[..., 1:]}, dims=("chain", "draw")
    )
    assert draws.names == ("mu", "theta[0]", "theta[1]") and np.array_equal(draws.x, X)


def test_what_is_tested_is_what_two_arrays_would_be():
    draws, rows = from_arrays(X, -X, names=["a", "b", "c"]), X.reshape(-1, 3)
    how = {"critics": "closed form", "seed": 3, "chains": False}
    assert gof_test(draws, **how).pvalue == gof_test(rows, -rows, **how).pvalue
    assert discrepancy(draws, **how).value == discrepancy(rows, -rows, **how).value
    ours = compare({"own": draws, "wide": -rows / 4}, draws, **how)
    theirs = compare({"own": -rows, "wide": -rows / 4}, rows, **how)
    assert ours.names == theirs.names == ("own", "wide") and np.array_equal(ours.values, theirs.values)
    assert ksd_test(draws, draws.model, chains=False).pvalue == ksd_test(rows, -rows).pvalue


def test_names_reach_the_findings():
    x = RNG.normal(size=(2, 500, 3)) + [0.0, 0.7, 0.0]
    result = gof_test(from_arrays(x, -x, names=["mu", "theta[Choate]", "log(tau)"]), critics="closed form")
    assert result.rejected and "theta[Choate]" in str(result)


def test_a_posterior_that_is_known_is_looked_at_for_modes():
    x = np.random.default_rng(1).normal(size=(2, 200, 1)) + np.array([-8.0, 8.0])[:, None, None]

    def log_prob(x):
        return torch.logsumexp(torch.cat([-0.5 * (x + 8) ** 2, 2 - 0.5 * (x - 8) ** 2], 1), 1)

    density = from_log_prob(log_prob)
    scores = density.score(torch.from_numpy(x.reshape(-1, 1))).numpy().reshape(x.shape)
    draws = from_arrays(x, scores, density=density)
    assert gof_test(draws, critics=["modes"], chains=False).rejected
    without = gof_test(from_arrays(x, scores), critics=["linear"], chains=False)
    assert any("modes were not looked at" in note for note in without.notes)
    assert mode_weights(draws, draws.model, chains=False).rejected


def test_another_model_can_be_tested_at_the_draws():
    draws = from_arrays(X, -X)
    assert gof_test(draws, stats.multivariate_normal(np.ones(3)), critics="closed form").rejected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_model_with_parameters_may_be_the_density(dtype):
    """A module of torch, which computes in single precision and whose scores have a graph."""
    x, density = X.astype(dtype), Gaussian(torch.zeros(3))
    draws = from_arrays(x, -x, log_prob=LOG_PROB, density=density)
    assert draws.density is density and not gof_test(draws, critics="closed form").rejected
    with pytest.raises(InputError, match="scores: they point downhill"):
        from_arrays(x, x, density=density)
    with pytest.raises(InputError, match="log_prob: its log-density differs from the sampler's"):
        from_arrays(x, -x, log_prob=2 * LOG_PROB, density=density)


def test_scores_of_an_energy_are_seen_where_the_log_density_is_known():
    for known in ({"log_prob": LOG_PROB}, {"density": Normal()}):
        from_arrays(X, -X, **known)
        with pytest.raises(InputError, match="scores: they point downhill: these are gradients of the energy"):
            from_arrays(X, X, **known)


@pytest.mark.parametrize("seed", range(5))
def test_right_scores_of_a_funnel_are_not_called_wrong(seed):
    """Between two draws of a funnel the scores change much, and the rule that tells signs must not mind."""
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(2, 200, 1)) * 3
    x = np.concatenate([v, np.exp(v / 2) * rng.normal(size=(2, 200, 9))], 2)
    squares = (x[..., 1:] ** 2).sum(2, keepdims=True) * np.exp(-v)
    scores = np.concatenate([-v / 9 - 4.5 + squares / 2, -x[..., 1:] * np.exp(-v)], 2)
    log_prob = (-(v**2) / 18 - 4.5 * v - squares / 2)[..., 0]
    from_arrays(x, scores, log_prob=log_prob)


BAD = {
    "scores: expected the shape of the draws, .4, 150, 3., got .4, 150, 2.": lambda: from_arrays(X, -X[..., :2]),
    "scores: draw 7 of chain 2 holds nan": lambda: from_arrays(X, np.where(X == X[2, 7, 1], np.nan, -X)),
    "names: expected one for each of 3 coordinates, got 1": lambda: from_arrays(X, -X, names=["a"]),
    "names: two coordinates are called 'a'": lambda: from_arrays(X, -X, names=["a", "a", "b"]),
    "names: expected one string for each coordinate, got 'abc'": lambda: from_arrays(X, -X, names="abc"),
    "dims: expected .'chain', 'draw'., .*got .'step',.": lambda: from_arrays(X, -X, dims=("step",)),
    "dims: needed for a dictionary": lambda: from_arrays({"a": X}, {"a": -X}),
    "scores: expected the variables of the draws": lambda: from_arrays(
        {"a": X, "b": X}, {"b": -X, "a": -X}, dims=("chain", "draw")
    ),
    "draws: variables have different numbers of chains and draws": lambda: from_arrays(
        {"a": X, "b": X[:2]}, {"a": X}, dims=("chain", "draw")
    ),
    "draws: expected .draws, coordinates. or": lambda: from_arrays(X[0, 0], -X[0, 0]),
    "log_prob: expected one value for each draw, .4, 150., got shape .4, 150, 3.": lambda: from_arrays(
        X, -X, log_prob=X
    ),
    "log_prob: its log-density differs from the sampler's": lambda: from_arrays(
        X, -X, log_prob=2 * LOG_PROB, density=Normal()
    ),
    "scores: at draw 199 the score of coordinate 1 is 3.131, and the gradient of the log-density is 1.566": lambda: (
        from_arrays(X, -2 * X, density=Normal())
    ),
    "x: expected draws of shape .chains, draws, coordinates.": lambda: Draws(X[0], -X[0]),
    "x: expected real numbers, got an array of complex128": lambda: Draws(X * 1j, -X),
    "model: expected a model or its scores at x; only Draws": lambda: gof_test(X[0]),
    "none of the 1 could be ranked; a: these draws are not x": lambda: compare(
        {"a": from_arrays(X, -X)}, X[::-1].reshape(-1, 3)
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_draws(message):
    with pytest.raises(InputError, match=message):
        BAD[message]()
