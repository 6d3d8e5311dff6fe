"""The critic on the model's own features, in closed form."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from steinscope.critics.solved import ridge_solutions
from steinscope.densities import placement
from steinscope.maps.features import FeatureMap, InCoordinates, as_feature_map
from steinscope.portfolio.learner import Context, Learner
from steinscope.shapes import FlatPoints, PerPoint

__all__ = ["RIDGES", "FeatureLearner", "ModelFeatureLearner"]

RIDGES = tuple(10.0**k for k in range(1, -8, -1))


class FeatureLearner(Learner):
    r"""The critic $f = W \varphi(x)$ on given features, with $W = C (G + rI)^{-1} / 2\lambda$ from averages.

    Arguments:
        feature_map: The features.
        ridge: r in a test, as a share of the mean diagonal entry of G.
    """

    totals = ("count", "gram", "cross")

    def __init__(self, feature_map: FeatureMap, ridge: float = 1.0) -> None:
        self.feature_map, self.ridge = feature_map, ridge

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        self.count, self.dtype = 0, x.dtype
        self.gram: Tensor | float = 0.0
        self.cross: Tensor | float = 0.0

    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        return self.feature_map.value_and_diagonal(x, self.weights)

    def value_and_divergence(self, x: FlatPoints) -> tuple[FlatPoints, PerPoint]:
        return self.feature_map.value_and_divergence(x, self.weights)

    @torch.no_grad()
    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        features, jacobian = self.feature_map.sum_jacobian(x)
        self.gram = self.gram + (features.T @ features).double()
        self.cross = self.cross + torch.addmm(jacobian, score.T, features).double()
        self.count += len(x)

    def refit(self) -> None:
        for _ in self._solve(0.5, (self.ridge,)):
            pass

    def path(self, l2: float) -> Iterator[None]:
        return self._solve(l2, RIDGES)

    def _solve(self, l2: float, ridges: tuple[float, ...]) -> Iterator[None]:
        gram, cross = torch.as_tensor(self.gram) / self.count, torch.as_tensor(self.cross) / self.count
        for weights in ridge_solutions(gram, cross, l2, ridges):
            self.weights = weights.to(self.dtype)
            yield


class ModelFeatureLearner(FeatureLearner):
    """The critic on the model's own features, for models with `features(x)`."""

    name = "model"

    @classmethod
    def for_test(cls, context: Context) -> Learner:
        dtype, _ = placement(context.model, context.dtype, torch.device("cpu"))
        return cls(InCoordinates(as_feature_map(context.model.features, "model"), context.metric, dtype))
