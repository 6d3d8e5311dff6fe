"""Noise on the points of a run, which falls to zero while it goes on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from steinscope.shapes import flattened
from steinscope.support.randomness import normal_rows

__all__ = ["OPEN_STEPS", "Jitter", "noise_left"]

# At first the variance of the noise is that of the n points, times this and divided by n, and a quarter of it at most.
_VARIANCE, _MOST = 20.0, 0.25
# A smaller standard deviation is not worth a word.
_NOTED = 0.15
# The share of the steps over which noise falls to zero, and the steps that jitter takes for all where a run has no end.
_SHARE, OPEN_STEPS = 0.8, 2000


def noise_left(step: int, steps: int) -> float:
    """The share of the noise on the points that is left at a step: it falls to zero over the first 80% of them."""
    return max(0.0, 1 - max(0, step - 1) / (_SHARE * steps)) ** 2


class Jitter:
    """Gaussian noise with the covariance of the points, so that few of them are not learned by heart.

    A model that has seen each of few points a hundred times puts a narrow peak on each of them. Points that move a
    little each time they come allow no peaks narrower than that. The fewer points there are, the larger is the noise.

    Arguments:
        x: The points, or some of them, from which their covariance is taken.
    """

    def __init__(self, x: Tensor) -> None:
        flat = flattened(x).double()
        values, vectors = torch.linalg.eigh(torch.cov(flat.T, correction=0).view(flat.shape[1], -1))
        self.root = ((vectors * values.clamp_min(0).sqrt()) @ vectors.T).to(x.dtype)

    def added_to(self, x: Tensor, left: float, count: int, generator: torch.Generator) -> Tensor:
        """The points of a batch with noise.

        Arguments:
            x: The batch.
            left: The share of the noise that is left.
            count: How many points come again and again.
            generator: The source of the noise.
        """
        noise = flattened(normal_rows(x, generator)) @ self.root
        return x + left * _deviation(count) * noise.view(x.shape)

    def notes(self, count: int) -> tuple[str, ...]:
        """What a reader should know of it, where so many points come again and again."""
        if _deviation(count) < _NOTED:
            return ()
        return (
            f"There are few points: those that came again were moved by noise of up to {_deviation(count):.2g} "
            "standard deviations, so that they are not learned by heart (noise=0 for none).",
        )


def _deviation(count: int) -> float:
    """The standard deviation of the noise at first, in those of the points."""
    return math.sqrt(min(_MOST, _VARIANCE / count))
