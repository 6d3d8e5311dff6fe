"""Jumps between points: their loss is a flux that vanishes at the truth, and tells masses of modes."""

import pytest
import torch
from torch import nn

from steinscope import InputError, from_score, train
from steinscope.densities import log_prob_at
from steinscope.models import Gaussian
from steinscope.objectives import LearnedStein
from steinscope.objectives.jumps import Jumps

from helpers import gaussians, generator, sample

CENTRES, SCALES = [[-5.0, 0.0], [5.0, 0.0]], [1.0, 1.0]


class Shares(nn.Module):
    """Two modes ten standard deviations apart, of which only the shares are learned."""

    def __init__(self, share):
        super().__init__()
        self.logit = nn.Parameter(torch.logit(torch.tensor(share)))

    def log_prob(self, x):
        left, right = (-0.5 * (x - torch.tensor(centre)).square().sum(1) for centre in CENTRES)
        left, right = left + nn.functional.logsigmoid(self.logit), right + nn.functional.logsigmoid(-self.logit)
        # The second derivative of torch.logaddexp is NaN where one part underflows.
        return torch.logsumexp(torch.stack([left, right]), 0)

    @property
    def share(self):
        return float(torch.sigmoid(self.logit.detach()))


def two_modes(n, share=0.25, seed=0):
    return sample(gaussians([share, 1 - share], CENTRES, SCALES), n, seed)


def test_the_gradient_is_the_flux_of_jumps_that_barker_accepts():
    """Twice E[q(x') / (q(x) + q(x')) (h(x') - h(x))] with h the gradient of log q, from the same jumps, times the mean
    squared derivative of log q along jumps."""
    model, x = Gaussian(torch.tensor([0.3, -0.2])).double(), torch.randn(200, 2, generator=generator()).double()
    jumps = Jumps(x, generator())
    (gradient,) = torch.autograd.grad(jumps.loss(model, x, model.score, generator(1)), model.mean)
    source = generator(1)
    jump = jumps._drawn(x, source) - jumps._drawn(x, source)
    before, after = (log_prob_at(model, points).detach().exp() for points in (x, x + jump))
    accepted = after / (before + after)
    # The gradient of log N(x; m, I) in m is x - m.
    expected = 2 * jumps.squared_slope(model.score) * (accepted[:, None] * jump).mean(0)
    torch.testing.assert_close(gradient, expected)


def test_a_direction_in_which_points_hardly_vary_does_not_set_the_unit():
    """N(0, 1) times N(0, 10^-6): the mean squared derivative along jumps is 1 + 1, and not 10^6. With 128 jumps, whose
    squared derivatives have four times their mean for standard deviation, it is within four standard errors."""
    std = torch.tensor([1.0, 1e-3])
    x = torch.randn(4000, 2, generator=generator()) * std
    assert 0.5 < float(Jumps(x, generator(1)).squared_slope(Gaussian(torch.zeros(2), std=std).score)) < 5


def test_points_that_are_all_the_same_do_not_jump():
    x = torch.ones(50, 2)
    model = Gaussian(torch.zeros(2))
    assert float(Jumps(x, generator()).loss(model, x, model.score, generator(1)).detach()) == 0


def test_the_flux_vanishes_where_the_model_is_right_and_not_elsewhere():
    """Within four standard errors of zero for the right share; more than ten away from it for equal shares."""
    x = two_modes(10_000)
    jumps = Jumps(two_modes(4000, seed=1), generator())
    for share, is_right in ((0.25, True), (0.5, False)):
        model = Shares(share)
        fluxes = torch.stack(
            [
                torch.autograd.grad(jumps.loss(model, part, torch.neg, generator(k)), model.logit)[0]
                for k, part in enumerate(x.split(50))
            ]
        )
        z = float(fluxes.mean() / fluxes.std()) * len(fluxes) ** 0.5
        assert abs(z) < 4 if is_right else z > 10


def test_training_learns_the_masses_of_separated_modes():
    """Scores alone do not find the share. That of 2000 points has a standard error of .01."""
    x = two_modes(2000)
    shares = {}
    for jumps in (False, None):
        model = Shares(0.5)
        train(model, x, objective=LearnedStein(jumps=jumps), steps=300, lr=0.03)
        shares[jumps] = model.share
    assert shares[False] > 0.32
    assert abs(shares[None] - 0.25) < 0.05


def test_a_module_with_an_energy_alone_jumps_too():
    class Energy(Shares):
        def energy(self, x):
            return -super().log_prob(x)

    Energy.log_prob = None
    model = Energy(0.5)
    train(model, two_modes(2000), steps=300, lr=0.03)
    assert abs(model.share - 0.25) < 0.05


def test_without_a_log_density_nothing_jumps():
    x = two_modes(100)
    model = from_score(lambda x: -x)
    objective = LearnedStein()
    objective.begin(model, x, generator())
    assert objective._jumps is None
    with pytest.raises(InputError, match=r"jumps: the model has a score alone, expected log_prob\(x\) or energy\(x\)"):
        LearnedStein(jumps=True).begin(model, x, generator())


def test_in_many_dimensions_nothing_jumps_unless_it_is_asked_for():
    x = torch.randn(100, 11, generator=generator())
    for options, does in (({}, False), ({"jumps": True}, True)):
        objective = LearnedStein(**options)
        objective.begin(Gaussian(torch.zeros(11)), x, generator())
        assert (objective._jumps is not None) == does


def test_jumps_out_of_the_support_cost_nothing():
    """Where the density is zero the loss is zero and its gradient finite."""

    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.rate = nn.Parameter(torch.tensor(1.0))

        def log_prob(self, x):
            inside = (self.rate.log() - self.rate * x).sum(1)
            return torch.where((x > 0).all(1), inside, -torch.inf)

    x = torch.rand(500, 1, generator=generator()) + 0.01
    model = Half()
    loss = Jumps(x, generator()).loss(model, x, torch.neg, generator(1))
    (gradient,) = torch.autograd.grad(loss, model.rate)
    assert loss.isfinite() and gradient.isfinite()
