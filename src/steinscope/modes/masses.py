"""How much mass a model holds in the cell of each of its modes, by bridge sampling (Meng and Wong 1996).

The cell of a mode is compared with a distribution of the mode's local shape whose density is known. Draws of it and the
points of the cell together give the mass and its standard error; where a cell has no points, the draws alone do. The
points need not be divided between the cells as the model says: only their shapes within the cells matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from steinscope.modes.search import Modes
from steinscope.modes.surface import Surface

__all__ = ["Masses", "model_masses"]

# In all, so that many modes do not take longer than few.
_DRAWS = 4000
_STEPS = 50


@dataclass(frozen=True)
class Masses:
    """What share of the model's mass each mode holds.

    Arguments:
        share: The shares, which add up to 1.
        covariance: The covariance of their errors.
    """

    share: Float[Tensor, " k"]
    covariance: Float[Tensor, "k k"]


def model_masses(
    modes: Modes, surface: Surface, z: Float[Tensor, "n d"], cells: Int[Tensor, " n"], generator: torch.Generator
) -> Masses:
    """The share of the mass that the model gives to each mode.

    Arguments:
        modes: The modes.
        surface: The log-density.
        z: Some points of the data.
        cells: The mode that each of them belongs to.
        generator: The source of the draws.
    """
    heights = surface.log_prob(z)
    usable = heights.isfinite()
    z, cells, heights = z[usable], cells[usable], heights[usable]
    found = [
        _log_mass(modes, number, surface, z[cells == number], heights[cells == number], generator)
        for number in range(len(modes))
    ]
    log_mass, variance = (torch.tensor(column, dtype=z.dtype, device=z.device) for column in zip(*found, strict=True))
    share = log_mass.softmax(0)
    # What a relative error of one mass changes in all shares.
    slopes = torch.diag(share) - torch.outer(share, share)
    return Masses(share, slopes @ torch.diag(variance) @ slopes)


def _log_mass(
    modes: Modes, number: int, surface: Surface, own: Tensor, heights: Tensor, generator: torch.Generator
) -> tuple[float, float]:
    """The logarithm of the mass of one cell, and the relative variance of the mass."""
    drawn, log_density = _draw(modes, number, _DRAWS // len(modes), generator)
    at_drawn = torch.where(modes.cells(drawn) == number, surface.log_prob(drawn), -torch.inf) - log_density
    at_own = heights - _log_density(modes, number, own)
    if not bool(at_drawn.isfinite().any()):
        # No draw hit the cell: the mass of the Gaussian with the curvature of the top, which may be far off.
        top = float(modes.heights[number] + modes.log_volumes[number])
        return top + 0.5 * drawn.shape[1] * math.log(2 * math.pi), 1.0
    offset = float(at_drawn.max())
    drawn_ratio, own_ratio = (at_drawn - offset).exp(), (at_own - offset).clamp_max(50.0).exp()
    mass, share = drawn_ratio.mean(), len(own) / (len(own) + len(drawn))
    if len(own) == 0:
        return offset + math.log(float(mass)), _relative_variance(drawn_ratio)
    for _ in range(_STEPS):
        above = drawn_ratio / (share * drawn_ratio + (1 - share) * mass)
        below = 1 / (share * own_ratio + (1 - share) * mass)
        mass = above.mean() / below.mean()
    return offset + math.log(float(mass)), _relative_variance(above) + _relative_variance(below)


def _relative_variance(values: Tensor) -> float:
    """The variance of a mean over its square; 1 for a single value, which tells nothing of it."""
    if len(values) < 2:
        return 1.0
    return float(values.var() / values.mean().square() / len(values))


def _degrees(dim: int) -> float:
    """Tails that are heavier than a Gaussian's at every dimension, and yet not far from it in many."""
    return 5.0 + dim


def _draw(modes: Modes, number: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draws of Student's t distribution of a mode's shape, with their log-densities."""
    centre = modes.centres[number]
    degrees = _degrees(len(centre))
    like = {"generator": generator, "dtype": centre.dtype, "device": centre.device}
    normal = torch.randn(count, len(centre), **like)
    chi = torch.randn(count, int(degrees), **like).square().sum(1, keepdim=True)
    drawn = centre + normal / (chi / degrees).sqrt() @ modes.roots[number]
    return drawn, _log_density(modes, number, drawn)


def _log_density(modes: Modes, number: int, z: Tensor) -> Tensor:
    local = (z - modes.centres[number]) @ modes.inverse_roots[number]
    dim, degrees = local.shape[1], _degrees(local.shape[1])
    constant = math.lgamma((degrees + dim) / 2) - math.lgamma(degrees / 2) - dim / 2 * math.log(degrees * math.pi)
    tails = 0.5 * (degrees + dim) * (local.square().sum(1) / degrees).log1p()
    return constant - tails - modes.log_volumes[number]
