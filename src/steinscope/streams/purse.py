"""Wealth that is bet against a model: what it has become is how much the points speak against the model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["Purse"]

# A part of the wealth is kept as cash, whose e-value is one: it is there for a misfit that begins late.
_CASH = 0.5
_MOST_MOVED = 0.01
# Beyond it numbers end. To gain less than one may keeps the level.
_MOST_GAINED = 500.0


class Purse:
    """Wealth that is divided between bettors and cash.

    The wealth after a point is that before it times the mean e-value of the bettors, weighted by their shares, which
    are known before the point. So it is a supermartingale from 1 where the model is right, and by Ville's inequality
    the probability that it ever reaches 1/α is at most α.

    A bettor's share grows with its e-values. After each point a small part of all shares, at most 1/t of them, is
    divided anew, so that no bettor is ever without money.

    Arguments:
        bettors: How many there are.
        alpha: The level.

    Example:
        >>> purse = Purse(1, alpha=0.05)
        >>> purse.bet(np.full((10, 1), np.log(2.0)))
        >>> purse.reached, round(purse.pvalue, 3)
        (6, 0.002)
    """

    def __init__(self, bettors: int, alpha: float) -> None:
        self.initial = np.append(np.full(bettors, (1 - _CASH) / bettors), _CASH)
        self.shares = self.initial.copy()
        self.limit = -math.log(alpha)
        self.log_wealth = self.log_largest = 0.0
        self.count = 0
        self.reached: int | None = None

    def bet(self, log_evalues: np.ndarray) -> None:
        """Go through points, one after the other.

        Arguments:
            log_evalues: The logarithm of the e-value of each point (row) for each bettor.
        """
        for row in np.exp(np.minimum(log_evalues, _MOST_GAINED)):
            gains = np.append(row, 1.0) * self.shares
            total = float(gains.sum())
            self.count += 1
            moved = min(_MOST_MOVED, 1 / self.count)
            self.shares = (1 - moved) / total * gains + moved * self.initial
            self.log_wealth += math.log(total)
            self.log_largest = max(self.log_largest, self.log_wealth)
            if self.reached is None and self.log_wealth >= self.limit:
                self.reached = self.count

    @property
    def pvalue(self) -> float:
        """One over the largest wealth so far: at most α with a probability of at most α, whenever it is looked at."""
        return math.exp(-self.log_largest)

    def state(self) -> dict[str, Any]:
        """What must be saved to go on."""
        wealth = {"log_wealth": self.log_wealth, "log_largest": self.log_largest}
        return {**wealth, "shares": self.shares.tolist(), "count": self.count, "reached": self.reached}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what was saved."""
        self.shares = np.array(state["shares"])
        self.log_wealth, self.log_largest = state["log_wealth"], state["log_largest"]
        self.count, self.reached = state["count"], state["reached"]
