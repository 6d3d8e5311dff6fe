"""Scores of functions on NumPy arrays, which come from central differences."""

import numpy as np
import pytest
import torch
from scipy import stats

from steinscope import InputError, from_energy, from_log_prob, gof_test
from steinscope.central_differences import difference_steps
from steinscope.densities import as_density

from helpers import generator

SINGLE = {
    "float32": lambda x: (-0.5 * x.astype(np.float32) ** 2).sum(1),
    "float32 inside": lambda x: (-0.5 * x.astype(np.float32) ** 2).sum(1).astype(np.float64),
    "float16": lambda x: (-0.5 * x.astype(np.float16) ** 2).sum(1),
    "large": lambda x: np.float32(1e6) - (0.5 * x.astype(np.float32) ** 2).sum(1),
    "tensor": lambda x: -0.5 * torch.from_numpy(x).float().square().sum(1),
}


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("make", [from_log_prob, from_energy])
def test_central_differences_need_double_precision(name, make):
    """JAX computes in single precision unless it is told otherwise, and a step of 6e-6 leaves two digits of that."""
    x = torch.randn(50, 2, generator=generator())
    with pytest.raises(InputError, match="model: (log_prob|energy) has the digits of float32, too few .*from_score"):
        make(SINGLE[name], numpy=True).score(x)
    # What needs no differences may have few digits.
    assert make(SINGLE[name], numpy=True).log_prob(x).shape == (50,)


DOUBLE = {
    "whole points": (lambda x: -0.5 * (x**2).sum(1), torch.arange(-10.0, 10.0).reshape(10, 2)),
    "one point": (lambda x: -0.5 * (x**2).sum(1), torch.zeros(1, 2)),
    "a coordinate that does not matter": (lambda x: -0.5 * x[:, 0] ** 2, torch.arange(-10.0, 10.0).reshape(10, 2)),
    "beyond single precision": (lambda x: -1e300 * (x**2).sum(1), torch.ones(5, 2)),
    "values that are single at the points": (lambda x: -np.abs(x).sum(1), torch.arange(1.0, 21.0).reshape(10, 2)),
}


@pytest.mark.parametrize("name", DOUBLE)
def test_values_in_double_precision_are_not_taken_for_single(name):
    log_prob, x = DOUBLE[name]
    expected = torch.func.vmap(torch.func.grad(lambda point: log_prob_of(name, point)))(x.double())
    torch.testing.assert_close(from_log_prob(log_prob, numpy=True).score(x.double()), expected, rtol=1e-6, atol=1e-6)


def log_prob_of(name, point):
    """The same densities by torch, at one point."""
    if name == "a coordinate that does not matter":
        return -0.5 * point[0] ** 2
    if name == "values that are single at the points":
        return -point.abs().sum()
    return (-1e300 if name == "beyond single precision" else -0.5) * (point**2).sum()


@pytest.mark.parametrize("scale", [1e-9, 1e-5, 1.0, 1e9])
@pytest.mark.parametrize("far", [0.0, 1e3, 1e6])
def test_neither_units_nor_where_points_lie_matter(scale, far):
    """The score of a Student t changes within a few scales; a step of 6e-6 max(1, |x|) would miss that."""
    model = stats.t(5, loc=far * scale, scale=scale)
    x = torch.from_numpy(model.rvs((500, 1), random_state=0))
    z = (x - far * scale) / scale
    # The values have 16 digits, the step a 170 000th of the scale, and x itself fewer digits where it is far away.
    torch.testing.assert_close(as_density(model).score(x) * scale, -6 * z / (5 + z**2), rtol=0, atol=1e-9 + 1e-13 * far)


def test_a_right_mixture_far_from_zero_is_not_rejected():
    rng = np.random.default_rng(0)
    x = 1.7e9 + rng.normal(size=(1000, 1)) * np.where(rng.random((1000, 1)) < 0.5, 50, 500)
    model = from_log_prob(
        lambda x: np.logaddexp(*(stats.norm(1.7e9, spread).logpdf(x[:, 0]) for spread in (50, 500))), numpy=True
    )
    # A right model has a smaller p-value once in a thousand cases.
    assert gof_test(x, model, critics="closed form").pvalue > 1e-3


@pytest.mark.parametrize("shape", [0.02, 0.3, 2.0])
def test_steps_stay_inside_of_the_support(shape):
    x = np.random.default_rng(0).gamma(shape, size=(500, 1))
    assert x.min() < 1e-5 or shape == 2.0
    for model, low in ((stats.gamma(shape), 0.0), (stats.gamma(shape, loc=3.0), 3.0)):
        inside = torch.from_numpy(x[x > 1e-9][:, None] + low)
        score = as_density(model).score(inside)
        # Relative to the distance from the end, which 3 + x holds to 16 digits of 3.
        error = (score - ((shape - 1) / (inside - low) - 1)) * (inside - low)
        assert float(error.abs().max()) < 1e-6


def test_steps_are_numbers_apart_and_no_outlier_makes_them_long():
    x = np.array([[0.0, 5.0, 0.0, 1e12], [1.0, 5.0, 1.0, 1e12], [2.0, 5.0, 2.0, 1e12 + 1e-3], [3.0, 5.0, 1e9, 1e12]])
    steps = difference_steps(x, -np.inf, np.inf)
    assert (x + steps > x).all() and (x - steps < x).all()
    np.testing.assert_allclose(steps[:, 1], 5 * np.cbrt(np.finfo(float).eps))
    assert steps[:3, 2].max() < 1e-4 < 1e3 < steps[3, 2]
