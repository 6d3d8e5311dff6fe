"""Critics: vector fields f with their divergence.

A critic takes points (n, ...) to values of the same shape, and knows the divergence of what it does. In training mode
the divergence may be Hutchinson's estimate where that is cheaper; in evaluation mode it is exact, unless the critic was
told otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from steinscope.activations import dropout_mask, linear_with_trace, swish_with_derivative, swish_with_tangent
from steinscope.divergence import draw_probe, value_and_diagonal, value_and_exact, value_and_hutchinson
from steinscope.errors import InputError
from steinscope.features import Affine, AnyFeatures, FeatureMap
from steinscope.layers import linear_layers
from steinscope.randomness import Seed, default_generator, make_generator
from steinscope.stein import stein_values

__all__ = ["MLP", "Critic", "Features", "Linear", "Mean", "Module", "Preconditioned", "as_critic"]

Points = Float[Tensor, "n *shape"]
PerPoint = Float[Tensor, " n"]
Trace = Literal["auto", "exact", "hutchinson"]
Batches = Iterable[tuple[Tensor, Tensor]]


class Critic(nn.Module, ABC):
    """A vector field with its divergence."""

    @abstractmethod
    def forward(self, x: Points) -> Points:
        """The value f(x) at each point. Dropout is never applied here."""

    @abstractmethod
    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """f(x) and ∇·f(x) at each point, differentiable in the critic's parameters.

        Arguments:
            x: The points.
            generator: The source of dropout and probes; the library's own generator if none is given.
        """

    def value_and_diagonal(self, x: Points) -> tuple[Points, Points]:
        """f(x) and ∂f_i/∂x_i for each coordinate, exact and without dropout. One backward pass for each coordinate."""
        return value_and_diagonal(self, x)

    def stein(self, x: Points, score: Points, generator: torch.Generator | None = None) -> tuple[PerPoint, PerPoint]:
        """The Stein value and the penalised squared norm at each point: all that an objective looks at."""
        f, div = self.value_and_divergence(x, generator)
        flat = _flat(f)
        return stein_values(score, f, div), torch.linalg.vecdot(flat, flat)


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
        if min(dim, width, depth) < 1:
            raise InputError(f"MLP: dim, width and depth must be at least 1, got {dim}, {width} and {depth}")
        if not 0.0 <= dropout < 1.0:
            raise InputError(f"dropout: expected a number from 0 to below 1, got {dropout}")
        self.dim, self.dropout, self.trace = dim, dropout, _check_trace(trace)
        generator = make_generator(seed)
        self.layers = linear_layers([dim, *[width] * depth, dim], generator)
        self.skip = nn.Parameter(torch.zeros(dim, dim)) if skip else None

    def forward(self, x: Points) -> Points:
        """The value f(x) at each point, without dropout."""
        flat = hidden = _flat(x)
        for layer in self.layers[:-1]:
            hidden = functional.silu(layer(hidden))
        return self._output(hidden, flat).view(x.shape)

    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """f(x) and ∇·f(x) at each point, with dropout in training mode."""
        flat = hidden = _flat(x)
        if flat.shape[1] != self.dim:
            raise InputError(f"x: this critic takes points of {self.dim} coordinates, got {flat.shape[1]}")
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
        flat = hidden = _flat(x)
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


class Moments(NamedTuple):
    """The mean of φφᵀ and the mean of s φᵀ + (∂φ/∂x)ᵀ, in float64, and the type of the points they came from."""

    gram: Float[Tensor, "k k"]
    cross: Float[Tensor, "d k"]
    dtype: torch.dtype

    def solutions(self, l2: float, ridges: Sequence[float]) -> list[Tensor]:
        r"""The weights $W = \frac{1}{2\lambda} C (G + rI)^{-1}$ for several ridges r, from one eigendecomposition."""
        eigenvalues, vectors = torch.linalg.eigh(self.gram)
        level = float(self.gram.diagonal().mean()) or 1.0
        rotated = self.cross @ vectors / (2 * l2)
        spectrum = eigenvalues.clamp_min(0.0)
        return [((rotated / (spectrum + ridge * level)) @ vectors.T).to(self.dtype) for ridge in ridges]


class Features(Critic):
    r"""A critic that is linear in its parameters, $f(x) = W \varphi(x)$. It is solved, not trained.

    Arguments:
        feature_map: A `FeatureMap`, or any differentiable function or module that takes points (n, d) to
            features (n, K).

    Example:
        >>> from steinscope.features import RandomCosines
        >>> critic = Features(RandomCosines(2, count=50))
        >>> x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
        >>> critic.solve([(x, 0.3 - x)], l2=0.5)
        >>> error = critic(x).mean(0) - 0.3  # the best critic is 0.3 everywhere
        >>> bool(error.abs().max() < 0.05)
        True
    """

    def __init__(self, feature_map: FeatureMap | Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.feature_map = feature_map if isinstance(feature_map, FeatureMap) else AnyFeatures(feature_map)
        self.weights: nn.Parameter | None
        self.register_parameter("weights", None)

    def forward(self, x: Points) -> Points:
        """The value f(x) at each point."""
        return (self.feature_map(_flat(x)) @ self._solved_weights().T).view(x.shape)

    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """f(x) and ∇·f(x) at each point, both exact."""
        f, divergence = self.feature_map.value_and_divergence(_flat(x), self._solved_weights())
        return f.view(x.shape), divergence

    @torch.no_grad()
    def moments(self, batches: Batches) -> Moments:
        """What the solution depends on, from batches of points and scores."""
        count, gram, cross, dtype = 0, None, None, None
        for x, score in batches:
            features, jacobian = self.feature_map.sum_jacobian(_flat(x))
            batch_gram = (features.T @ features).double()
            batch_cross = (_flat(score).T @ features + jacobian).double()
            gram = batch_gram if gram is None else gram + batch_gram
            cross = batch_cross if cross is None else cross + batch_cross
            count, dtype = count + len(x), x.dtype
        if gram is None or cross is None or dtype is None:
            raise InputError("batches: expected at least one batch of points and scores, got none")
        return Moments(gram / count, cross / count, dtype)

    def solve(self, batches: Batches, l2: float = 0.5, ridge: float = 1e-6) -> None:
        r"""Set W to the minimiser of $\lambda E\|f\|^2 - E[s \cdot f + \nabla \cdot f]$.

        Arguments:
            batches: Pairs of points and scores.
            l2: The penalty λ.
            ridge: Added to the diagonal of $E\,\varphi\varphi^\top$, as a share of its mean diagonal entry.
        """
        self.set_weights(self.moments(batches).solutions(l2, [ridge])[0])

    def set_weights(self, weights: Tensor) -> None:
        """Set W."""
        self.weights = nn.Parameter(weights.detach().clone())

    def _solved_weights(self) -> Tensor:
        if self.weights is None:
            raise InputError("critic: a Features critic has no weights before it is solved; call solve or fit_critic")
        return self.weights


class Linear(Features):
    """The affine critic f(x) = A x + b. It sees a wrong mean and wrong covariances.

    Arguments:
        dim: The number of coordinates of x.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(Affine())
        self.set_weights(torch.zeros(dim, dim + 1))


