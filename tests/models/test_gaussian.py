import pytest
import torch

from steinscope import InputError
from steinscope.densities import from_log_prob
from steinscope.models import Gaussian

COVARIANCE = torch.tensor([[2.0, 0.6], [0.6, 1.0]], dtype=torch.float64)
MEAN = torch.tensor([1.0, -1.0], dtype=torch.float64)


def test_density_and_score_agree_with_torch():
    model, theirs = Gaussian(MEAN, COVARIANCE), torch.distributions.MultivariateNormal(MEAN, COVARIANCE)
    x = model.sample(20)
    torch.testing.assert_close(model.log_prob(x), theirs.log_prob(x))
    torch.testing.assert_close(model.score(x), from_log_prob(theirs.log_prob).score(x))


def test_samples_have_the_moments():
    model = Gaussian(MEAN, COVARIANCE)
    x = model.sample(100_000, seed=3)
    assert float((x.mean(0) - MEAN).abs().max()) < 4 * (2 / 100_000) ** 0.5
    assert float((torch.cov(x.T) - COVARIANCE).abs().max()) < 4 * (2 * 2.0**2 / 100_000) ** 0.5
    assert torch.equal(x, model.sample(100_000, seed=3))
    torch.testing.assert_close(model.covariance, COVARIANCE)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"mean": torch.zeros(2, 2)}, r"mean: expected a vector of d numbers, got shape \(2, 2\)"),
        ({"mean": torch.zeros(2), "covariance": torch.eye(3)}, r"covariance: expected shape \(2, 2\), got \(3, 3\)"),
        ({"mean": torch.zeros(2), "covariance": -torch.eye(2)}, "covariance: expected a symmetric positive definite"),
        ({"mean": torch.zeros(2), "std": 0.0}, "std: expected one positive number or 2 of them, got 0.0"),
        ({"mean": torch.zeros(2), "std": 1.0, "covariance": torch.eye(2)}, "std: give either covariance or std"),
        ({"mean": [float("nan")]}, "mean: expected finite numbers"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(InputError, match=message):
        Gaussian(**arguments)
