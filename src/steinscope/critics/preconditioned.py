"""A critic in whitened coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.critics.base import Batches, Critic
from steinscope.errors import InputError
from steinscope.shapes import PerPoint, Points, flattened
from steinscope.support.checks import check_number
from steinscope.support.tensors import check_tensor

__all__ = ["Preconditioned", "shrunk_covariance"]

_SHRINKAGES = (0.0, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
# In more coordinates the covariance is not worth its price, and few points say nothing about it.
_MOST_COORDINATES = 2000


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
        mean, covariance = check_tensor("mean", mean), check_tensor("covariance", covariance)
        if mean.ndim != 1 or covariance.shape != (len(mean), len(mean)):
            raise InputError("covariance", f"expected a matrix (d, d) beside a mean (d), got {tuple(covariance.shape)}")
        self.critic = critic
        self.mean: Tensor
        self.whitening: Tensor
        self.colouring: Tensor
        eigenvalues, vectors = torch.linalg.eigh(covariance.double())
        if float(eigenvalues.min()) <= 0.0:
            raise InputError(
                "covariance", f"expected a positive definite matrix, its least eigenvalue is {eigenvalues.min():.3g}"
            )
        self.register_buffer("mean", mean.detach().clone())
        self.register_buffer("whitening", ((vectors * eigenvalues.rsqrt()) @ vectors.T).to(mean.dtype))
        self.register_buffer("colouring", ((vectors * eigenvalues.sqrt()) @ vectors.T).to(mean.dtype))

    @classmethod
    def from_data(cls, critic: Critic, x: Points, shrinkage: float = 0.01) -> Preconditioned:
        """Whiten by the mean and covariance of x, the covariance shrunk a little towards its mean eigenvalue."""
        flat = flattened(check_tensor("x", x)).double()
        covariance = shrunk_covariance(flat, check_number("shrinkage", shrinkage, least=0, most=1))
        return cls(critic, flat.mean(0).to(x.dtype), covariance)

    @property
    def is_solvable(self) -> bool:
        """Whether g is solved in closed form."""
        return self.critic.is_solvable

    def solve_path(self, batches: Batches, l2: float, ridges: Sequence[float]) -> Iterator[float]:
        """Solve g in the new coordinates."""
        return self.critic.solve_path((self.whiten(x, score) for x, score in batches), l2, ridges)

    def forward(self, x: Points) -> Points:
        """The value f(x) at each point."""
        g = self.critic(self._whiten(x))
        return self.unwhiten(g.view(x.shape))

    def value_and_divergence(self, x: Points, generator: torch.Generator | None = None) -> tuple[Points, PerPoint]:
        """f(x) and ∇·f(x) at each point."""
        g, divergence = self.critic.value_and_divergence(self._whiten(x), generator)
        return self.unwhiten(g.view(x.shape)), divergence

    def stein(self, x: Points, score: Points, generator: torch.Generator | None = None) -> tuple[PerPoint, PerPoint]:
        """The Stein value of f and the squared norm of g at each point."""
        return self.critic.stein(*self.whiten(x, score), generator)

    def whiten(self, x: Points, score: Points) -> tuple[Points, Points]:
        """Points and scores in the coordinates of g."""
        return self._whiten(x), (flattened(score) @ self.colouring).view(score.shape)

    def _whiten(self, x: Points) -> Points:
        return ((flattened(x) - self.mean) @ self.whitening).view(x.shape)

    def unwhiten(self, values: Points) -> Points:
        """Values of g as values of f."""
        return (flattened(values) @ self.colouring).view(values.shape)


def shrunk_covariance(x: Float[Tensor, "n d"], shrinkage: float | None) -> Float[Tensor, "d d"]:
    """The covariance of points, moved towards a multiple of the identity, in double precision.

    Arguments:
        x: The points.
        shrinkage: How far, from 0 to 1; None for what gives a fifth of the points the highest Gaussian likelihood when
            it is used on the others. In more than 2000 coordinates that is 1.
    """
    x = x.double()
    if len(x) < 2:
        raise InputError("x", f"expected at least 2 points to whiten by, got {len(x)}")
    if shrinkage is None:
        shrinkage = _likeliest_shrinkage(x) if x.shape[1] <= _MOST_COORDINATES else 1.0
    covariance = torch.atleast_2d(torch.cov(x.T))
    level = float(covariance.diagonal().mean())
    if not level > 0.0:
        raise InputError("x", "all points are the same, so they cannot be whitened")
    covariance = (1 - shrinkage) * covariance
    covariance.diagonal().add_(shrinkage * level)
    return covariance


def _likeliest_shrinkage(x: Float[Tensor, "n d"]) -> float:
    n = len(x) - len(x) // 5
    if n < 2 or n == len(x):
        return 1.0
    known, others = x[:n], x[n:] - x[:n].mean(0)
    covariance = torch.atleast_2d(torch.cov(known.T))
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    level, squares = eigenvalues.mean(), (others @ vectors).square()
    if not float(level) > 0.0:
        return 1.0
    best, found = -torch.inf, 1.0
    for shrinkage in _SHRINKAGES:
        variances = (1 - shrinkage) * eigenvalues + shrinkage * level
        if float(variances.min()) <= 1e-12 * float(level):
            continue
        likelihood = float(-0.5 * ((squares / variances).sum(1).mean() + variances.log().sum()))
        if likelihood > best:
            best, found = likelihood, shrinkage
    return found
