"""When a chart needs a logarithmic axis."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["squashed_below"]

_TOO_FAR = 20.0


def squashed_below(values: np.ndarray, half: np.ndarray) -> float | None:
    """Where an axis should turn from linear to logarithmic, if one value would squash the others; None if none does.

    One does if it is 20 times as large as the median of the others.

    Arguments:
        values: The values (n).
        half: The half widths of their intervals (n).

    Returns:
        A power of ten below the nearest of the ends.

    Example:
        >>> squashed_below(np.array([8.1, 27.0, 31.0, 127_000.0]), np.array([2.0, 3.0, 4.0, 9000.0]))
        10.0
        >>> squashed_below(np.array([0.4, 8.4, 38.8, 39.6]), np.array([0.4, 2.0, 4.0, 4.0])) is None
        True
    """
    sizes = np.sort(np.abs(np.asarray(values, dtype=np.float64)))
    ends = np.abs(values) + np.abs(half)
    if len(sizes) < 2 or not np.isfinite(ends).all() or sizes[-1] <= _TOO_FAR * np.median(sizes[:-1]):
        return None
    nearest = float(ends.min())
    return 10.0 ** math.floor(math.log10(nearest)) if nearest > 0 else None
