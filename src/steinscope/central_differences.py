"""Gradients of functions on NumPy arrays, by central differences whose steps fit the units of the points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

__all__ = ["are_single", "central_differences", "difference_steps"]

_PRECISION = float(np.finfo(np.float64).eps)


def central_differences(
    fn: Callable[[np.ndarray], np.ndarray],
    x: Float[np.ndarray, "n d"],
    low: Float[np.ndarray, " d"] | float = -np.inf,
    high: Float[np.ndarray, " d"] | float = np.inf,
) -> tuple[Float[np.ndarray, "n d"], list[np.ndarray]]:
    """The gradient of a function at each point, by 2 d evaluations, and the values of each coordinate.

    Arguments:
        fn: Takes points (n, d) to n numbers.
        x: The points.
        low: Where the function begins to be finite in each coordinate.
        high: Where it ends.
    """
    gradient, values = np.empty_like(x), []
    steps = difference_steps(x, low, high)
    for i in range(x.shape[1]):
        ahead, behind = x.copy(), x.copy()
        ahead[:, i] += steps[:, i]
        behind[:, i] -= steps[:, i]
        above, below = fn(ahead), fn(behind)
        # Where the function is infinite on both sides there is no difference, which whoever asked for it reports.
        with np.errstate(invalid="ignore"):
            gradient[:, i] = (above - below) / (ahead[:, i] - behind[:, i])
        values.append(np.concatenate([above, below]))
    return gradient, values


def difference_steps(
    x: Float[np.ndarray, "n d"], low: Float[np.ndarray, " d"] | float, high: Float[np.ndarray, " d"] | float
) -> Float[np.ndarray, "n d"]:
    """How far differences go from each number to both sides.

    A step is the cube root of the precision, which balances the error of the formula against that of rounding, times
    the scale on which the function may change: the spread of the points, or the distance from their middle where that
    is larger, or from an end of the support where that is smaller. So units do not matter, nor where the points lie.

    Arguments:
        x: The points.
        low: The lower end of the support in each coordinate.
        high: The upper end.
    """
    away = np.abs(x - np.median(x, 0))
    spread = np.median(away, 0)
    spread = np.where(spread > 0, spread, away.mean(0))
    # One point, or points that are all the same, have no spread.
    scale = np.where(spread > 0, np.maximum(away, spread), np.maximum(1.0, np.abs(x)))
    scale = np.minimum(scale, np.minimum(x - low, high - x))
    # Both ends must be other numbers than x.
    return np.maximum(np.cbrt(_PRECISION) * scale, 8 * _PRECISION * np.abs(x))


def are_single(values: np.ndarray) -> bool:
    """Whether different numbers all have the digits of single precision, as they do if they were computed in it."""
    finite = values[np.isfinite(values)]
    with np.errstate(over="ignore"):
        return bool(finite.size and np.ptp(finite) > 0) and np.array_equal(finite, finite.astype(np.float32))
