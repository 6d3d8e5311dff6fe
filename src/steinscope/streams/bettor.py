"""A critic that bets: how much, it learns from what it would have won."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from steinscope.modes.surface import Surface
from steinscope.portfolio.learner import Learner
from steinscope.shapes import FlatPoints
from steinscope.streams.flow import log_evalues

__all__ = ["Bettor"]

# What a critic is taken to find before it has shown anything, in standard deviations of its Stein values, and how many
# points that belief counts for.
_PRIOR_EFFECT = 0.1
_PRIOR_POINTS = 50.0
# Larger bets gain little: a misfit of half a standard deviation at each point is found after some tens of points.
_MOST_EFFECT = 0.5
# What was won long ago says little about a critic that has learned since.
_KEPT = 0.8
# The variance of effects over which the normal mixture is taken.
_MIXTURE = 0.15**2
_NUMBERS = ("scale", "effect", "total", "squares", "sum", "variance")


class Bettor:
    r"""A critic and the size of its bets.

    The best bet for small effects is $\mu / \sigma$ standard deviations, with $\mu$ and $\sigma^2$ the mean and the
    variance of the critic's Stein values. Both come from points before it had seen them.

    Arguments:
        learner: The critic.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        # How much it bets, in standard deviations of Stein values.
        self.effect = 0.0
        self.scale = self.total = self.squares = 0.0
        self.sum = self.variance = 0.0

    def bet(self, surface: Surface | None, x: FlatPoints, score: FlatPoints) -> np.ndarray:
        """The logarithm of the e-value of each new point.

        Arguments:
            surface: The model; None where there are scores alone.
            x: The points.
            score: The scores at them.
        """
        if self.scale == 0.0:
            return np.zeros(len(x))
        values = self.learner.values(x, score).double().cpu().numpy() / self.scale
        self.total += float(values.sum())
        self.squares += float(np.square(values).sum())
        if surface is None:
            return self._mixture_gains(values)
        if self.effect == 0.0:
            return np.zeros(len(x))
        return log_evalues(self.learner, surface, x, score, self.effect / self.scale).cpu().numpy()

    def _mixture_gains(self, values: np.ndarray) -> np.ndarray:
        """By how much each value raises the logarithm of the normal mixture over positive effects."""
        sums, variances = self.sum + np.cumsum(values), self.variance + np.cumsum(np.square(values))
        before = _log_mixture(np.array([self.sum]), np.array([self.variance]))
        self.sum, self.variance = float(sums[-1]), float(variances[-1])
        return np.diff(_log_mixture(sums, variances), prepend=before)

    def refit(self, x: FlatPoints, score: FlatPoints) -> None:
        """Make the critic from all points seen, take its scale from the last of them, and choose the next bets."""
        self.learner.refit()
        self.scale = math.sqrt(float(self.learner.values(x, score).double().square().mean()))
        effect = (_PRIOR_POINTS * _PRIOR_EFFECT + self.total) / (_PRIOR_POINTS + self.squares)
        self.effect = min(max(effect, 0.0), _MOST_EFFECT)
        self.total *= _KEPT
        self.squares *= _KEPT

    def state(self) -> dict[str, Any]:
        """What must be saved to go on."""
        return {**{name: getattr(self, name) for name in _NUMBERS}, "learner": self.learner.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what was saved."""
        for name in _NUMBERS:
            setattr(self, name, float(state[name]))
        self.learner.restore(state["learner"])


def _log_mixture(sums: np.ndarray, variances: np.ndarray) -> np.ndarray:
    r"""$\log E \exp(\lambda S - \lambda^2 V / 2)$ over half-normal $\lambda$ (Robbins 1970)."""
    widened = 1 + _MIXTURE * variances
    z = torch.from_numpy(sums * np.sqrt(_MIXTURE / widened))
    return math.log(2) - 0.5 * np.log(widened) + (0.5 * z.square() + torch.special.log_ndtr(z)).numpy()
