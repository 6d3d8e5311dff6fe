import math

import pytest
import torch

from steinscope import InputError
from steinscope.data import TOY, draw_toy, moons, moons_density


@pytest.mark.parametrize("name", TOY)
def test_the_contract(name):
    x = draw_toy(name, 2000, seed=1)
    assert x.shape == (2000, 2) and x.dtype == torch.float32
    assert 2 < x.abs().max() < 5.5 and x.mean(0).abs().max() < 0.7
    assert torch.equal(x, draw_toy(name, 2000, seed=1)) and not torch.equal(x, draw_toy(name, 2000, seed=2))
    assert len(x.unique(dim=0)) == 2000


def test_shapes_are_what_their_names_say():
    angle = torch.atan2(*draw_toy("8gaussians", 4000).T)
    near = (angle / (math.pi / 4) - (angle / (math.pi / 4)).round()).abs()
    assert near.mean() < 0.2
    x = draw_toy("checkerboard", 4000) / 2
    assert ((x.floor().sum(1) % 2) == (x.floor().sum(1) % 2)[0]).all()
    radius = draw_toy("rings", 4000).norm(dim=1) / 0.75
    assert (radius - radius.round()).abs().mean() < 0.12
    # A quarter of the points lies on each of four circles, whose radii are known within 5 standard errors.
    # Noise of 0.08 along the circle makes them larger by 0.08² / 2 r.
    for number in range(1, 5):
        ring = 0.75 * radius[radius.round() == number]
        assert 0.2 < len(ring) / 4000 < 0.3
        assert abs(float(ring.mean()) - 0.75 * number - 0.08**2 / (1.5 * number)) < 5 * 0.08 / len(ring) ** 0.5


def test_the_density_of_the_moons_fits_them():
    """Stein's identity for the field x: the mean of s·x + 2 is zero within 5 standard errors."""
    x = moons(20_000, seed=3).requires_grad_()
    (score,) = torch.autograd.grad(moons_density().log_prob(x).sum(), x)
    values = (score * x).sum(1).detach() + 2
    assert abs(values.mean()) < 5 * values.std() / math.sqrt(len(values))


def test_errors():
    with pytest.raises(InputError, match="name: expected one of swissroll, .*, got 'cube'"):
        draw_toy("cube", 5)
    for n in (0, 2**62):
        with pytest.raises(InputError, match=f"n: expected a whole number from 1 to 100000000, got {n}"):
            draw_toy("rings", n)
