import inspect

import pytest
import torch

from steinscope import InputError
from steinscope.critics import MLP, Preconditioned

from helpers import generator


def test_a_preconditioned_critic_is_the_critic_in_whitened_coordinates():
    inner = MLP(3, width=8).double().eval()
    covariance = torch.tensor([[4.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]], dtype=torch.float64)
    mean = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    critic = Preconditioned(inner, mean, covariance)
    x = torch.randn(9, 3, dtype=torch.float64, generator=generator())
    score = torch.randn(9, 3, dtype=torch.float64, generator=generator(1))
    f, divergence = critic.value_and_divergence(x)
    values, norms = critic.stein(x, score)
    torch.testing.assert_close(values, (score * f).sum(1) + divergence)
    # The penalty is on g = L f, and L Lᵀ is the inverse of the covariance.
    torch.testing.assert_close(norms, ((f @ torch.linalg.inv(covariance)) * f).sum(1))


def test_points_that_are_all_the_same_cannot_be_whitened():
    with pytest.raises(InputError, match="x: all points are the same"):
        Preconditioned.from_data(MLP(2), torch.ones(9, 2))


def test_a_covariance_must_be_one():
    with pytest.raises(InputError, match="covariance: expected a positive definite matrix, its least eigenvalue is -1"):
        Preconditioned(MLP(2), torch.zeros(2), torch.diag(torch.tensor([1.0, -1.0])))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: whitened(torch.ones(1, 2)), "x: expected at least 2 points to whiten by, got 1"),
        (lambda: whitened([[1.0]]), "x: expected a tensor of a floating type, got an object of type list"),
        (lambda: whitened(torch.eye(2), 2.0), "shrinkage: expected a number from 0 to 1, got 2.0"),
        (lambda: made([0.0], torch.eye(1)), "mean: expected a tensor of a floating type, got an object of type list"),
        (
            lambda: made(torch.zeros(3), torch.eye(2)),
            r"covariance: expected a matrix \(d, d\) beside a mean \(d\), got \(2, 2\)",
        ),
    ],
)
def test_what_cannot_be_whitened(make, message):
    with pytest.raises(InputError, match=message):
        make()


def whitened(x, shrinkage=0.01):
    return inspect.unwrap(Preconditioned.from_data.__func__)(Preconditioned, MLP(2), x, shrinkage)


def made(mean, covariance):
    return inspect.unwrap(Preconditioned.__init__)(Preconditioned.__new__(Preconditioned), MLP(2), mean, covariance)
