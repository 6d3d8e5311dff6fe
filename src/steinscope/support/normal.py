"""The standard normal distribution, on plain numbers."""

from __future__ import annotations

import math
from statistics import NormalDist

__all__ = ["normal_quantile", "upper_tail"]


def normal_quantile(probability: float) -> float:
    """The number below which a standard normal lies with this probability.

    Example:
        >>> round(normal_quantile(0.975), 3)
        1.96
    """
    return NormalDist().inv_cdf(probability)


def upper_tail(z: float) -> float:
    """The probability that a standard normal exceeds z, exact far out as well.

    Example:
        >>> round(upper_tail(1.645), 3)
        0.05
    """
    return 0.5 * math.erfc(z / math.sqrt(2))
