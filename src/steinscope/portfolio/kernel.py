r"""The kernel critic: smooth misfit in any direction.

For a test it is the Stein witness of the points seen, the mean over them of
$s(x') k(x', x) + \nabla_{x'} k(x', x)$. For an estimate it is $f = W \varphi(x)$ with $\varphi_m(x) = k(x, z_m)$ at
landmarks among the points, solved in closed form.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.critics.solved import ridge_solutions
from steinscope.maps.radial import KernelName, median_distance, radial, squared_distances
from steinscope.portfolio.features import RIDGES
from steinscope.portfolio.learner import Context, Learner
from steinscope.shapes import FlatPoints, PerPoint

__all__ = ["KernelLearner", "LandmarkLearner"]

_WIDTH_ROWS = 500


class _WithPoints(Learner):
    """What both forms share: they keep points, and the width of their kernel is a multiple of the median distance.

    Arguments:
        factor: The width of the kernel, in median distances.
    """

    name = "kernel"
    most_points: int

    def __init__(self, factor: float = 0.5) -> None:
        self.factor = factor

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        self.width = self.factor * median_distance(x[:_WIDTH_ROWS])
        self.batches: list[tuple[Tensor, Tensor]] = []
        self.count = 0

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        room = self.most_points - self.count
        if room > 0:
            self.batches.append((x[:room], score[:room]))
            self.count += min(room, len(x))

    def _points(self) -> tuple[Tensor, Tensor]:
        x, score = (torch.cat(parts) for parts in zip(*self.batches, strict=True))
        self.batches = [(x, score)]
        return x, score


class KernelLearner(_WithPoints):
    """The kernel critic: in a test the Stein witness of the points seen, the first few thousand of them.

    Arguments:
        factor: The width of the kernel, in median distances.
        kernel: `"gaussian"` or `"imq"`.
    """

    most_points = 4096
    # The first points are its points.
    totals = ()
    at_home = ("batches",)

    def __init__(self, factor: float = 0.5, kernel: KernelName = "gaussian") -> None:
        super().__init__(factor)
        self.kernel: KernelName = kernel

    @classmethod
    def for_estimate(cls, context: Context) -> Sequence[Learner]:
        return tuple(LandmarkLearner(factor) for factor in LandmarkLearner.factors)

    def refit(self) -> None:
        self.x, self.score = self._points()

    def state(self) -> dict[str, Any]:
        """The points, and how many of them the critic is made of."""
        x, score = self._points()
        return {"width": self.width, "count": self.count, "points": [x, score], "fitted": len(self.x)}

    def restore(self, state: dict[str, Any]) -> None:
        x, score = state["points"]
        self.width, self.count, self.batches = state["width"], state["count"], [(x, score)]
        self.x, self.score = x[: state["fitted"]], score[: state["fitted"]]

    def _weights(self, x: FlatPoints) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Squared distances to the points seen, and the kernel with its derivatives, over their number."""
        squared = squared_distances(x, self.x)
        value, first, second = (part / len(self.x) for part in radial(self.kernel, self.width)(squared))
        return squared, value, first, second

    def value_and_divergence(self, x: FlatPoints) -> tuple[FlatPoints, PerPoint]:
        squared, value, first, second = self._weights(x)
        f = value @ self.score + 2 * (first @ self.x - first.sum(1, keepdim=True) * x)
        own = torch.linalg.vecdot(self.x, self.score)
        # ∇·f has s(x')·(x - x') from the first term and -d and the distance from the second.
        along = torch.linalg.vecdot(first, torch.addmm(-own, x, self.score.T))
        return f, 2 * (along - x.shape[1] * first.sum(1)) - 4 * torch.linalg.vecdot(second, squared)

    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        _, value, first, second = self._weights(x)
        total = first.sum(1, keepdim=True)
        f = value @ self.score + 2 * (first @ self.x - total * x)
        diagonal = 2 * (x * (first @ self.score) - first @ (self.x * self.score) - total)
        spread = second.sum(1, keepdim=True) * x.square() - 2 * x * (second @ self.x) + second @ self.x.square()
        return f, diagonal - 4 * spread


class LandmarkLearner(_WithPoints):
    r"""The critic $f = W \varphi(x)$ with Gaussians $\varphi_m(x) = k(x, z_m)$ at landmarks $z_m$.

    Landmarks are the first points seen. The derivative of a Gaussian is $-\varphi_m (x - z_m) / h^2$, so that
    $\nabla \cdot f = -(x \cdot f - \sum_m \varphi_m z_m \cdot w_m) / h^2$ needs little more than f.

    Arguments:
        factor: The width h of the kernel, in median distances.
    """

    factors = (1.0, 0.5, 0.25, 0.125)
    most_points = 20_000
    most_landmarks = 500

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        super().begin(x, score)
        self.landmarks = x[:0]

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        super().observe(x, score)
        room = min(self.most_landmarks, max(100, round(4 * math.sqrt(self.count))))
        if len(self.landmarks) < room:
            self.landmarks = torch.cat([rows for rows, _ in self.batches])[:room]

    def refit(self) -> None:
        for _ in self._solve(0.5, (1.0,)):
            pass

    def path(self, l2: float) -> Iterator[None]:
        return self._solve(l2, RIDGES)

    def _solve(self, l2: float, ridges: tuple[float, ...]) -> Iterator[None]:
        x, score = self._points()
        value = self._kernel(x)
        gram = value.T @ value / len(x)
        slopes = (self.landmarks.T * value.sum(0) - x.T @ value) / self.width**2
        cross = (score.T @ value + slopes) / len(x)
        for weights in ridge_solutions(gram.double(), cross.double(), l2, ridges):
            self.weights = weights.to(x.dtype)
            yield

    def snapshot(self) -> Learner:
        """Without the points, which it needs no longer."""
        kept = copy.copy(self)
        kept.batches = []
        return kept

    def _kernel(self, x: FlatPoints) -> Float[Tensor, "n m"]:
        return squared_distances(x, self.landmarks).mul_(-0.5 / self.width**2).exp_()

    def value_and_divergence(self, x: FlatPoints) -> tuple[FlatPoints, PerPoint]:
        return self.looking_at(x)()

    def looking_at(self, x: FlatPoints) -> Callable[[], tuple[FlatPoints, PerPoint]]:
        value = self._kernel(x)

        def look() -> tuple[FlatPoints, PerPoint]:
            f = value @ self.weights.T
            own = torch.linalg.vecdot(self.landmarks, self.weights.T)
            return f, (value @ own - torch.linalg.vecdot(x, f)) / self.width**2

        return look

    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        value = self._kernel(x)
        f = value @ self.weights.T
        return f, (value @ (self.landmarks * self.weights.T) - x * f) / self.width**2
