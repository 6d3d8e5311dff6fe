import inspect
import math

import pytest
import torch

from steinscope import InputError
from steinscope.models import ICA, UnnormalisedICA

from helpers import generator

SOURCES = ["logistic", "laplace"]


def points(n=6, dim=3):
    return torch.randn(n, dim, dtype=torch.float64, generator=generator(0))


@pytest.mark.parametrize("source", SOURCES)
def test_the_density_integrates_to_one(source):
    model = ICA(1, source, weights=torch.tensor([[0.7]], dtype=torch.float64))
    grid = torch.linspace(-80, 80, 400_001, dtype=torch.float64)[:, None]
    total = torch.trapezoid(model.log_prob(grid).exp(), dx=160 / 400_000)
    assert float(total.detach()) == pytest.approx(1.0, abs=1e-6)


def test_logistic_sources_against_torch():
    model = ICA(3, seed=1).double()
    d = torch.distributions
    logistic = d.TransformedDistribution(
        d.Uniform(torch.zeros(3).double(), torch.ones(3).double()), d.SigmoidTransform().inv
    )
    z = points() @ model.weights.T
    expected = logistic.log_prob(z).sum(1) + torch.linalg.slogdet(model.weights).logabsdet
    torch.testing.assert_close(model.log_prob(points()), expected)


@pytest.mark.parametrize("source", SOURCES)
def test_without_its_normaliser_the_score_is_the_same(source):
    model, x = ICA(3, source, seed=2).double(), points()
    unnormalised = UnnormalisedICA(model)
    assert torch.equal(unnormalised.score(x), model.score(x))
    difference = model.log_prob(x) - unnormalised.log_prob(x)
    torch.testing.assert_close(difference, torch.linalg.slogdet(model.weights).logabsdet.expand(6))
    assert [name for name, _ in unnormalised.named_parameters()] == ["model.weights"]


@pytest.mark.parametrize("source", SOURCES)
def test_samples_come_from_the_density(source):
    """The mean negative log-density of samples is the entropy: that of the sources minus log |det W|."""
    model = ICA(2, source, seed=3).double()
    alone = ICA(1, source, weights=torch.eye(1, dtype=torch.float64))
    grid = torch.linspace(-60, 60, 400_001, dtype=torch.float64)[:, None]
    log_prob = alone.log_prob(grid).detach()
    entropy = -2 * torch.trapezoid(log_prob.exp() * log_prob, dx=120 / 400_000)
    entropy = entropy - torch.linalg.slogdet(model.weights.detach()).logabsdet
    values = -model.log_prob(model.sample(100_000, seed=1)).detach()
    assert abs(values.mean() - entropy) < 5 * values.std() / math.sqrt(100_000)


def test_mixing_matrices_are_well_conditioned():
    for seed in range(5):
        assert float(torch.linalg.cond(ICA(10, seed=seed).weights.detach())) < 10


def test_whole_numbers_are_weights():
    assert ICA(2, weights=[[1, 0], [0, 2]]).weights.dtype == torch.float32


def test_errors():
    with pytest.raises(InputError, match="weights: expected finite numbers, got "):
        ICA(2, weights=[[1.0, math.nan], [0.0, 1.0]])
    with pytest.raises(InputError, match="weights: expected a matrix that can be inverted, and it is singular"):
        ICA(2, weights=torch.ones(2, 2))
    with pytest.raises(InputError, match=r"weights: expected a matrix of shape \(2, 2\), got \(2, 3\)"):
        ICA(2, weights=torch.zeros(2, 3))
    with pytest.raises(InputError, match="dim: expected a whole number from 1 on, got 0"):
        ICA(0)
    with pytest.raises(InputError, match='source: expected "logistic" or "laplace", got \'cauchy\''):
        inspect.unwrap(ICA.__init__)(ICA.__new__(ICA), 2, "cauchy")
    with pytest.raises(InputError, match="smoothing: expected a positive number, got 0"):
        ICA(2, "laplace", smoothing=0.0)
