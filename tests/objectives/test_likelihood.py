import math

import pytest
import torch

from steinscope import InputError
from steinscope.models import Gaussian
from steinscope.objectives import ContrastiveDivergence, GridLikelihood, grid_log_normaliser

from helpers import generator


class Unnormalised(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.precision = torch.nn.Parameter(torch.tensor(2.0))

    def log_prob(self, x):
        return -0.5 * self.precision * x.square().sum(1)


def test_the_sum_over_a_grid_is_the_normaliser():
    value = grid_log_normaliser(Unnormalised().double(), like=torch.zeros(1, dtype=torch.float64)).item()
    assert value == pytest.approx(math.log(2 * math.pi / 2), abs=1e-6)
    assert grid_log_normaliser(Gaussian(torch.ones(2))).item() == pytest.approx(0.0, abs=1e-4)


def test_a_shifted_grid_has_the_same_sum_and_its_gradient_is_that_of_the_likelihood():
    x = torch.randn(500, 2, generator=generator(0))
    model = Unnormalised()
    loss = GridLikelihood(-6, 6, 100).model_loss(model, x, generator(1))
    exact = math.log(math.pi) + float(x.square().sum(1).mean())
    assert loss.item() == pytest.approx(exact, rel=1e-3)
    (gradient,) = torch.autograd.grad(loss, [model.precision])
    # d/dβ of log(2π/β) + β E|x|²/2
    assert gradient.item() == pytest.approx(-0.5 + 0.5 * float(x.square().sum(1).mean()), rel=1e-2)


def test_chains_start_where_they_are_told_to():
    x = 5.0 + torch.randn(64, 2, generator=generator(0))
    model = Gaussian(torch.zeros(2))
    ends = {}
    for start in ("data", "noise", "persistent"):
        objective = ContrastiveDivergence(steps=1, epsilon=1e-6, start=start, chains=32)
        objective.begin(model, x, generator(1))
        ends[start] = objective.sample(model, x, generator(2))
    assert (ends["data"] - x).abs().max() < 0.02
    assert (ends["noise"] - x).abs().max() > 1 and abs(ends["noise"].mean() - 5) < 0.5
    assert len(ends["persistent"].round(decimals=1).unique(dim=0)) <= 32


class Exponential(torch.nn.Module):
    support = "positive"

    def log_prob(self, x):
        return -x.sum(1)


def test_chains_of_a_model_with_a_support_end_in_it():
    objective = ContrastiveDivergence(steps=1, epsilon=1e-8)
    x = torch.full((64, 2), 0.1)
    objective.begin(Exponential(), x, generator(1))
    torch.testing.assert_close(objective.sample(Exponential(), x, generator(2)), x, rtol=1e-2, atol=0)


@pytest.mark.parametrize("start", ["noise", "persistent"])
def test_chains_that_start_at_noise_start_within_the_support(start):
    """A Gaussian of the data's mean and spread reaches beyond the edge, where it is mirrored."""
    objective = ContrastiveDivergence(steps=1, epsilon=1e-8, start=start, chains=500)
    x = torch.full((500, 2), 0.1)
    x[::2] = 1.0
    objective.begin(Exponential(), x, generator(1))
    ends = objective.sample(Exponential(), x, generator(2))
    assert bool((ends > 0).all()) and 0.2 < float(ends.std()) < 0.6


def test_persistent_chains_go_on():
    objective = ContrastiveDivergence(steps=5, epsilon=0.1, start="persistent", chains=500)
    x = 5.0 + torch.randn(500, 2, generator=generator(0))
    model = Gaussian(torch.zeros(2))
    objective.begin(model, x, generator(1))
    for step in range(30):
        ends = objective.sample(model, x, generator(step))
    assert ends.mean(0).abs().max() < 0.3


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: ContrastiveDivergence(steps=0), "steps: expected a whole number from 1 to 1000000000, got 0"),
        (lambda: ContrastiveDivergence(epsilon=0.0), "epsilon: expected a positive number, got 0.0"),
        (lambda: ContrastiveDivergence(sigma=-1.0), "sigma: expected a number from 0 on, got -1.0"),
        (lambda: GridLikelihood(1.0, -1.0), "GridLikelihood: expected low < high"),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(InputError, match=message):
        make()
