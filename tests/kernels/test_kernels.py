"""Every kernel test against brute force at small n, and its level and power."""

from functools import partial

import numpy as np
import pytest
import torch

from steinscope import InputError
from steinscope.kernels import fssd_test, ksd_estimate, ksd_test, ksdagg_test, linear_ksd_test, mmd_test
from steinscope.kernels.bootstrap import random_signs, u_statistics
from steinscope.kernels.stein_kernel import Sample, radial, stein_kernel, stein_tiles
from steinscope.models import Gaussian

from helpers import generator

TESTS = {"ksd": ksd_test, "linear": linear_ksd_test, "fssd": fssd_test, "ksdagg": ksdagg_test}


def sample(n=30, dim=3):
    x = torch.randn(n, dim, dtype=torch.float64, generator=generator())
    return Sample(x, torch.sin(x) - 0.7 * x.roll(1, 1))


def kernel_value(kernel, width, x, y):
    squared = ((x - y) ** 2).sum()
    return torch.exp(-squared / (2 * width**2)) if kernel == "gaussian" else (1 + squared / width**2) ** -0.5


@pytest.mark.parametrize("kernel", ["gaussian", "imq"])
def test_the_stein_kernel_equals_its_definition_by_autograd(kernel):
    data, width = sample(6), 1.3
    expected = torch.zeros(6, 6, dtype=torch.float64)
    for i in range(6):
        for j in range(6):
            x, y = data.x[i].clone().requires_grad_(), data.x[j].clone().requires_grad_()
            k = kernel_value(kernel, width, x, y)
            by_x, by_y = torch.autograd.grad(k, (x, y), create_graph=True)
            trace = sum(torch.autograd.grad(by_x[m], y, retain_graph=True)[0][m] for m in range(3))
            a, b = data.score[i], data.score[j]
            expected[i, j] = ((a @ b) * k + a @ by_y + b @ by_x + trace).detach()
    torch.testing.assert_close(stein_kernel(radial(kernel, width), data, data), expected)


@pytest.mark.parametrize("rows", [7, 30, 100])
def test_tiles_and_signs_equal_the_whole_matrix(rows):
    data = sample()
    phi = radial("imq", 0.8)
    matrix = stein_kernel(phi, data, data).fill_diagonal_(0.0)
    signs = random_signs(30, 50, generator(1), torch.float64)
    expected = torch.einsum("ib,ij,jb->b", signs, matrix, signs) / (30 * 29)
    torch.testing.assert_close(u_statistics(stein_tiles(phi, data, rows), signs), expected)


def test_the_statistic_does_not_depend_on_where_the_data_lie():
    x, model = np.random.default_rng(0).normal(size=(200, 3)), Gaussian(torch.full((3,), 0.1).double())
    shifted = ksd_test(x + 100, np.asarray(model.score(torch.from_numpy(x)).detach()))
    plain = ksd_test(x, np.asarray(model.score(torch.from_numpy(x)).detach()))
    assert shifted.statistic == pytest.approx(plain.statistic, rel=1e-9) and shifted.pvalue == plain.pvalue


@pytest.mark.parametrize("name", TESTS)
def test_level_and_power(name):
    """200 exact nulls at level 5% give 2 to 20 rejections (99.9% of a binomial); a shift of 0.6 is found."""
    data, other = Gaussian(torch.zeros(3)), Gaussian(torch.full((3,), 0.6))
    test = partial(fssd_test, steps=15) if name == "fssd" else TESTS[name]
    rejections = sum(test(data.sample(100, seed=seed), data, seed=seed).rejected for seed in range(200))
    assert 2 <= rejections <= 20
    found = sum(test(data.sample(200, seed=seed), other, seed=seed).rejected for seed in range(20))
    assert found >= 18


