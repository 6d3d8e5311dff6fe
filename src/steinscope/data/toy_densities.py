"""The log-likelihood that the true densities of the two-dimensional data sets reach: the ceiling of every model."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from steinscope.data.toy import moons_density

__all__ = ["true_log_likelihood"]

# Curves are mixtures of so many places along them, which lie far closer than the noise is wide.
_PLACES = 500


def true_log_likelihood(name: str, x: Tensor) -> float | None:
    """The mean log-density of points of a data set under the density that they were drawn from.

    None for the pinwheel, whose density has no simple form.

    Arguments:
        name: The data set.
        x: Points of it.

    Example:
        >>> round(true_log_likelihood("checkerboard", torch.zeros(1, 2)), 3)
        -3.466
    """
    if name not in _DENSITIES:
        return None
    return float(torch.cat([_DENSITIES[name](part.double()) for part in x.split(1000)]).mean())


def _middles(count: int) -> Tensor:
    """Numbers from 0 to 1 that stand for uniform ones."""
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def _around(centres: Tensor, deviation: float) -> Callable[[Tensor], Tensor]:
    """Gaussian noise around places that are equally likely."""

    def log_prob(x: Tensor) -> Tensor:
        squared = torch.cdist(x, centres).square()
        constant = math.log(2 * math.pi * deviation**2 * len(centres))
        return torch.logsumexp(-0.5 * squared / deviation**2, 1) - constant

    return log_prob


def _circle(radius: float, count: int) -> Tensor:
    angle = 2 * math.pi * torch.arange(count, dtype=torch.float64) / count
    return radius * torch.stack([torch.cos(angle), torch.sin(angle)], 1)


def _swissroll() -> Tensor:
    turn = 1.5 * math.pi * (1 + 2 * _middles(_PLACES))
    return turn[:, None] * torch.stack([torch.cos(turn), torch.sin(turn)], 1) / 5


def _two_spirals(x: Tensor) -> Tensor:
    """Along each spiral uniform noise, the width of which is a sixth, and Gaussian noise of standard deviation .1."""
    turn = 3 * math.pi * _middles(_PLACES).sqrt()
    spiral = turn[:, None] * torch.stack([-torch.cos(turn), torch.sin(turn)], 1) / 3
    width, deviation = 0.5 / 3, 0.1
    found = []
    for sign in (1.0, -1.0):
        apart = sign * x[:, None] - spiral
        share = torch.special.ndtr(apart / deviation) - torch.special.ndtr((apart - width) / deviation)
        found.append((share / width).prod(2))
    return torch.cat(found, 1).mean(1).log()


_DENSITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "swissroll": _around(_swissroll(), 1 / 5),
    "8gaussians": _around(_circle(4 / math.sqrt(2), 8), 0.5 / math.sqrt(2)),
    "circles": _around(torch.cat([_circle(radius, _PLACES) for radius in (3.0, 1.5)]), 0.24),
    "moons": lambda x: moons_density().log_prob(x.float()),
    "2spirals": _two_spirals,
    "checkerboard": lambda x: torch.full((len(x),), -math.log(32.0)),
    "rings": _around(torch.cat([_circle(radius, _PLACES) for radius in (3.0, 2.25, 1.5, 0.75)]), 0.08),
}
