"""Critics that are linear in their parameters: solved, not trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steinscope.critics.base import Batches, Critic
from steinscope.errors import InputError
from steinscope.maps.features import Affine, FeatureMap, as_feature_map
from steinscope.shapes import PerPoint, Points, flattened
from steinscope.support.tensors import check_tensor

__all__ = ["Features", "Linear", "Moments", "ridge_solutions"]


class Moments(NamedTuple):
    """The mean of φφᵀ and the mean of s φᵀ + (∂φ/∂x)ᵀ, in float64, and the type of the points they came from."""

    gram: Float[Tensor, "k k"]
    cross: Float[Tensor, "d k"]
    dtype: torch.dtype


def ridge_solutions(
    gram: Float[Tensor, "k k"], cross: Float[Tensor, "d k"], l2: float, ridges: Sequence[float]
) -> Iterator[Float[Tensor, "d k"]]:
    r"""The weights $W = \frac{1}{2\lambda} C (G + rI)^{-1}$ for several ridges r, from one eigendecomposition.

    Arguments:
        gram: The mean G of φφᵀ.
        cross: The mean C of s φᵀ + (∂φ/∂x)ᵀ.
        l2: The penalty λ.
        ridges: Each r, as a share of the mean diagonal entry of G.
    """
    eigenvalues, vectors = torch.linalg.eigh(gram)
    level = float(gram.diagonal().mean()) or 1.0
    rotated, spectrum = cross @ vectors / (2 * l2), eigenvalues.clamp_min(0.0)
    for ridge in ridges:
        yield (rotated / (spectrum + ridge * level)) @ vectors.T


class Features(Critic):
    r"""A critic that is linear in its parameters, $f(x) = W \varphi(x)$. It is solved, not trained.

    Arguments:
        feature_map: A `FeatureMap`, or any differentiable function or module that takes points (n, d) to
            features (n, K).

    Example:
        >>> from steinscope.maps import RandomCosines
        >>> critic = Features(RandomCosines(2, count=50))
        >>> x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
        >>> critic.solve([(x, 0.3 - x)], l2=0.5)
        >>> error = critic(x).mean(0) - 0.3  # the best critic is 0.3 everywhere
        >>> bool(error.abs().max() < 0.05)
        True
    """

    def __init__(self, feature_map: FeatureMap | Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.feature_map = as_feature_map(feature_map)
        self.weights: nn.Parameter | None
        self.register_parameter("weights", None)

    def forward(self, x: Points) -> Points:
        """The value f(x) at each point."""
        return (self.feature_map(flattened(x)) @ self._solved_weights().T).view(x.shape)

    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """f(x) and ∇·f(x) at each point, both exact."""
        f, divergence = self.feature_map.value_and_divergence(flattened(x), self._solved_weights())
        return f.view(x.shape), divergence

    @torch.no_grad()
    def moments(self, batches: Batches) -> Moments:
        """What the solution depends on, from batches of points and scores."""
        count, gram, cross, dtype = 0, None, None, None
        for x, score in map(_check_batch, batches):
            features, jacobian = self.feature_map.sum_jacobian(flattened(x))
            batch_gram = (features.T @ features).double()
            batch_cross = (flattened(score).T @ features + jacobian).double()
            gram = batch_gram if gram is None else gram + batch_gram
            cross = batch_cross if cross is None else cross + batch_cross
            count, dtype = count + len(x), x.dtype
        if gram is None or cross is None or dtype is None:
            raise InputError("batches", "expected at least one batch of points and scores, got none")
        return Moments(gram / count, cross / count, dtype)

    @property
    def is_solvable(self) -> bool:
        """It is solved in closed form."""
        return True

    def solve_path(self, batches: Batches, l2: float, ridges: Sequence[float]) -> Iterator[float]:
        """Set W for one ridge after the other."""
        gram, cross, dtype = self.moments(batches)
        for ridge, weights in zip(ridges, ridge_solutions(gram, cross, l2, ridges), strict=True):
            self.set_weights(weights.to(dtype))
            yield ridge

    def set_weights(self, weights: Tensor) -> None:
        """Set W."""
        self.weights = nn.Parameter(weights.detach().clone())

    def _solved_weights(self) -> Tensor:
        if self.weights is None:
            raise InputError("critic", "a Features critic has no weights before it is solved; call solve or fit_critic")
        return self.weights


def _check_batch(batch: Any) -> tuple[Tensor, Tensor]:
    """A pair of points and scores of one shape."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise InputError(
            "batches", f"expected pairs of points and scores, got an object of type {type(batch).__name__}"
        )
    x, score = (check_tensor("batches", part) for part in batch)
    if x.ndim == 0 or x.shape != score.shape:
        raise InputError("batches", f"expected scores of the shape of x, {tuple(x.shape)}, got {tuple(score.shape)}")
    return x, score


class Linear(Features):
    """The affine critic f(x) = A x + b. It sees a wrong mean and wrong covariances.

    Arguments:
        dim: The number of coordinates of x.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(Affine(dim))
        self.set_weights(torch.zeros(dim, dim + 1, dtype=torch.float32))
