"""Energy-based models: a network times a learned Gaussian."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from steinscope.activations import swish_with_derivative
from steinscope.densities import differentiable_score
from steinscope.errors import InputError
from steinscope.features import AnyFeatures, FeatureMap
from steinscope.layers import linear_layers
from steinscope.randomness import Seed, make_generator

__all__ = ["EBM", "HiddenFeatures"]

Points = Float[Tensor, "n *shape"]


class EBM(nn.Module):
    r"""The unnormalised density $\exp(-E(x)) N(x; \mu, \mathrm{diag}(\sigma^2))$ of the paper.

    E is a multilayer perceptron with Swish, or a network of your own. The Gaussian, whose parameters are learned too,
    makes sure that the density can be normalised.

    Arguments:
        shape: The shape of a point: a number of coordinates, or several axes.
        width: Units in each hidden layer.
        depth: Number of hidden layers.
        net: A network of your own, from points (n, ...) to n energies; then width, depth and seed are not used.
        mean: Where the Gaussian starts.
        std: Its first standard deviation.
        seed: The source of the first weights.

    Example:
        >>> model = EBM(2, width=16)
        >>> model.log_prob(torch.zeros(3, 2)).shape, model.score(torch.zeros(3, 2)).shape
        (torch.Size([3]), torch.Size([3, 2]))
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        width: int = 300,
        depth: int = 2,
        *,
        net: nn.Module | None = None,
        mean: Any = 0.0,
        std: Any = 1.0,
        seed: Seed = 0,
    ) -> None:
        super().__init__()
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dim = math.prod(self.shape)
        if min(self.dim, width, depth) < 1:
            raise InputError(f"EBM: expected shape, width and depth of at least 1, got {shape}, {width} and {depth}")
        self.net = net
        self.layers = linear_layers([self.dim, *[width] * depth, 1], make_generator(seed)) if net is None else None
        mean, std = (torch.as_tensor(part, dtype=torch.get_default_dtype()).detach() for part in (mean, std))
        if not bool((std > 0).all()):
            raise InputError("std: expected positive numbers")
        self.mean = nn.Parameter(mean.expand(self.shape).flatten().clone())
        self.log_std = nn.Parameter(std.log().expand(self.shape).flatten().clone())

    def energy(self, x: Points) -> Float[Tensor, " n"]:
        """E(x) at each point, without the Gaussian."""
        if self.layers is None:
            assert self.net is not None
            return self.net(x).reshape(len(x))
        return self.layers[-1](self.hidden(x))[:, 0]

    def hidden(self, x: Points) -> Float[Tensor, "n k"]:
        """The last hidden layer at each point."""
        if self.layers is None:
            raise InputError("EBM: a network of your own has no hidden layer that is known here")
        h = x.reshape(len(x), -1)
        for layer in self.layers[:-1]:
            h = functional.silu(layer(h))
        return h

    def log_prob(self, x: Points) -> Float[Tensor, " n"]:
        """The log-density at each point, without the normalising constant."""
        u = (x.reshape(len(x), -1) - self.mean) * (-self.log_std).exp()
        gaussian = -0.5 * u.square().sum(1) - self.log_std.sum() - 0.5 * self.dim * math.log(2 * math.pi)
        return gaussian - self.energy(x)

    def score(self, x: Points) -> Points:
        """The gradient of the log-density at each point, in closed form for the perceptron.

        Gradients reach the parameters and x through it once; for higher derivatives differentiate `log_prob`.
        """
        if self.layers is None:
            score = differentiable_score(self, x)
            return score if torch.is_grad_enabled() else score.detach()
        flat = h = x.reshape(len(x), -1)
        derivatives = []
        for layer in self.layers[:-1]:
            h, derivative = swish_with_derivative(layer(h))
            derivatives.append(derivative)
        weights = [cast(Tensor, layer.weight) for layer in self.layers]
        gradient = weights[-1] * derivatives[-1]
        for weight, derivative in zip(weights[-2:0:-1], derivatives[-2::-1], strict=True):
            gradient = (gradient @ weight) * derivative
        return -torch.addmm((flat - self.mean) * (-2 * self.log_std).exp(), gradient, weights[0]).view(x.shape)

    @property
    def features(self) -> FeatureMap:
        """The last hidden layer as a feature map; a model with a network of your own has none."""
        if self.layers is None:
            raise AttributeError("features")
        if len(self.layers) == 3:
            first, second, _ = self.layers
            parts = (first.weight, first.bias, second.weight, second.bias)
            return HiddenFeatures(*(cast(Tensor, part).detach() for part in parts))
        return AnyFeatures(self.hidden)


class HiddenFeatures(FeatureMap):
    r"""The second hidden layer of a perceptron with Swish.

    Its Jacobian is $D_2 W_2 D_1 W_1$, where D are the derivatives of the activations. So the sum of the Jacobians of
    many points is $(W_2 \circ \sum d_2 d_1^\top) W_1$, and the divergence of $W \varphi$ is
    $d_2^\top [W_2 \circ (W_1 W)^\top] d_1$.

    Arguments:
        first_weight: $W_1$.
        first_bias: Its bias.
        second_weight: $W_2$.
        second_bias: Its bias.
    """

    def __init__(
        self,
        first_weight: Float[Tensor, "h d"],
        first_bias: Float[Tensor, " h"],
        second_weight: Float[Tensor, "k h"],
        second_bias: Float[Tensor, " k"],
    ) -> None:
        super().__init__()
        self.first_weight: Tensor
        self.first_bias: Tensor
        self.second_weight: Tensor
        self.second_bias: Tensor
        self.register_buffer("first_weight", first_weight)
        self.register_buffer("first_bias", first_bias)
        self.register_buffer("second_weight", second_weight)
        self.register_buffer("second_bias", second_bias)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """The features of each point."""
        h = functional.silu(torch.addmm(self.first_bias, x, self.first_weight.T))
        return functional.silu(torch.addmm(self.second_bias, h, self.second_weight.T))

    def _with_derivatives(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, first = swish_with_derivative(torch.addmm(self.first_bias, x, self.first_weight.T))
        features, second = swish_with_derivative(torch.addmm(self.second_bias, h, self.second_weight.T))
        return features, first, second

    def value_and_divergence(
        self, x: Float[Tensor, "n d"], weights: Float[Tensor, "d k"]
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Value and divergence of x ↦ W φ(x)."""
        features, first, second = self._with_derivatives(x)
        bracket = self.second_weight * (self.first_weight @ weights).T
        return features @ weights.T, torch.linalg.vecdot(second @ bracket, first)

    def sum_jacobian(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n k"], Float[Tensor, "d k"]]:
        """The features, and the sum of their derivatives."""
        features, first, second = self._with_derivatives(x)
        return features, ((self.second_weight * (second.T @ first)) @ self.first_weight).T
