import numpy as np
import pytest
import torch

from steinscope import InputError
from steinscope.kernels import ksd_estimate, ksd_test, linear_ksd_test
from steinscope.kernels.stein_kernel import stein_kernel
from steinscope.maps.radial import radial
from steinscope.models import Gaussian

from helpers import generator, normal, stein_sample


def test_the_statistic_does_not_depend_on_where_the_data_lie():
    x, model = np.random.default_rng(0).normal(size=(200, 3)), Gaussian(torch.full((3,), 0.1).double())
    shifted = ksd_test(x + 100, np.asarray(model.score(torch.from_numpy(x)).detach()))
    plain = ksd_test(x, np.asarray(model.score(torch.from_numpy(x)).detach()))
    assert shifted.statistic == pytest.approx(plain.statistic, rel=1e-9) and shifted.pvalue == plain.pvalue


@pytest.mark.parametrize("bandwidth", [2.0, "median", "learned", "largest"])
@pytest.mark.parametrize("test", [ksd_test, linear_ksd_test])
def test_bandwidths(test, bandwidth):
    """Whatever the width, the truth is not rejected at 1% and a shift of one is."""
    data = Gaussian(torch.zeros(3))
    x = data.sample(300, seed=4)
    assert 0.01 <= test(x, data, bandwidth=bandwidth).pvalue <= 1
    assert test(x, Gaussian(torch.ones(3)), bandwidth=bandwidth).pvalue < 0.01


def test_an_unknown_bandwidth_names_the_known_ones():
    x = normal(30, 2)
    with pytest.raises(InputError, match='bandwidth: expected a number, "median", "learned" or "largest"'):
        ksd_test(x, -x, bandwidth="wide")


@pytest.mark.parametrize("kernel", ["gaussian", "imq"])
def test_estimates_against_brute_force(kernel):
    data = stein_sample(60)
    matrix = stein_kernel(radial(kernel, 1.5), data, data).fill_diagonal_(0.0)
    quadratic = ksd_estimate(data.x, data.score, kernel=kernel, bandwidth=1.5)
    assert quadratic.value == pytest.approx(float(matrix.sum() / (60 * 59)))
    linear = ksd_estimate(data.x, data.score, kernel=kernel, bandwidth=1.5, estimator="linear")
    # Any pairing has the same mean up to its own standard error.
    assert abs(linear.value - quadratic.value) < 4 * linear.stderr


def test_the_standard_error_of_an_estimate():
    """200 repetitions under a wrong model: the spread of the estimates is what they say, within 5 standard errors."""
    runs = [ksd_estimate(x, 0.8 - x, bandwidth=2.0) for s in range(200) for x in [normal(150, 2, 500 + s)]]
    values, errors = (np.array([getattr(run, key) for run in runs]) for key in ("value", "stderr"))
    assert abs(values.std(ddof=1) / errors.mean() - 1) < 5 / np.sqrt(2 * 200) + 0.1


def test_the_largest_bandwidth_is_the_one_with_the_largest_discrepancy():
    x = normal(500, 2, 3)
    chosen = ksd_estimate(x, 0.5 - x, bandwidth="largest")
    values = [ksd_estimate(x, 0.5 - x, bandwidth=chosen.bandwidth * factor).value for factor in (0.5, 1.0, 2.0)]
    assert values[1] > 0.8 * max(values)
    with pytest.raises(InputError, match="bandwidth: expected a number, .* or \"largest\", got 'huge'"):
        ksd_estimate(x, -x, bandwidth="huge")


def test_units_that_come_from_the_points_keep_the_level_where_scores_are_skewed():
    """Gumbel coordinates, 200 tests at 5%: 22 rejections are four standard errors more than 10."""
    rejected = 0
    for seed in range(200):
        uniform = torch.rand(50, 20, generator=generator(seed)).clamp(1e-6, 1 - 1e-6)
        x = -(-uniform.log()).log()
        rejected += ksd_test(x, (-x).exp() - 1, draws=200, seed=seed).rejected
    assert rejected <= 22
