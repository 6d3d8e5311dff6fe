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
