import pytest
import torch

from steinscope import InputError
from steinscope.models import Gaussian
from steinscope.objectives import ConditionalNoiseContrast, NoiseContrast

from helpers import COVARIANCE, MEAN, gaussian_points, generator

TRUTH, OTHER = Gaussian(MEAN, COVARIANCE), Gaussian(torch.zeros(2), std=1.5)


class Unnormalised(torch.nn.Module):
    """The truth times a constant."""

    def __init__(self, log_constant):
        super().__init__()
        self.log_constant = log_constant

    def log_prob(self, x):
        return TRUTH.log_prob(x) + self.log_constant


def test_the_loss_of_noise_contrast_is_that_of_a_classifier():
    """Minus the mean log-probability of telling data and noise apart, with the noise drawn again."""
    x, objective = gaussian_points(500), NoiseContrast(ratio=2)
    objective.begin(OTHER, x, generator(1))
    noise = objective.auxiliary
    torch.testing.assert_close(noise.gaussian.mean, x.mean(0))
    torch.testing.assert_close(noise.gaussian.covariance, torch.cov(x.T), rtol=1e-4, atol=1e-4)
    loss = objective.model_loss(OTHER, x, generator(2))

    def probability_of_data(points):
        # Of three points two are noise.
        ratio = OTHER.log_prob(points) - noise.log_normaliser - noise.gaussian.log_prob(points)
        return 1 / (1 + 2 * torch.exp(-ratio))

    source = generator(2)
    drawn = [noise.draw(x, source) for _ in range(2)]
    expected = -probability_of_data(x).log().mean() - sum(
        (1 - probability_of_data(part)).log().mean() for part in drawn
    )
    torch.testing.assert_close(loss, expected)


def test_the_log_normaliser_starts_where_data_and_noise_are_balanced():
    """For a Gaussian fitted to the data the ratio is nearly one everywhere, whatever constant the model has."""
    for log_constant in (0.0, 50.0):
        objective = NoiseContrast()
        objective.begin(Unnormalised(log_constant), gaussian_points(), generator(1))
        # The mean difference of two Gaussian log-densities, fitted to 4000 points and true, is of order 5 / 8000.
        assert float(objective.auxiliary.log_normaliser.detach()) == pytest.approx(log_constant, abs=0.01)


def test_the_loss_is_smallest_at_the_log_normaliser():
    """Beside noise that is the truth the gradient of the logistic loss is zero there, however much noise there is."""
    objective, x = NoiseContrast(ratio=5), gaussian_points()
    objective.begin(TRUTH, x, generator(1))
    noise = objective.auxiliary
    with torch.no_grad():
        noise.log_normaliser.zero_()
    loss = objective.model_loss(TRUTH, x, generator(2))
    (gradient,) = torch.autograd.grad(loss, [noise.log_normaliser])
    # The Gaussian that is fitted to 4000 points differs from the truth by about a hundredth.
    assert gradient.item() == pytest.approx(0.0, abs=0.02)


def test_the_loss_of_conditional_noise_contrast():
    x, objective = gaussian_points(300), ConditionalNoiseContrast(sigma=0.7, ratio=3)
    source = generator(2)
    copies = [x + 0.7 * torch.randn(300, 2, generator=source) for _ in range(3)]
    odds = [torch.exp(OTHER.log_prob(copy) - OTHER.log_prob(x)) for copy in copies]
    expected = 2 * torch.stack([torch.log1p(odd).mean() for odd in odds]).mean()
    torch.testing.assert_close(objective.model_loss(OTHER, x, generator(2)), expected)


@pytest.mark.parametrize("make", [NoiseContrast, ConditionalNoiseContrast])
def test_the_truth_has_the_smaller_loss(make):
    """And a constant factor of the density changes nothing, once the log-normaliser follows it."""
    x, losses = gaussian_points(), []
    for model in (TRUTH, Unnormalised(3.0), OTHER):
        objective = make()
        objective.begin(model, x, generator(1))
        losses.append(float(objective.model_loss(model, x, generator(2)).detach()))
    assert losses[0] < losses[2] - 0.01 and losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: NoiseContrast(ratio=0), "ratio: expected a whole number from 1 on, got 0"),
        (lambda: ConditionalNoiseContrast(sigma=0.0), "sigma: expected a positive number, got 0.0"),
        (lambda: ConditionalNoiseContrast(ratio=0), "ratio: expected a whole number from 1 on, got 0"),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(InputError, match=message):
        make()
