"""Critics made of the first two moments: a constant, and a linear map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from steinscope.portfolio.learner import Context, Learner
from steinscope.shapes import FlatPoints, PerPoint

__all__ = ["LinearLearner", "MeanLearner"]

RIDGES = (1e6, *(10.0**k for k in range(2, -7, -1)))


class MeanLearner(Learner):
    """The constant critic f(x) = the average of the scores. It sees a wrong mean, with far less noise than `linear`."""

    name = "mean"
    totals = ("count", "total")

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        self.count = 0
        self.total = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)

    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        return self.offset.expand_as(x), torch.zeros_like(x)

    def values(self, x: FlatPoints, score: FlatPoints) -> PerPoint:
        return score @ self.offset

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        self.total = self.total + score.sum(0)
        self.count += len(x)

    def refit(self) -> None:
        self.offset = self.total / self.count


class LinearLearner(Learner):
    r"""The critic $f(x) = A (x - c) / \tau^2 + b$. It sees wrong means and covariances.

    For a test A and b are the plain averages of $s (x - c)^\top + I$ and of s: whitening would cost power while n is
    not far above d. For an estimate A is the symmetric matrix that solves the penalised problem, because the best
    critic is a gradient field.

    Arguments:
        is_solved: Whether the second moments of x are summed up as well, which `path` needs.
    """

    name = "linear"
    totals = ("count", "products", "total", "gram", "moved")

    def __init__(self, is_solved: bool = False) -> None:
        self.is_solved = is_solved

    @classmethod
    def for_estimate(cls, context: Context) -> Sequence[Learner]:
        return (cls(is_solved=True),)

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        d, options = x.shape[1], {"dtype": torch.float64, "device": x.device}
        self.centre = x.mean(0)
        # Points that are all the same have no scale of their own; their coordinates are of unit scale.
        self.scale = float((x - self.centre).square().mean()) or 1.0
        self.count = 0
        self.products, self.gram = torch.zeros(d, d, **options), torch.zeros(d, d, **options)
        self.total, self.moved = torch.zeros(d, **options), torch.zeros(d, **options)

    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        f = torch.addmm(self.offset, x - self.centre, self.matrix.T)
        return f, self.matrix.diagonal().expand_as(x)

    def value_and_divergence(self, x: FlatPoints) -> tuple[FlatPoints, PerPoint]:
        f = torch.addmm(self.offset, x - self.centre, self.matrix.T)
        return f, self.matrix.trace().expand(len(x))

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        moved = x - self.centre
        self.products = self.products + score.T @ moved
        self.total = self.total + score.sum(0)
        self.count += len(x)
        if self.is_solved:
            self.gram = self.gram + moved.T @ moved
            self.moved = self.moved + moved.sum(0)

    def refit(self) -> None:
        matrix = self.products / self.count
        matrix.diagonal().add_(1.0)
        self.matrix = (matrix / self.scale).to(self.centre.dtype)
        self.offset = (self.total / self.count).to(self.centre.dtype)

    def path(self, l2: float) -> Iterator[None]:
        """Symmetric solutions for one ridge after the other, the strongest first, which leaves little but the constant.

        With C the covariance of x and K the symmetric part of the centred average, A solves C A + A C = 2K.
        """
        mean, average = self.moved / self.count, self.total / self.count
        covariance = self.gram / self.count - torch.outer(mean, mean)
        cross = self.products / self.count - torch.outer(average, mean)
        cross.diagonal().add_(1.0)
        eigenvalues, vectors = torch.linalg.eigh(covariance)
        spectrum = eigenvalues.clamp_min(0.0)
        level = float(spectrum.mean()) or 1.0
        rotated = vectors.T @ (cross + cross.T) @ vectors / (2 * l2)
        for ridge in RIDGES:
            sums = spectrum[:, None] + spectrum + 2 * ridge * level
            matrix = vectors @ (rotated / sums) @ vectors.T
            self.matrix = matrix.to(self.centre.dtype)
            self.offset = (average / (2 * l2) - matrix @ mean).to(self.centre.dtype)
            yield
