import numpy as np
import pytest
import torch

from steinscope import InputError
from steinscope.kernels import fssd, fssd_test
from steinscope.kernels.fssd import _features

from helpers import normal, stein_sample


def test_features_against_their_definition():
    """s(x) k(x, v) + ∇k(x, v) at each location v, the gradient by autograd."""
    data, sites, width = stein_sample(6), stein_sample(2).x, torch.tensor(1.3, dtype=torch.float64)
    expected = []
    for point, score in zip(data.x, data.score, strict=True):
        for site in sites:
            x = point.clone().requires_grad_()
            k = torch.exp(-((x - site) ** 2).sum() / (2 * width**2))
            expected.append((score * k + torch.autograd.grad(k, x)[0]).detach())
    torch.testing.assert_close(_features(data, sites, width), torch.cat(expected).view(6, -1))


def test_the_statistic_is_the_u_statistic_of_its_features(monkeypatch):
    """n times the mean product of the features of two different points, divided by their number."""
    seen = []

    def spy(sample, sites, width):
        seen.append(_features(sample, sites, width))
        return seen[-1]

    monkeypatch.setattr(fssd, "_features", spy)
    x = normal(30, 2).double()
    result = fssd_test(x, 0.3 - x, steps=3)
    features = seen[-1].detach().numpy()
    n, count = features.shape
    products = features @ features.T
    expected = n * (products.sum() - np.trace(products)) / (n * (n - 1) * count)
    assert n == 24 and result.statistic == pytest.approx(expected)


def test_bad_input():
    x = normal(30, 2)
    with pytest.raises(InputError, match="locations: expected a whole number from 1 to 1000, got 0"):
        fssd_test(x, -x, locations=0)
    with pytest.raises(InputError, match="x: 9 rows are too few for this test, which needs 10"):
        fssd_test(x[:9], -x[:9])


def test_one_location_of_one_coordinate():
    x = normal(100, 1)
    assert 0 < fssd_test(x, -x, locations=1, steps=2).pvalue <= 1
