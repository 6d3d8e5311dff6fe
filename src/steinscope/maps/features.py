"""Feature maps for critics that are linear in their parameters.

A feature map takes points (n, d) to features (n, K). For a critic f(x) = W φ(x) two things are needed beside the
features: the divergence of f at each point, and the mean Jacobian of φ, which is all that the closed-form fit needs.
Both come from autograd for any map; maps with structure have them as matrix products.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steinscope.densities import call_model
from steinscope.errors import InputError
from steinscope.maps.divergence import value_and_diagonal, value_and_exact
from steinscope.metric import Metric
from steinscope.shapes import FlatPoints
from steinscope.support.checks import check_count, check_number
from steinscope.support.randomness import Seed, make_generator
from steinscope.support.tensors import check_coordinates

__all__ = ["Affine", "AnyFeatures", "FeatureMap", "InCoordinates", "RandomCosines", "as_feature_map"]

# A closed form solves for a matrix of this size.
_MOST_FEATURES = 2**16

FeatureRows = Float[Tensor, "n k"]
Weights = Float[Tensor, "d k"]


class FeatureMap(nn.Module, ABC):
    """A map from points to features, with what a critic built on it needs."""

    @abstractmethod
    def forward(self, x: FlatPoints) -> FeatureRows:
        """The features of each point."""

    def value_and_divergence(self, x: FlatPoints, weights: Weights) -> tuple[FlatPoints, Float[Tensor, " n"]]:
        """Value and divergence of the map x ↦ W φ(x) at each point."""
        return value_and_exact(lambda points: self(points) @ weights.T, x)

    def value_and_diagonal(self, x: FlatPoints, weights: Weights) -> tuple[FlatPoints, FlatPoints]:
        """Value of the map x ↦ W φ(x) and the diagonal of its Jacobian at each point."""
        return value_and_diagonal(lambda points: self(points) @ weights.T, x)

    def sum_jacobian(self, x: FlatPoints) -> tuple[FeatureRows, Weights]:
        """The features, and the sum over the points of ∂φ_k / ∂x_i, as a (d, K) matrix."""
        rows = []
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            features = self(x)
            for total in features.sum(0):
                gradient = None
                if features.requires_grad:
                    (gradient,) = torch.autograd.grad(total, x, retain_graph=True, allow_unused=True)
                rows.append(x.new_zeros(x.shape[1]) if gradient is None else gradient.sum(0))
        return features.detach(), torch.stack(rows, 1)


class AnyFeatures(FeatureMap):
    """Any differentiable function as a feature map, by autograd.

    Arguments:
        fn: A function or module that takes points (n, d) to features (n, K).
        name: What the user calls it.
    """

    def __init__(self, fn: Callable[[Tensor], Tensor], name: str = "feature_map") -> None:
        super().__init__()
        self.fn, self.name = fn, name

    def forward(self, x: FlatPoints) -> FeatureRows:
        """The features of each point, or an `InputError` that says what came instead."""
        try:
            features = call_model(self.fn, x, "features")
        except InputError as error:
            raise error.renamed(self.name) from error.__cause__
        if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != len(x) or not features.numel():
            came = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
            raise InputError(self.name, f"expected features of shape ({len(x)}, K), got {came}")
        if not features.is_floating_point():
            raise InputError(self.name, f"expected features of a floating type, got {features.dtype}")
        if not bool(features.isfinite().all()):
            row = int((~features.isfinite()).any(1).nonzero()[0, 0])
            raise InputError(self.name, f"the features of point {row} are not all finite")
        is_cut = x.requires_grad and torch.is_grad_enabled() and not features.requires_grad
        if is_cut and bool((features != features[0]).any()):
            raise InputError(self.name, "the features do not depend on x through torch operations")
        return features


def as_feature_map(features: FeatureMap | Callable[[Tensor], Tensor], name: str = "feature_map") -> FeatureMap:
    """A feature map as it is, or any differentiable function as one.

    Arguments:
        features: The feature map or function.
        name: What the user calls it.
    """
    if isinstance(features, FeatureMap):
        return features
    if not callable(features):
        raise InputError(name, f"expected a function of points, got {type(features).__name__}")
    return AnyFeatures(features, name)


class InCoordinates(FeatureMap):
    """Features of x as features of the coordinates z of a metric.

    Arguments:
        inner: The features of x.
        metric: The coordinates.
        dtype: The floating type that the features of x are computed in; by default that of z.
    """

    def __init__(self, inner: FeatureMap, metric: Metric, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.inner, self.metric, self.dtype = inner, metric, dtype

    def forward(self, x: FlatPoints) -> FeatureRows:
        """The features of each point."""
        return self.inner(self._original(x)).to(x.dtype)

    def _original(self, x: FlatPoints) -> FlatPoints:
        return self.metric.original(x).to(self.dtype or x.dtype)

    def _stretched(self, weights: Weights) -> Weights:
        return self.metric.field_in_x(weights.T).T.to(self.dtype or weights.dtype)

    def value_and_divergence(self, x: FlatPoints, weights: Weights) -> tuple[FlatPoints, Float[Tensor, " n"]]:
        """Value and divergence of z ↦ W φ(x): with x = R z + m the divergence is that of R W φ in x."""
        f, divergence = self.inner.value_and_divergence(self._original(x), self._stretched(weights))
        return self.metric.field_in_z(f).to(x.dtype), divergence.to(x.dtype)

    def value_and_diagonal(self, x: FlatPoints, weights: Weights) -> tuple[FlatPoints, FlatPoints]:
        """Value of z ↦ W φ(x) and the diagonal of its Jacobian."""
        if self.metric.root is not None:
            return super().value_and_diagonal(x, weights)
        f, diagonal = self.inner.value_and_diagonal(self._original(x), self._stretched(weights))
        return self.metric.field_in_z(f).to(x.dtype), diagonal.to(x.dtype)

    def sum_jacobian(self, x: FlatPoints) -> tuple[FeatureRows, Weights]:
        """The features, and the sum of their derivatives in z."""
        features, jacobian = self.inner.sum_jacobian(self._original(x))
        return features.to(x.dtype), self._stretched(jacobian).to(x.dtype)


class Affine(FeatureMap):
    """The coordinates themselves and a constant: φ(x) = (x, 1).

    Arguments:
        dim: The dimension of x.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = check_count("dim", dim)

    def forward(self, x: FlatPoints) -> FeatureRows:
        """The features of each point."""
        x = check_coordinates(x, self.dim)
        return torch.cat([x, x.new_ones(len(x), 1)], 1)

    def value_and_divergence(self, x: FlatPoints, weights: Weights) -> tuple[FlatPoints, Float[Tensor, " n"]]:
        """Value and divergence of x ↦ A x + b; the divergence is tr A."""
        x = check_coordinates(x, self.dim)
        return torch.addmm(weights[:, -1], x, weights[:, :-1].T), weights[:, :-1].trace().expand(len(x))

    def sum_jacobian(self, x: FlatPoints) -> tuple[FeatureRows, Weights]:
        """The features, and the sum of their derivatives."""
        return self(x), len(x) * torch.eye(self.dim, self.dim + 1, dtype=x.dtype, device=x.device)


