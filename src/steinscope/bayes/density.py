"""The posterior itself, by a function of another library that gives value and gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from torch import Tensor, from_numpy

from steinscope.errors import InputError

__all__ = ["Posterior", "row_by_row"]

Batch = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Posterior:
    """A density in unconstrained coordinates whose log-density and score come from one function on NumPy arrays.

    Arguments:
        function: Takes points (n, d) to n log-densities, up to a constant, and scores (n, d).
    """

    def __init__(self, function: Batch) -> None:
        self._function = function

    def values(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log-density and the score at each of (n, d) points."""
        value, score = self._function(points)
        return np.asarray(value), np.asarray(score)

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The log-density at each point, up to a constant."""
        return self._tensors(x)[0]

    def score(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The gradient of the log-density at each point."""
        return self._tensors(x)[1]

    def _tensors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value, score = self.values(x.detach().cpu().numpy())
        return from_numpy(np.array(value)).to(x), from_numpy(np.array(score)).to(x)

    def at(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log-densities (chains, draws) and scores (chains, draws, d) at draws, all of them finite."""
        value, score = self.values(x.reshape(-1, x.shape[2]))
        bad = ~(np.isfinite(value) & np.isfinite(score).all(1))
        if bad.any():
            chain, draw = divmod(int(bad.argmax()), x.shape[1])
            raise InputError(
                "model", f"its log-density or gradient at draw {draw} of chain {chain} is not finite: {value[bad][0]}"
            )
        return value.reshape(x.shape[:2]), score.reshape(x.shape)


def row_by_row(function: Callable[[np.ndarray], tuple[float, np.ndarray]]) -> Batch:
    """A function of one point as a function of rows of points."""

    def rows(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        points = np.ascontiguousarray(points, dtype=np.float64)
        values, scores = np.empty(len(points)), np.empty(points.shape)
        for row, point in enumerate(points):
            values[row], scores[row] = function(point)
        return values, scores

    return rows