def test_mmd_against_brute_force_level_and_power():
    data, other = Gaussian(torch.zeros(2)), Gaussian(torch.full((2,), 0.6))
    x, y = data.sample(9, seed=1).double(), other.sample(7, seed=2).double()

    def mean_kernel(a, b, same):
        k = torch.exp(-torch.cdist(a, b).square() / 2)
        return (k.sum() - len(a)) / (len(a) * (len(a) - 1)) if same else k.mean()

    expected = mean_kernel(x, x, True) + mean_kernel(y, y, True) - 2 * mean_kernel(x, y, False)
    assert mmd_test(x, y, bandwidth=1.0).statistic == pytest.approx(float(expected), rel=1e-9)
    nulls = [mmd_test(data.sample(60, seed=s), data.sample(60, seed=s + 500), draws=200) for s in range(200)]
    assert 2 <= sum(result.rejected for result in nulls) <= 20
    assert mmd_test(data.sample(200, seed=1), other.sample(200, seed=2)).rejected


@pytest.mark.parametrize("bandwidth", [0.5, "median", "learned"])
def test_bandwidths(bandwidth):
    data = Gaussian(torch.zeros(3))
    for test in (ksd_test, linear_ksd_test):
        assert not test(data.sample(300, seed=4), data, bandwidth=bandwidth).pvalue < 0.01


@pytest.mark.parametrize("name", TESTS)
def test_the_same_seed_gives_the_same_result(name):
    x, model = Gaussian(torch.zeros(2)).sample(80), Gaussian(torch.full((2,), 0.2))
    assert TESTS[name](x, model, seed=3) == TESTS[name](x, model, seed=3)
    assert "points" in str(TESTS[name](x, model))


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda x, m: ksd_test(x, m, bandwidth="wide"),
            'bandwidth: expected a number, "median", "learned" or "largest"',
        ),
        (lambda x, m: ksd_test(x, m, bandwidth=0.0), "bandwidth: expected a positive number, got 0.0"),
        (lambda x, m: ksd_test(x, m, draws=0), "draws: expected a whole number from 1 on, got 0"),
        (lambda x, m: ksd_test(x[:2], m), "x: 2 rows are too few for this test, which needs 4"),
        (lambda x, m: mmd_test(x, x[:, :1]), "samples: expected 2 coordinates, as x has, got 1"),
        (lambda x, m: fssd_test(x, m, locations=0), "locations: expected a whole number from 1 on, got 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call(Gaussian(torch.zeros(2)).sample(30), Gaussian(torch.zeros(2)))


def normal(n, seed):
    return torch.randn(n, 2, generator=generator(seed))


@pytest.mark.parametrize("kernel", ["gaussian", "imq"])
def test_estimates_against_brute_force(kernel):
    data = sample(60)
    matrix = stein_kernel(radial(kernel, 1.5), data, data).fill_diagonal_(0.0)
    quadratic = ksd_estimate(data.x, data.score, kernel=kernel, bandwidth=1.5)
    assert quadratic.value == pytest.approx(float(matrix.sum() / (60 * 59)))
    linear = ksd_estimate(data.x, data.score, kernel=kernel, bandwidth=1.5, estimator="linear")
    # Any pairing has the same mean up to its own standard error.
    assert abs(linear.value - quadratic.value) < 4 * linear.stderr


def test_the_standard_error_of_an_estimate():
    """200 repetitions under a wrong model: the spread of the estimates is what they say, within 5 standard errors."""
    runs = [ksd_estimate(x, 0.8 - x, bandwidth=2.0) for s in range(200) for x in [normal(150, 500 + s)]]
    values, errors = (np.array([getattr(run, key) for run in runs]) for key in ("value", "stderr"))
    assert abs(values.std(ddof=1) / errors.mean() - 1) < 5 / np.sqrt(2 * 200) + 0.1


def test_the_largest_bandwidth_is_the_one_with_the_largest_discrepancy():
    x = normal(500, 3)
    chosen = ksd_estimate(x, 0.5 - x, bandwidth="largest")
    values = [ksd_estimate(x, 0.5 - x, bandwidth=chosen.bandwidth * factor).value for factor in (0.5, 1.0, 2.0)]
    assert values[1] > 0.8 * max(values)
    with pytest.raises(InputError, match="bandwidth: expected a number, .* or \"largest\", got 'huge'"):
        ksd_estimate(x, -x, bandwidth="huge")
