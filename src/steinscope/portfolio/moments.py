"""Critics made of the first two moments: a constant, and a linear map."""

from __future__ import annotations

import torch

from steinscope.portfolio.learner import Learner
from steinscope.shapes import FlatPoints, PerPoint

__all__ = ["LinearLearner", "MeanLearner"]


class MeanLearner(Learner):
    """The constant critic f(x) = the average of the scores. It sees a wrong mean, with far less noise than `linear`."""

    name = "mean"

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        self.count = 0
        self.total = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)

    def values(self, x: FlatPoints, score: FlatPoints) -> PerPoint:
        return score @ self.offset

    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        return self.offset.expand_as(x), torch.zeros_like(x)

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        self.total += score.sum(0)
        self.count += len(x)

    def refit(self) -> None:
        self.offset = self.total / self.count


class LinearLearner(Learner):
    r"""The critic $f(x) = A (x - c) / \tau^2 + b$ with A and b the plain averages of $s (x - c)^\top + I$ and of s.

    It sees wrong means and covariances. It is not whitened: that would cost power while n is not far above d.
    """

    name = "linear"

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        self.centre = x.mean(0)
        self.scale = float((x - self.centre).square().mean().clamp_min(1e-30))
        self.count = 0
        self.products = torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype, device=x.device)
        self.total = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)

    def values(self, x: FlatPoints, score: FlatPoints) -> PerPoint:
        f = torch.addmm(self.offset, x - self.centre, self.matrix.T)
        return torch.linalg.vecdot(score, f) + self.matrix.trace()

    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        f = torch.addmm(self.offset, x - self.centre, self.matrix.T)
        return f, self.matrix.diagonal().expand_as(x)

    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        self.products.addmm_(score.T, x - self.centre)
        self.total += score.sum(0)
        self.count += len(x)

    def refit(self) -> None:
        self.matrix = self.products / self.count
        self.matrix.diagonal().add_(1.0)
        self.matrix /= self.scale
        self.offset = self.total / self.count
