"""The multilayer perceptron with a closed-form divergence, the critic of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from steinscope.critics.base import Critic, Trace, check_trace
from steinscope.maps.activations import dropout_mask, linear_with_trace, swish_with_derivative, swish_with_tangent
from steinscope.maps.divergence import draw_probe
from steinscope.maps.layers import linear_layers
from steinscope.shapes import PerPoint, Points
from steinscope.support.checks import check_count, check_depth, check_number, check_width
from steinscope.support.randomness import Seed, default_generator, make_generator
from steinscope.support.tensors import check_coordinates

__all__ = ["MLP"]


class MLP(Critic):
    r"""A multilayer perceptron with Swish, the critic of the paper.

    With two hidden layers its Jacobian is $W_3 D_2 W_2 D_1 W_1$, so that the divergence is
    $d_2^\top [W_2 \circ (W_1 W_3)^\top] d_1$, where d are the derivatives of the activations. The bracket is made once,
    and then each point costs one product with it. One hidden layer needs $d_1 \cdot \mathrm{diag}(W_1 W_2)$.

    Arguments:
        dim: The number of coordinates of x.
        width: Units in each hidden layer.
        depth: Number of hidden layers.
        dropout: The share of hidden units that are dropped in training, after each hidden layer.
        skip: Whether to add a linear map A x, which starts at zero.
        trace: `"exact"`, `"hutchinson"` (one Gaussian probe), or `"auto"`: in training the one that takes fewer
            multiplications, otherwise exact.
        seed: The source of the first weights.

    Example:
        >>> critic = MLP(5, width=16)
        >>> f, div = critic.value_and_divergence(torch.zeros(3, 5))
        >>> f.shape, div.shape
        (torch.Size([3, 5]), torch.Size([3]))
    """

    def __init__(
        self,
        dim: int,
        width: int = 300,
        depth: int = 2,
        dropout: float = 0.0,
        *,
        skip: bool = False,
        trace: Trace = "auto",
        seed: Seed = 0,
    ) -> None:
        super().__init__()
        dim, width, depth = check_count("dim", dim), check_width("width", width), check_depth("depth", depth)
        dropout = check_number("dropout", dropout, least=0, under=1)
        self.dim, self.dropout, self.trace = dim, dropout, check_trace(trace)
        generator = make_generator(seed)
        self.layers = linear_layers([dim, *[width] * depth, dim], generator)
        self.skip = nn.Parameter(torch.zeros(dim, dim, dtype=torch.float32)) if skip else None

    def forward(self, x: Points) -> Points:
        """The value f(x) at each point, without dropout."""
        flat = hidden = check_coordinates(x, self.dim)
        for layer in self.layers[:-1]:
            hidden = functional.silu(layer(hidden))
        return self._output(hidden, flat).view(x.shape)

    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """f(x) and ∇·f(x) at each point, with dropout in training mode."""
        flat = hidden = check_coordinates(x, self.dim)
        generator = generator or default_generator(x.device)
        masks = [self._mask(layer, flat, generator) for layer in self.layers[:-1]]
        if self._is_exact(len(x)):
            derivatives = []
            for layer, mask in zip(self.layers[:-1], masks, strict=True):
                hidden, derivative = swish_with_derivative(layer(hidden), mask)
                derivatives.append(derivative)
            f, divergence = self.layers[-1](hidden), self._exact_divergence(derivatives)
        else:
            f, divergence = self._value_and_estimate(flat, draw_probe(flat, "gaussian", generator), masks)
        if self.skip is not None:
            divergence = divergence + self.skip.trace()
        return self._add_skip(f, flat).view(x.shape), divergence

    def _mask(self, layer: Any, x: Tensor, generator: torch.Generator) -> Tensor | None:
        if not (self.training and self.dropout):
            return None
        return dropout_mask(x.new_empty(len(x), layer.out_features), self.dropout, generator)

    def value_and_diagonal(self, x: Points) -> tuple[Points, Points]:
        """f(x) and ∂f_i/∂x_i for each coordinate, in a third of the time of backward passes."""
        flat = hidden = check_coordinates(x, self.dim)
        derivatives = []
        for layer in self.layers[:-1]:
            hidden, derivative = swish_with_derivative(layer(hidden))
            derivatives.append(derivative)
        diagonal = self._diagonal(derivatives)
        if self.skip is not None:
            diagonal = diagonal + self.skip.diagonal()
        return self._output(hidden, flat).view(x.shape), diagonal.view(x.shape)

    def _output(self, hidden: Tensor, x: Tensor) -> Tensor:
        return self._add_skip(self.layers[-1](hidden), x)

    def _add_skip(self, f: Tensor, x: Tensor) -> Tensor:
        return f if self.skip is None else torch.addmm(f, x, self.skip.T)

    def _is_exact(self, n: int) -> bool:
        """Whether the divergence of n points is computed exactly; docs/how-it-works.md counts the cost."""
        if self.trace != "auto":
            return self.trace == "exact"
        if not self.training or len(self.layers) == 2:
            return True
        sizes = [self.dim, *(layer.out_features for layer in self.layers)]
        estimate = n * sum(inputs * outputs for inputs, outputs in zip(sizes, sizes[1:], strict=False))
        hidden = [inputs * outputs for inputs, outputs in zip(sizes[1:-1], sizes[2:-1], strict=False)]
        if len(hidden) == 1:
            return (self.dim + n) * hidden[0] < estimate
        return n * self.dim * sum(hidden) < estimate

    def _exact_divergence(self, derivatives: list[Tensor]) -> Tensor:
        weights = self._weights()
        if len(derivatives) == 1:
            return derivatives[0] @ (weights[0] * weights[1].T).sum(1)
        if len(derivatives) == 2:
            bracket = weights[1] * (weights[2].T @ weights[0].T)
            return torch.linalg.vecdot(derivatives[1] @ bracket, derivatives[0])
        return self._diagonal(derivatives).sum(1)

    def _diagonal(self, derivatives: list[Tensor]) -> Tensor:
        """The diagonal of the Jacobian without the skip, one coordinate after the other."""
        weights, columns = self._weights(), []
        for i in range(self.dim):
            tangent = derivatives[0] * weights[0][:, i]
            for weight, derivative in zip(weights[1:-1], derivatives[1:], strict=True):
                tangent = (tangent @ weight.T) * derivative
            columns.append(tangent @ weights[-1][i])
        return torch.stack(columns, 1)

    def _value_and_estimate(self, x: Tensor, probe: Tensor, masks: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
        """f without the skip, and vᵀJv from the tangent of v that goes through the layers with the points."""
        both = torch.cat([x, probe])
        *weights, last = self._weights()
        *biases, last_bias = (cast(Tensor, layer.bias) for layer in self.layers)
        for weight, bias, mask in zip(weights, biases, masks, strict=True):
            both = swish_with_tangent(both @ weight.T, bias, mask)
        return linear_with_trace(both, last, last_bias, probe)

    def _weights(self) -> list[Tensor]:
        return [cast(Tensor, layer.weight) for layer in self.layers]
