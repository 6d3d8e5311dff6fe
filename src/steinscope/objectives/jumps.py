r"""Jumps between points, which tell a model how its mass is divided, where scores do not.

Scores know nothing of constants: how much mass each of several separated modes has, and whether there is mass where no
points are, leaves no trace in them. A log-density knows, and its normaliser is not needed for it.

A point x jumps to $x' = x + y - z$ with two other points y and z. The way back is as likely, because y and z may change
places. A sampler of the model that makes such jumps accepts them by Barker's rule with probability
$\alpha(x \to x') = q(x') / (q(x) + q(x'))$. If the points come from the model, then by detailed balance

$$E\,[\alpha(x \to x')\,(h(x') - h(x))] = 0$$

for every function h. With $h = \nabla_\theta \log q$ this is the gradient of $E \log(1 + q(x') / q(x))$, half of the
loss of conditional noise contrast (Ceylan and Gutmann 2018) with these jumps for noise.

A discrepancy is a squared score, and this loss has no unit. So it is multiplied by the mean squared derivative of a
log-density along the jumps, $E\,(g \cdot (y - z))^2 / E\,\|y - z\|^2$, where g is what is known of the data's score.
If the points hardly vary in some direction, scores are large there and jumps are short, so that such directions do not
count. The mean is over a few points that stay the same, and not over the batch, so that several processes that share
a batch have one unit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from steinscope.densities import log_prob_at
from steinscope.shapes import Points, Scalar, flattened
from steinscope.support.randomness import uniform_rows

__all__ = ["Jumps"]

# So many points tell how far apart points are, and so many of them how steep the model is along jumps.
_MOST_POINTS, _UNIT_POINTS = 8192, 128


class Jumps:
    """Jumps by differences of points.

    Arguments:
        x: Points, the differences of which are taken.
        generator: The source of what is random.
    """

    def __init__(self, x: Points, generator: torch.Generator) -> None:
        self.points = x[:_MOST_POINTS].detach().clone()
        self.starts = self._drawn(self.points[:_UNIT_POINTS], generator)
        self.jumps = self._drawn(self.starts, generator) - self._drawn(self.starts, generator)

    def loss(self, model: Any, x: Points, score: Callable[[Points], Points], generator: torch.Generator) -> Scalar:
        """Twice the mean logistic loss of points against where they jump to, in units of a squared score.

        Arguments:
            model: The model.
            x: The points that jump.
            score: What is known of the score of the data.
            generator: The source of what is random.
        """
        landed = x + self._drawn(x, generator) - self._drawn(x, generator)
        before, after = log_prob_at(model, torch.cat([x, landed])).chunk(2)
        return 2 * self.squared_slope(score) * functional.softplus(after - before).mean()

    def squared_slope(self, score: Callable[[Points], Points]) -> Scalar:
        """The mean squared derivative along jumps of the log-density with that score, for a length of one."""
        flat, jump = flattened(score(self.starts).detach()), flattened(self.jumps)
        length = jump.square().sum().clamp_min(torch.finfo(jump.dtype).tiny)
        return (flat * jump).sum(1).square().sum() / length

    def _drawn(self, like: Points, generator: torch.Generator) -> Tensor:
        count = len(self.points)
        places = uniform_rows(like.new_empty(len(like), dtype=torch.float64), generator) * count
        return self.points[places.long().clamp(max=count - 1)]
