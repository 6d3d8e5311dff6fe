import math

import pytest
import torch
from torch import nn

from steinscope import InputError, from_score
from steinscope.models import RBM, Gaussian
from steinscope.objectives import DenoisingScoreMatching, ScoreMatching, score_matching

from helpers import generator

DIM = 4
MODEL = Gaussian(torch.linspace(-0.5, 0.5, DIM), std=1.3)


def points(n=20_000):
    return torch.randn(n, DIM, generator=generator(0))


def expected():
    """½ E‖s‖² + tr for a Gaussian model and standard normal points."""
    precision = 1.3**-2
    return 0.5 * precision**2 * (DIM + float(MODEL.mean.detach().square().sum())) - DIM * precision


@pytest.mark.parametrize(
    "objective", [ScoreMatching(), ScoreMatching("sliced"), ScoreMatching("sliced", probes=5, noise="rademacher")]
)
def test_the_value_of_a_gaussian(objective):
    estimate = score_matching(points(), MODEL, objective=objective)
    assert abs(estimate.value - expected()) < 4 * estimate.stderr
    assert estimate.stderr == pytest.approx(estimate.values.std(ddof=1) / math.sqrt(20_000))


def test_denoising_is_score_matching_of_the_smoothed_data():
    """For N(0, I) points and noise σ the smoothed data are N(0, (1 + σ²) I), and the residual variance is known."""
    sigma = 0.5
    truth = Gaussian(torch.zeros(DIM), std=math.sqrt(1 + sigma**2))
    estimate = score_matching(points(), truth, objective=DenoisingScoreMatching(sigma))
    # s(x + σε) + ε/σ has variance 1/σ² - 1/(1 + σ²) in each coordinate.
    value = 0.5 * DIM * (1 / sigma**2 - 1 / (1 + sigma**2))
    assert abs(estimate.value - value) < 4 * estimate.stderr
    worse = score_matching(points(), Gaussian(torch.zeros(DIM)), objective=DenoisingScoreMatching(sigma))
    assert worse.value > estimate.value


def test_exact_values_against_the_hessian():
    rbm = RBM.random(DIM, 3).double()
    x = points(5).double()
    values = score_matching(x, rbm).values
    for row, value in zip(x, values, strict=True):
        hessian = torch.autograd.functional.hessian(lambda y: rbm.log_prob(y[None])[0], row)
        squared = rbm.score(row[None]).detach().square().sum()
        assert value == pytest.approx(float(0.5 * squared + hessian.trace()))


def test_a_model_with_only_a_score():
    estimate = score_matching(points(), from_score(lambda x: -(x - MODEL.mean.detach()) / 1.3**2))
    assert abs(estimate.value - expected()) < 4 * estimate.stderr


@pytest.mark.parametrize("objective", [ScoreMatching(), ScoreMatching("sliced"), DenoisingScoreMatching()])
def test_gradients_reach_the_parameters(objective):
    model = RBM.random(DIM, 3)
    loss = objective.model_loss(model, points(10), generator(1))
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    assert all(bool((gradient != 0).any()) for gradient in gradients)


def test_images_are_summed_over_all_axes():
    x = torch.randn(50, 2, 2, generator=generator(2))
    flat = Gaussian(torch.zeros(4), std=1.5)

    class Shaped(nn.Module):
        def log_prob(self, y):
            return flat.log_prob(y.flatten(1))

    torch.testing.assert_close(
        score_matching(x, Shaped()).values, score_matching(x.flatten(1), flat).values, atol=1e-5, rtol=1e-5
    )


def test_bad_settings():
    with pytest.raises(InputError, match="sigma: expected a positive number, got 0"):
        DenoisingScoreMatching(0.0)
    with pytest.raises(InputError, match="batch_size: expected a whole number from 1 on, got 0"):
        score_matching(points(5), MODEL, batch_size=0)
