"""The true densities of the two-dimensional data sets."""

import pytest
import torch

from steinscope import from_log_prob, gof_test
from steinscope.data.toy import TOY, draw_toy
from steinscope.data.toy_densities import _DENSITIES, true_log_likelihood

SMOOTH = [name for name in _DENSITIES if name not in ("checkerboard", "moons")]


@pytest.mark.parametrize("name", SMOOTH)
def test_the_density_sums_to_one_and_the_points_come_from_it(name):
    """A grid of cells of .08 sums densities of width .08 and more to well within a thousandth. The test has level
    .001, so that one of the five true densities is rejected in half a per cent of all seeds."""
    axis = torch.linspace(-6, 6, 151).double()
    grid = torch.cartesian_prod(axis, axis)
    total = sum(float(_DENSITIES[name](part).exp().sum()) for part in grid.split(2000)) * 0.08**2
    assert abs(total - 1) < 1e-3
    model = from_log_prob(lambda y: _DENSITIES[name](y.double()))
    x = draw_toy(name, 800, seed=5)
    assert not gof_test(x, model, critics="closed form", repeats=1, alpha=0.001).rejected
    assert gof_test(1.1 * x, model, critics="closed form", repeats=1, alpha=0.001).rejected


def test_the_mean_log_density_is_minus_the_entropy():
    """Eight Gaussians that hardly overlap: log 8 nats more than the entropy of one; rings likewise."""
    x = draw_toy("8gaussians", 20_000, seed=2)
    one = torch.distributions.Normal(0.0, 0.5 / 2**0.5).entropy()
    assert abs(true_log_likelihood("8gaussians", x) + 2 * float(one) + torch.log(torch.tensor(8.0))) < 0.03
    assert true_log_likelihood("pinwheel", x) is None
    assert set(TOY) == {*_DENSITIES, "pinwheel"}
