"""Energy-based models: a network times a learned Gaussian."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from steinscope.densities import differentiable_score, placement
from steinscope.errors import InputError
from steinscope.maps.activations import swish_with_derivative, swish_with_tangent
from steinscope.maps.features import AnyFeatures, FeatureMap
from steinscope.maps.layers import linear_layers
from steinscope.shapes import Points, flattened
from steinscope.support.checks import check_count, check_depth, check_width
from steinscope.support.randomness import Seed, make_generator
from steinscope.support.tensors import check_coordinates, check_numbers

__all__ = ["EBM", "HiddenFeatures", "Perceptron"]


class Perceptron(nn.Module):
    """A multilayer perceptron with Swish from points to energies, the network of the paper.

    Arguments:
        dim: The number of coordinates of a point.
        width: Units in each hidden layer.
        depth: Number of hidden layers.
        seed: The source of the first weights.
    """

    def __init__(self, dim: int, width: int = 300, depth: int = 2, *, seed: Seed = 0) -> None:
        super().__init__()
        dim, width, depth = check_count("dim", dim), check_width("width", width), check_depth("depth", depth)
        self.layers = linear_layers([dim, *[width] * depth, 1], make_generator(seed))

    def hidden(self, x: Points) -> Float[Tensor, "n k"]:
        """The last hidden layer at each point."""
        h = x.reshape(len(x), -1)
        for layer in self.layers[:-1]:
            h = functional.silu(layer(h))
        return h

    def forward(self, x: Points) -> Float[Tensor, " n"]:
        """The energy at each point."""
        return self.layers[-1](self.hidden(x))[:, 0]

    def gradient(self, x: Points) -> Float[Tensor, "n d"]:
        """The gradient of the energy in x, in closed form, with each point as one row."""
        h = x.reshape(len(x), -1)
        derivatives = []
        for layer in self.layers[:-1]:
            h, derivative = swish_with_derivative(layer(h))
            derivatives.append(derivative)
        weights = [cast(Tensor, layer.weight) for layer in self.layers]
        gradient = weights[-1] * derivatives[-1]
        for weight, derivative in zip(weights[-2:0:-1], derivatives[-2::-1], strict=True):
            gradient = (gradient @ weight) * derivative
        return gradient @ weights[0]

    def gradient_along(self, x: Points, v: Points) -> Float[Tensor, " n"]:
        """The product of the gradient with v at each point, for less than the gradient costs in training."""
        both = torch.cat([x.reshape(len(x), -1), v.reshape(len(x), -1)])
        for layer in self.layers[:-1]:
            both = swish_with_tangent(both @ cast(Tensor, layer.weight).T, cast(Tensor, layer.bias))
        return both.chunk(2)[1] @ cast(Tensor, self.layers[-1].weight)[0]

    @property
    def features(self) -> FeatureMap:
        """The last hidden layer as a feature map."""
        if len(self.layers) == 3:
            first, second, _ = self.layers
            parts = (first.weight, first.bias, second.weight, second.bias)
            return HiddenFeatures(*(cast(Tensor, part).detach() for part in parts))
        return AnyFeatures(self.hidden)


class EBM(nn.Module):
    r"""The unnormalised density $\exp(-E(x)) N(x; \mu, \mathrm{diag}(\sigma^2))$ of the paper.

    E is a network. The Gaussian, whose parameters are learned too, makes sure that the density can be normalised.

    Arguments:
        net: A network from points (n, ...) to n energies, of shape (n,) or (n, 1).
        dim: The number of coordinates of a point, or the shape of one, such as (28, 28).
        mean: Where the Gaussian starts.
        std: Its first standard deviation.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 1))
        >>> model = EBM(net, 2)
        >>> model.log_prob(torch.zeros(3, 2)).shape, model.score(torch.zeros(3, 2)).shape
        (torch.Size([3]), torch.Size([3, 2]))
    """

    def __init__(self, net: nn.Module, dim: int | Sequence[int], *, mean: Any = 0.0, std: Any = 1.0) -> None:
        super().__init__()
        if not isinstance(net, nn.Module):
            raise InputError("net", f"expected a torch.nn.Module from points to energies, got {type(net).__name__}")
        self.shape = tuple(check_count("dim", size) for size in (dim if isinstance(dim, Sequence) else (dim,)))
        self.dim = math.prod(self.shape)
        self.net = net
        dtype, _ = placement(net, torch.float32, torch.device("cpu"))
        mean, std = (self._of_each_coordinate(name, part).to(dtype) for name, part in (("mean", mean), ("std", std)))
        if not bool((std > 0).all()):
            raise InputError("std", "expected positive numbers")
        self.mean, self.log_std = nn.Parameter(mean.clone()), nn.Parameter(std.log())

    @classmethod
    def perceptron(
        cls,
        dim: int | Sequence[int],
        width: int = 300,
        depth: int = 2,
        *,
        mean: Any = 0.0,
        std: Any = 1.0,
        seed: Seed = 0,
    ) -> EBM:
        """The paper's: with a `Perceptron`, whose score is in closed form and whose last layer gives `features`."""
        coordinates = math.prod(dim) if isinstance(dim, Sequence) else dim
        return cls(Perceptron(coordinates, width, depth, seed=seed), dim, mean=mean, std=std)

    def _of_each_coordinate(self, name: str, value: Any) -> Float[Tensor, " d"]:
        numbers = check_numbers(name, value)
        try:
            return numbers.expand(self.shape).flatten()
        except RuntimeError:
            came = tuple(numbers.shape)
            raise InputError(
                name, f"expected one number or those of a point of shape {self.shape}, got {came}"
            ) from None

    def energy(self, x: Points) -> Float[Tensor, " n"]:
        """E(x) at each point, without the Gaussian."""
        energy = self.net(x)
        if energy.numel() != len(x):
            raise InputError("net", f"expected {len(x)} energies, shape (n,) or (n, 1), got {tuple(energy.shape)}")
        return energy.reshape(len(x))

    def _centred(self, x: Points) -> Float[Tensor, "n d"]:
        return check_coordinates(x, self.dim, "this model") - self.mean

    def log_prob(self, x: Points) -> Float[Tensor, " n"]:
        """The log-density at each point, without the normalising constant."""
        u = self._centred(x) * (-self.log_std).exp()
        gaussian = -0.5 * u.square().sum(1) - self.log_std.sum() - 0.5 * self.dim * math.log(2 * math.pi)
        return gaussian - self.energy(x)

    def score(self, x: Points) -> Points:
        """The gradient of the log-density at each point, in closed form for a `Perceptron`.

        Gradients reach the parameters and x through it once; for higher derivatives differentiate `log_prob`.
        """
        if not isinstance(self.net, Perceptron):
            score = differentiable_score(self, x)
            return score if torch.is_grad_enabled() else score.detach()
        gaussian = self._centred(x) * (-2 * self.log_std).exp()
        return -(gaussian + self.net.gradient(x)).view(x.shape)

    def score_along(self, x: Points, v: Points) -> Float[Tensor, " n"]:
        """The product of the score with v at each point: all of the score that training by LSD needs."""
        if not isinstance(self.net, Perceptron):
            return torch.linalg.vecdot(flattened(self.score(x)), flattened(v))
        gaussian = self._centred(x) * (-2 * self.log_std).exp()
        return -torch.linalg.vecdot(gaussian, v.reshape(len(x), -1)) - self.net.gradient_along(x, v)

    @property
    def features(self) -> FeatureMap:
        """The last hidden layer as a feature map; a model with another network has none."""
        if not isinstance(self.net, Perceptron):
            raise AttributeError("features")
        return self.net.features


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