class Module(Critic):
    """Any network as a critic; its divergence comes from autograd.

    Arguments:
        net: A module or function that takes points (n, ...) to values of the same shape, each row on its own.
        trace: `"exact"`, `"hutchinson"` (one Gaussian probe), or `"auto"`: Hutchinson in training from three
            coordinates on, otherwise exact.
    """

    def __init__(self, net: Callable[[Tensor], Tensor], trace: Trace = "auto") -> None:
        super().__init__()
        self.net, self.trace = net, _check_trace(trace)

    def forward(self, x: Points) -> Points:
        """The value f(x) at each point."""
        return self.net(x)

    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """f(x) and ∇·f(x) at each point."""
        is_exact = self.trace == "exact" or (self.trace == "auto" and (not self.training or x[0].numel() <= 2))
        if is_exact:
            return value_and_exact(self.net, x)
        return value_and_hutchinson(self.net, x, generator=generator)


class Preconditioned(Critic):
    r"""A critic in whitened coordinates: $f(x) = L^{-1} g(L (x - m))$.

    Its Stein values are those of g at $L (x - m)$ with scores $L^{-\top} s$, and the divergence is the same number.
    The penalty is on g, which makes the problem well conditioned whatever the scale of the data.

    Arguments:
        critic: The critic g.
        mean: The vector m.
        covariance: The matrix C with $L = C^{-1/2}$.
    """

    def __init__(self, critic: Critic, mean: Float[Tensor, " d"], covariance: Float[Tensor, "d d"]) -> None:
        super().__init__()
        self.critic = critic
        self.mean: Tensor
        self.whitening: Tensor
        self.colouring: Tensor
        eigenvalues, vectors = torch.linalg.eigh(covariance.double())
        if float(eigenvalues.min()) <= 0.0:
            raise InputError(
                f"covariance: expected a positive definite matrix, its least eigenvalue is {eigenvalues.min():.3g}"
            )
        self.register_buffer("mean", mean.detach().clone())
        self.register_buffer("whitening", ((vectors * eigenvalues.rsqrt()) @ vectors.T).to(mean.dtype))
        self.register_buffer("colouring", ((vectors * eigenvalues.sqrt()) @ vectors.T).to(mean.dtype))

    @classmethod
    def from_data(cls, critic: Critic, x: Points, shrinkage: float = 0.01) -> Preconditioned:
        """Whiten by the mean and covariance of x, the covariance shrunk a little towards its mean eigenvalue."""
        flat = _flat(x).double()
        covariance = torch.atleast_2d(torch.cov(flat.T))
        level = float(covariance.diagonal().mean())
        if not level > 0.0:
            raise InputError("x: all points are the same, so they cannot be whitened")
        covariance = (1 - shrinkage) * covariance
        covariance.diagonal().add_(shrinkage * level)
        return cls(critic, flat.mean(0).to(x.dtype), covariance)

    def forward(self, x: Points) -> Points:
        """The value f(x) at each point."""
        g = self.critic(self._whiten(x))
        return (_flat(g) @ self.colouring).view(x.shape)

    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """f(x) and ∇·f(x) at each point."""
        g, divergence = self.critic.value_and_divergence(self._whiten(x), generator)
        return (_flat(g) @ self.colouring).view(x.shape), divergence

    def stein(self, x: Points, score: Points, generator: torch.Generator | None = None) -> tuple[PerPoint, PerPoint]:
        """The Stein value of f and the squared norm of g at each point."""
        return self.critic.stein(*self.whiten(x, score), generator)

    def whiten(self, x: Points, score: Points) -> tuple[Points, Points]:
        """Points and scores in the coordinates of g."""
        return self._whiten(x), (_flat(score) @ self.colouring).view(score.shape)

    def _whiten(self, x: Points) -> Points:
        return ((_flat(x) - self.mean) @ self.whitening).view(x.shape)


