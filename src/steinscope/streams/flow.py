r"""E-values of points: what the model gains where its mass is moved along a critic.

Follow the flow $\dot z = f(z)$ of a critic f from a point for a while. With $T$ the map from a point to the end of its
path, the e-value of a point is $q(T(z)) |\det \nabla T(z)| / q(z)$. By the change of variables it is one on average
where points come from q, whatever the critic is, and its logarithm is the integral of the Stein value along the path.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.modes.surface import Surface
from steinscope.portfolio.learner import Learner
from steinscope.shapes import FlatPoints, PerPoint

__all__ = ["log_evalues"]

# Runge-Kutta steps along a path, an even number for Simpson's rule. A path is short: a bet moves the log-density of a
# point by a fraction of one.
STEPS = 2
# Log-densities that are rounded by more than this do not tell what a bet gains: their slopes along the path do.
_COARSE = 1e-3


@torch.no_grad()
def log_evalues(critic: Learner, surface: Surface, z: FlatPoints, score: FlatPoints, time: float) -> PerPoint:
    """The logarithm of the e-value of each point.

    Arguments:
        critic: The critic, which must not have seen the points.
        surface: The model in the coordinates of the points.
        z: The points, in float64.
        score: The model's scores at them.
        time: How long the flow is followed, which is how much is bet.
    """
    nodes, log_volume = _path(critic, z, time)
    if surface.has_log_prob:
        start, end = surface.log_prob(z), surface.log_prob(nodes[-1])
        gained = end - start
        # Small differences of large numbers are mostly rounding, whose exponential is above one on average.
        is_coarse = (surface.rounding(z, score, start) > _COARSE) & ~((end == -torch.inf) & start.isfinite())
        if bool(is_coarse.any()):
            gained = torch.where(is_coarse, _work(critic, surface, nodes, score, time), gained)
    else:
        gained = _work(critic, surface, nodes, score, time)
    # A point that ends where the density is zero, or cannot be computed, loses the bet. That keeps the mean below one.
    return (gained + log_volume).nan_to_num(-torch.inf, torch.inf, -torch.inf)


def _path(critic: Learner, z: FlatPoints, time: float) -> tuple[list[FlatPoints], PerPoint]:
    """Places along the paths of points, and the logarithm of how much volumes around them grow to the end."""
    h, nodes, log_volume = time / STEPS, [z], torch.zeros_like(z[:, 0])
    for _ in range(STEPS):
        start = nodes[-1]
        first, d1 = critic.value_and_divergence(start)
        second, d2 = critic.value_and_divergence(start + h / 2 * first)
        third, d3 = critic.value_and_divergence(start + h / 2 * second)
        fourth, d4 = critic.value_and_divergence(start + h * third)
        nodes.append(start + h / 6 * (first + 2 * (second + third) + fourth))
        log_volume = log_volume + h / 6 * (d1 + 2 * (d2 + d3) + d4)
    return nodes, log_volume


def _work(
    critic: Learner, surface: Surface, nodes: list[FlatPoints], score: FlatPoints, time: float
) -> Float[Tensor, " n"]:
    """How much the log-density rises along paths, from scores alone, by Simpson's rule; NaN where there are none."""
    total = torch.zeros_like(score[:, 0])
    for number, node in enumerate(nodes):
        weight = 1 if number in (0, STEPS) else 4 if number % 2 else 2
        slope = score if number == 0 else surface.score(node, where_none=math.nan)
        total += weight * torch.linalg.vecdot(slope, critic.value_and_divergence(node)[0])
    return total * time / (3 * STEPS)
