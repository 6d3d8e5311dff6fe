import itertools
import math

import pytest
import torch
from torch import nn

from steinscope import NonFiniteError
from steinscope.models import ICA, Gaussian
from steinscope.objectives import MaximumLikelihood
from steinscope.training import train

from helpers import gaussian_points, normal


def test_noise_falls_to_zero():
    seen = {}

    class Look(MaximumLikelihood):
        def model_loss(self, model, x, generator):
            seen[len(seen)] = float(x.std())
            return super().model_loss(model, x, generator)

    train(Gaussian(torch.zeros(2)), torch.full((4000, 2), 3.0), objective=Look(), steps=20, batch_size=2000, noise=2.0)
    # 4000 numbers: the relative standard error of a standard deviation is 1.1%.
    expected = [2.0 * max(0.0, 1 - step / 16) ** 2 for step in range(20)]
    assert list(seen.values()) == pytest.approx(expected, rel=0.05)
    assert seen[16] == seen[19] == 0.0


def test_the_average_follows_the_parameters():
    means, shown = [], []
    trained = Gaussian(torch.zeros(2))

    def look(step, model, row):
        means.append(trained.mean.detach().clone())
        shown.append(model.mean.detach())

    result = train(
        trained,
        gaussian_points(100),
        steps=6,
        batch_size=50,
        average=0.3,
        log_every=1,
        objective="likelihood",
        callbacks=[look],
    )
    expected = torch.zeros(2)
    for step, (mean, average) in enumerate(zip(means, shown, strict=True), 1):
        share = max(1 - 0.3, 9 / (10 + step))
        expected = (1 - share) * expected + share * mean
        torch.testing.assert_close(average, expected)
    torch.testing.assert_close(result.averaged.mean.detach(), expected)
    assert torch.equal(result.model.mean, means[-1])


class Exploding(nn.Module):
    """A loss that turns to NaN when its parameter passes 0.2, which it does after some steps."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(()))

    def log_prob(self, x):
        return -0.5 * (x - self.mean).square().sum(1) + 0.0 * torch.sqrt(0.2 - self.mean)


def test_a_run_that_turns_non_finite_stops_and_keeps_its_checkpoint(tmp_path):
    options = {"objective": "likelihood", "steps": 100, "batch_size": 20, "lr": 0.03, "log_every": 10}
    with pytest.raises(NonFiniteError, match=r"the model's \w+ turned non-finite at step \d+; .*no checkpoint"):
        train(Exploding(), 3.0 + gaussian_points(100), **options)
    with pytest.raises(NonFiniteError, match=r"at step \d+; the last good checkpoint is step \d+ in ") as error:
        train(Exploding(), 3.0 + gaussian_points(100), **options, checkpoint=tmp_path, checkpoint_every=2)
    words = str(error.value).split()
    numbers = [int(word.strip(";")) for before, word in itertools.pairwise(words) if before == "step"]
    assert 0 < numbers[1] <= numbers[0]


def test_a_model_that_is_not_finite_from_the_beginning():
    class Nothing(Exploding):
        def log_prob(self, x):
            return super().log_prob(x) * math.nan

    with pytest.raises(NonFiniteError, match="at step 1; there is no checkpoint; look at the model's log-density"):
        train(Nothing(), gaussian_points(100), steps=20, objective="likelihood")


def test_gradients_that_lie_in_another_order_in_memory_change_their_own_parameters():
    """As in a loop by hand. The gradient of log|det W| comes column by column, and fused optimisers of torch go through
    parameters and gradients in the order of memory."""
    x, by_hand, trained = normal(50, 3), ICA(3), ICA(3)
    (gradient,) = torch.autograd.grad(by_hand.log_prob(x).mean(), by_hand.weights)
    assert gradient.stride() != by_hand.weights.stride()
    adam = torch.optim.Adam(by_hand.parameters(), lr=0.01, betas=(0.5, 0.9), fused=False)
    for _ in range(5):
        adam.zero_grad()
        (-by_hand.log_prob(x).mean()).backward()
        adam.step()
    train(trained, lambda n, generator: x.repeat(n // 50, 1), objective="likelihood", steps=5, batch_size=50, lr=0.01)
    torch.testing.assert_close(trained.weights, by_hand.weights)
