"""Two-dimensional data sets."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.randomness import Seed, make_generator

__all__ = ["moons", "moons_density"]

MOONS_NOISE = 0.2
MOONS_SCALE = 2.0


def moons(n: int, seed: Seed = 0) -> Float[Tensor, "n 2"]:
    """Two interleaving half circles, with Gaussian noise."""
    generator = make_generator(seed)
    angle = math.pi * torch.rand(n, generator=generator)
    upper = torch.rand(n, generator=generator) < 0.5
    noise = torch.randn(n, 2, generator=generator)
    return _moon(angle, upper) + MOONS_NOISE * noise


def moons_density(components: int = 100) -> torch.distributions.MixtureSameFamily:
    """The density of `moons`, as a mixture of Gaussians that are dense along the half circles."""
    angle = math.pi * (torch.arange(components) + 0.5) / components
    centres = torch.cat([_moon(angle, torch.full((components,), upper)) for upper in (True, False)])
    family = torch.distributions
    return family.MixtureSameFamily(
        family.Categorical(torch.ones(len(centres))),
        family.Independent(family.Normal(centres, MOONS_NOISE), 1),
    )


def _moon(angle: Tensor, upper: Tensor) -> Tensor:
    sign = torch.where(upper, 1.0, -1.0)
    x = sign * (torch.cos(angle) - 0.5)
    y = sign * (torch.sin(angle) - 0.25)
    return MOONS_SCALE * torch.stack([x, y], 1)
