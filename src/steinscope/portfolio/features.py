"""Critics on given features, in closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steinscope.maps.features import FeatureMap, RandomCosines, as_feature_map
from steinscope.portfolio.learner import Learner
from steinscope.shapes import FlatPoints, PerPoint

__all__ = ["CosineLearner", "FeatureLearner", "ModelFeatureLearner"]

_WIDTH_ROWS = 200


class FeatureLearner(Learner):
    r"""The critic $f = W \varphi(x)$ on given features, with $W = C (G + rI)^{-1}$ from the averages over the past.

    Arguments:
        feature_map: The features.
        ridge: r, as a share of the mean diagonal entry of G.
    """

    def __init__(self, feature_map: FeatureMap, ridge: float = 1.0) -> None:
        self.feature_map, self.ridge = feature_map, ridge

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        self.seen = 0
        self.gram: Tensor | float = 0.0
        self.cross: Tensor | float = 0.0

    @torch.no_grad()
    def values(self, x: FlatPoints, score: FlatPoints) -> PerPoint:
        f, divergence = self.feature_map.value_and_divergence(x, self.weights)
        return torch.linalg.vecdot(score, f) + divergence

    @torch.no_grad()
    def field(self, x: FlatPoints) -> tuple[FlatPoints, FlatPoints]:
        return self.feature_map.value_and_diagonal(x, self.weights)

    @torch.no_grad()
    def observe(self, x: FlatPoints, score: FlatPoints) -> None:
        features, jacobian = self.feature_map.sum_jacobian(x)
        self.gram = self.gram + features.T @ features
        self.cross = self.cross + torch.addmm(jacobian, score.T, features)
        self.seen += len(x)

    def refit(self) -> None:
        gram, cross = torch.as_tensor(self.gram) / self.seen, torch.as_tensor(self.cross) / self.seen
        regular = gram.clone()
        regular.diagonal().add_(self.ridge * float(gram.diagonal().mean()))
        self.weights = torch.cholesky_solve(cross.T, torch.linalg.cholesky(regular)).T


class CosineLearner(FeatureLearner):
    """The critic on random cosines whose width is the median distance in the first batch.

    Arguments:
        count: How many random cosines.
        ridge: As in `FeatureLearner`.
        seed: The source of the frequencies.
    """

    name = "features"

    def __init__(self, count: int = 100, ridge: float = 1.0, seed: int = 0) -> None:
        self.count, self.ridge, self.seed = count, ridge, seed

    @classmethod
    def for_model(cls, model: Any, seed: int) -> Learner:
        return cls(seed=seed)

    def begin(self, x: FlatPoints, score: FlatPoints) -> None:
        width = float(torch.pdist(x[:_WIDTH_ROWS]).median().clamp_min(1e-30))
        self.feature_map = RandomCosines(x.shape[1], self.count, width, seed=self.seed).to(x)
        super().begin(x, score)


class ModelFeatureLearner(FeatureLearner):
    """The critic on the model's own features, for models with `features(x)`."""

    name = "model"

    @classmethod
    def for_model(cls, model: Any, seed: int) -> Learner:
        return cls(as_feature_map(model.features))