class RandomCosines(FeatureMap):
    r"""Random cosine features, $\varphi_k(x) = \sqrt{2/K} \cos(\omega_k \cdot x + b_k)$, of a Gaussian kernel.

    Arguments:
        dim: The dimension of x.
        count: The number K of features.
        bandwidth: The width of the kernel: $\omega \sim N(0, \text{bandwidth}^{-2} I)$.
        seed: The source of the frequencies.
    """

    def __init__(self, dim: int, count: int = 200, bandwidth: float = 1.0, *, seed: Seed = 0) -> None:
        super().__init__()
        self.frequencies: Tensor
        self.phases: Tensor
        dim, count = check_count("dim", dim), check_count("count", count, most=_MOST_FEATURES)
        bandwidth = check_number("bandwidth", bandwidth, over=0)
        generator = make_generator(seed)
        self.register_buffer(
            "frequencies", torch.randn(count, dim, generator=generator, dtype=torch.float32) / bandwidth
        )
        self.register_buffer("phases", 2 * math.pi * torch.rand(count, generator=generator, dtype=torch.float32))
        self.scale = math.sqrt(2 / count)

    def forward(self, x: FlatPoints) -> FeatureRows:
        """The features of each point."""
        return self._angles(x).cos().mul(self.scale)

    def _angles(self, x: FlatPoints) -> FeatureRows:
        return torch.addmm(self.phases, check_coordinates(x, self.frequencies.shape[1]), self.frequencies.T)

    def _features_and_derivatives(self, x: FlatPoints) -> tuple[FeatureRows, FeatureRows]:
        angles = self._angles(x)
        return angles.cos().mul_(self.scale), angles.sin_().mul_(-self.scale)

    def value_and_divergence(self, x: FlatPoints, weights: Weights) -> tuple[FlatPoints, Float[Tensor, " n"]]:
        """Value and divergence of x ↦ W φ(x); the divergence is φ′(x) · diag(Ω W)."""
        features, derivatives = self._features_and_derivatives(x)
        return features @ weights.T, derivatives @ (self.frequencies * weights.T).sum(1)

    def value_and_diagonal(self, x: FlatPoints, weights: Weights) -> tuple[FlatPoints, FlatPoints]:
        """Value of x ↦ W φ(x) and the diagonal of its Jacobian, φ′(x) (Ω ∘ Wᵀ)."""
        features, derivatives = self._features_and_derivatives(x)
        return features @ weights.T, derivatives @ (self.frequencies * weights.T)

    def sum_jacobian(self, x: FlatPoints) -> tuple[FeatureRows, Weights]:
        """The features, and the sum of their derivatives."""
        features, derivatives = self._features_and_derivatives(x)
        return features, derivatives.sum(0) * self.frequencies.T
