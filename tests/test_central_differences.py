"""Scores of functions on NumPy arrays, which come from central differences."""

import numpy as np
import pytest
import torch

from steinscope import InputError, from_energy, from_log_prob

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
