"""Kernel densities of scikit-learn, by a stand-in; `tests_bayes/test_blackjax.py` has the real one."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from steinscope import InputError, gof_test
from steinscope.densities import as_density, model_of
from steinscope.kernel_density import as_kernel_sum


class KernelDensity:
    """What a fitted one has. Its own values are off, as those of the tree are at points far from others."""

    __module__ = "sklearn.neighbors._kde"
    kernel, metric = "gaussian", "euclidean"

    def __init__(self, x, bandwidth, weights=None):
        self.tree_, self.bandwidth_ = SimpleNamespace(data=x, sample_weight=weights), bandwidth

    def fit(self, x):
        return self

    def get_params(self):
        return {}

    def score_samples(self, x):
        return np.round(-0.5 * (x**2).sum(1), 1)


def points(n, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(n, dim))


@pytest.mark.parametrize("dim", [1, 3, 30])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_log_density_and_score_are_those_of_the_mixture(dim, is_weighted):
    centres, x, h = 5.0 + points(80, dim), 5.0 + points(40, dim, 1), 0.4
    x[0] += 30.0
    weights = np.random.default_rng(2).random(80) if is_weighted else None
    share = np.full(80, 1 / 80) if weights is None else weights / weights.sum()
    parts = np.log(share) + np.stack([multivariate_normal(y, h**2 * np.eye(dim)).logpdf(x) for y in centres], 1)
    expected = logsumexp(parts, 1)
    pull = np.exp(parts - expected[:, None]) @ centres
    model = KernelDensity(centres, h, weights)
    assert np.allclose(model_of(None, model).log_prob(torch.from_numpy(x)), expected, rtol=1e-12)
    assert np.allclose(as_density(model).score(torch.from_numpy(x)), (pull - x) / h**2, rtol=1e-9, atol=1e-9)
    # Autograd goes through the log-density.
    y = torch.from_numpy(x).requires_grad_()
    (slope,) = torch.autograd.grad(model_of(None, model).log_prob(y).sum(), y)
    assert np.allclose(slope, (pull - x) / h**2, rtol=1e-9, atol=1e-9)


def test_a_kernel_density_has_the_level_and_sees_a_wrong_bandwidth():
    centres = points(50, 2)
    x = centres[np.random.default_rng(1).integers(50, size=1000)] + 0.5 * points(1000, 2, 2)
    found = [gof_test(x, KernelDensity(centres, h), critics="closed form") for h in (0.5, 0.4)]
    assert found[0].pvalue > 0.01 and found[1].rejected


def test_others_are_left_to_their_own_values():
    model = KernelDensity(points(10, 2), 1.0)
    model.kernel = "tophat"
    assert as_kernel_sum(model) is None and as_kernel_sum(SimpleNamespace(kernel="gaussian")) is None


def test_points_of_another_width_are_one_line():
    with pytest.raises(InputError, match="model: expected points of 3 coordinates, as those .* fitted to, got 2"):
        gof_test(points(30, 2), KernelDensity(points(10, 3), 1.0))