class Mean(Critic):
    """The average of several critics.

    Arguments:
        critics: The critics; all take points of the same shape.
    """

    def __init__(self, critics: Sequence[Critic]) -> None:
        super().__init__()
        self.critics = nn.ModuleList(critics)

    def forward(self, x: Points) -> Points:
        """The mean value at each point."""
        return torch.stack([critic(x) for critic in self.critics]).mean(0)

    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """The mean value and the mean divergence at each point."""
        pairs = [critic.value_and_divergence(x, generator) for critic in self.critics]  # pyright: ignore[reportCallIssue]
        return torch.stack([f for f, _ in pairs]).mean(0), torch.stack([div for _, div in pairs]).mean(0)


def as_critic(critic: Any) -> Critic:
    """`critic` itself, or a plain network wrapped as one."""
    if isinstance(critic, Critic):
        return critic
    if isinstance(critic, nn.Module):
        return Module(critic)
    raise InputError(
        "critic: expected a critic of steinscope.critics or a torch.nn.Module from points to vectors, "
        f"got {type(critic).__name__}"
    )


def _flat(x: Tensor) -> Tensor:
    return x.reshape(len(x), -1)


def _check_trace(trace: Any) -> Trace:
    if trace not in ("auto", "exact", "hutchinson"):
        raise InputError(f'trace: expected "auto", "exact" or "hutchinson", got {trace!r}')
    return trace
